// What the front end knows about the engine without asking it: health and metrics are answered from here, at
// once, however busy the engine is (a step can take long, and the engine answers between steps).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "api/engine_info.h"
#include "server/metrics.h"
#include "wire/engine_client.h"

namespace quire::server {

class EngineMonitor {
 public:
  // `on_change` is called when is_ready() may have changed, by a thread of the monitor.
  EngineMonitor(EngineClient* engine, Metrics* metrics, std::function<void()> on_change);
  ~EngineMonitor();

  // The engine has loaded its model and takes requests.
  bool is_ready() const { return info() != nullptr && engine_->Info().has_value(); }
  // Of the engine that is or was ready last; null before the first.
  std::shared_ptr<const EngineInfo> info() const;
  // Asks for newer statistics; the count of the answers so far tells when they have come.
  void RequestStats();
  std::uint64_t num_stats() const { return num_stats_.load(std::memory_order_acquire); }

  void Stop();

 private:
  void WatchInfo();
  void WatchStats();
  // Waits for `pause`, or until woken; false at the end.
  bool Pause(std::chrono::milliseconds pause, bool* wanted);

  EngineClient* engine_;
  Metrics* metrics_;
  const std::function<void()> on_change_;
  std::atomic<std::uint64_t> num_stats_{0};  // release: the metrics are updated
  mutable std::mutex mutex_;                 // guards everything below
  std::condition_variable wake_;
  bool stop_ = false;
  bool stats_wanted_ = false;
  std::shared_ptr<const EngineInfo> info_;  // shared with readers, which may hold it while a newer one comes
  // Two, because one of them may wait for a busy engine.
  std::thread info_thread_, stats_thread_;
};

}  // namespace quire::server
