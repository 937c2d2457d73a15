// An engine in this process: a thread that steps an Engine, between an inbox and an outbox.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/engine_info.h"
#include "api/events.h"
#include "api/request.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/tracer.h"
#include "engine/engine.h"
#include "engine/event_outbox.h"
#include "engine/runner.h"
#include "wire/engine_client.h"

namespace quire::engine {

// Where a trace of the engine's thread goes.
inline constexpr std::string_view kEngineLane = "engine";

enum class StopMode : std::uint8_t {
  kDrain,  // requests that were accepted run to their end
  kAbort,  // they end with kAbort after the step that is running
};

// Bounds: at most max_num_queued_requests with max_num_queued_tokens wait for their first step; these, those that run and
// those with a finishing event that nobody has fetched are at most max_num_queued_requests + max_num_seqs. Submit refuses
// beyond that.
//
// Threads: the engine's own thread runs Loop() and is the only one to touch engine_. All else goes through
// inbox_ and outbox_; published_ is a copy of the statistics after the last step, so asking never waits for a
// step.
class LocalEngine final : public EngineClient {
 public:
  // Takes the runner and starts the thread. Of `info`, what the scheduler's configuration says is filled in
  // here (vocab_size, max_model_len, block_size, num_blocks, max_num_seqs, max_num_batched_tokens). `clock`
  // is read by several threads (as a SteadyClock may be) and outlives the engine; so does `tracer`, when there is one.
  // With `tiers`, what the prefix cache has at the end is written to them, for some seconds at most.
  static Result<std::unique_ptr<LocalEngine>> Create(EngineConfig config, EngineInfo info,
                                                     std::unique_ptr<Runner> runner, const Clock* clock,
                                                     std::unique_ptr<KvTiers> tiers = nullptr,
                                                     Tracer* tracer = nullptr);
  // Stops with kAbort.
  ~LocalEngine() override;
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  Result<> Submit(GenerateRequest request) override;
  void Abort(RequestId id, std::optional<int> choice) override;
  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) override;
  Result<EngineInfo> Info() override;
  Result<EngineStats> Stats() override;
  // Returns at once; happens before any request that is submitted later is looked at.
  Result<> ResetPrefixCache() override;
  Result<TraceBatch> Trace(TraceCommand command) override;

  // Refuses further requests, ends those that are there, and returns when the engine's thread has nothing
  // more to do. Next() then delivers what is left, and nullopt after it. kAbort cuts a kDrain short that
  // another thread waits for.
  void Stop(StopMode mode);

 private:
  // What others want of the engine's thread.
  struct Arrived {
    GenerateRequest request;
    TimePoint queued;
    std::shared_ptr<PrefixFetch> fetch;
  };
  struct Inbox {
    std::vector<Arrived> requests;
    std::set<std::pair<RequestId, std::optional<int>>> aborts;  // as Abort takes them; of live requests
    bool reset_prefix_cache = false;

    bool empty() const { return requests.empty() && aborts.empty() && !reset_prefix_cache; }
    void Clear();
  };

  // A request with choices whose finishing event has not been fetched.
  struct Live {
    int num_choices = 0;
    int num_unfinished = 0;
  };

  LocalEngine(EngineConfig config, EngineInfo info, std::unique_ptr<Runner> runner, const Clock* clock,
              std::unique_ptr<KvTiers> tiers, Tracer* tracer);
  void Loop();
  // Waits until there is something to do, and takes it into taken_; false when the thread shall end.
  bool Drain();
  void Apply();
  void Emit();
  void TraceCounters();

  const EngineConfig config_;
  const EngineInfo info_;
  const std::unique_ptr<Runner> runner_;
  const Clock* const clock_;
  std::unique_ptr<KvTiers> tiers_;  // null without; its thread fills blocks of the runner's
  Tracer* const tracer_;            // or null
  TraceLane* const lane_;           // of the engine's thread; or null

  // Of the engine's thread.
  Engine engine_;
  Inbox taken_;
  std::vector<EngineEvent> events_;
  EngineStats stats_;

  EventOutbox outbox_;

  std::mutex mutex_;                 // guards all below
  std::condition_variable wake_;     // there is something in the inbox, the tiers got on, or stop_ is set
  std::condition_variable stopped_;  // done_ is set
  Inbox inbox_;
  std::unordered_map<RequestId, Live> live_;
  int num_queued_ = 0;                  // requests in the inbox, in taken_, and in the scheduler's queue
  std::int64_t num_queued_tokens_ = 0;  // of their prompts
  std::int64_t num_inbox_tokens_ = 0;   // those of the inbox
  EngineStats published_;
  std::optional<StopMode> stop_;
  bool done_ = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace quire::engine
