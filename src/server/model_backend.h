// What the front end has of one loaded model: tokenizer and template, its engine, the requests in it, and what is known
// of it without asking. Made when the model is loaded, and gone with it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "server/config.h"
#include "server/engine_monitor.h"
#include "server/metrics.h"
#include "server/prepare.h"
#include "server/profiler.h"
#include "server/tracker.h"

namespace quire::server {

class ModelBackend {
 public:
  // The pointers outlive the backend; with `profiler`, traces show its engine. `on_change` is called, by threads of the backend's own, when the engine becomes
  // ready or ceases to be, and when it is gone for good.
  ModelBackend(ServedModel model, const ServerConfig* config, Metrics* metrics, const Clock* clock,
               std::function<void(bool is_gone)> on_change, Profiler* profiler = nullptr);
  // Every request has been released. Ends the engine if the backend owns it, which may take seconds.
  ~ModelBackend();
  ModelBackend(const ModelBackend&) = delete;
  ModelBackend& operator=(const ModelBackend&) = delete;

  // The engine has loaded its model and takes requests.
  bool is_ready() const { return !engine_gone() && monitor_.is_ready(); }
  // It will not come back; every request in it has been told.
  bool engine_gone() const { return tracker_.engine_gone(); }
  // Of the engine that is or was ready last; null before the first.
  std::shared_ptr<const EngineInfo> info() const { return monitor_.info(); }
  // The model as requests see it; null until the engine was ready for the first time.
  std::shared_ptr<const ModelContext> Context();
  // Ends every request that still runs, as if the engine were gone.
  void Abandon(const ApiError& why) { tracker_.Abandon(why); }

  const ServedModel& model() const { return model_; }
  EngineClient& engine() { return *model_.engine; }
  std::int64_t num_waiting_tokens() const { return tracker_.num_waiting_tokens(); }
  RequestTracker& tracker() { return tracker_; }
  EngineMonitor& monitor() { return monitor_; }
  Metrics& metrics() { return *metrics_; }

 private:
  const ServedModel model_;
  const ServerConfig* config_;
  Metrics* metrics_;
  Profiler* profiler_;  // or null

  std::mutex mutex_;                                // guards the next two
  std::shared_ptr<const EngineInfo> context_info_;  // what context_ was made from
  std::shared_ptr<const ModelContext> context_;     // shared with the requests that use it

  RequestTracker tracker_;
  EngineMonitor monitor_;
  std::atomic<bool> stop_tracker_{false};  // a flag alone; the join orders the rest
  std::thread tracker_thread_;
};

}  // namespace quire::server
