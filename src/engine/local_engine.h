// An engine in this process: a thread that steps an Engine, between an inbox and an outbox.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/engine_info.h"
#include "api/events.h"
#include "api/request.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/runner.h"
#include "wire/engine_client.h"

namespace quire::engine {

enum class StopMode : std::uint8_t {
  kDrain,  // requests that were accepted run to their end
  kAbort,  // they end with kAbort at once, after the step that is running
};

// Bounds: at most max_num_queued_requests wait for their first step, and at most max_num_seqs more are
// running or have events that nobody has fetched; Submit refuses beyond that. Events of one choice that have
// not been fetched are merged, so a reader who is slow holds nothing up and costs no more than the tokens
// that it asked for.
class LocalEngine final : public EngineClient {
 public:
  // Takes the runner and starts the thread. Of `info`, what the scheduler's configuration says is filled in
  // here (vocab_size, max_model_len, block_size, num_blocks, max_num_seqs, max_num_batched_tokens). `clock`
  // may be read by several threads; it outlives the engine.
  static Result<std::unique_ptr<LocalEngine>> Create(EngineConfig config, EngineInfo info,
                                                     std::unique_ptr<Runner> runner, const Clock* clock);
  // Stops with kAbort.
  ~LocalEngine() override;

  Result<> Submit(GenerateRequest request) override;
  void Abort(RequestId id) override;
  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) override;
  Result<EngineInfo> Info() override;
  Result<EngineStats> Stats() override;
  Result<> ResetPrefixCache() override;

  // Refuses further requests, ends those that are there, and returns when the thread is done. Next() then
  // delivers what is left, and nullopt after it. kAbort also cuts a kDrain short that another thread waits
  // for.
  void Stop(StopMode mode);
};

}  // namespace quire::engine
