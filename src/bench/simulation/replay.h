// Requests at their times against an engine that is stepped by hand: a simulated one, in simulated time, or a real one on
// the clock. What is measured is the same for both, so that one can be held against the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bench/simulation/request_trace.h"
#include "bench/workload.h"
#include "engine/engine.h"
#include "engine/runner.h"

namespace quire::bench {

// Time that can be waited for.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual const Clock& clock() const = 0;
  // Returns when the clock shows `time` or later.
  virtual void WaitUntil(TimePoint time) = 0;
};

// Passes when somebody says so, and jumps to what is waited for.
class SimulatedTimeline final : public Timeline {
 public:
  const Clock& clock() const override { return clock_; }
  void WaitUntil(TimePoint time) override {
    if (time > clock_.Now()) clock_.Advance(time - clock_.Now());
  }
  void Advance(Duration step) { clock_.Advance(step); }

 private:
  ManualClock clock_;
};

class SteadyTimeline final : public Timeline {
 public:
  const Clock& clock() const override { return clock_; }
  void WaitUntil(TimePoint time) override;

 private:
  SteadyClock clock_;
};

// Sums over the steps of an engine, weighted by how long each took.
struct StepSums {
  std::int64_t num_steps = 0;
  double seconds = 0;
  double sequences = 0;        // · seconds
  double tokens = 0;           // that stand in the cache after the step, · seconds
  double blocks = 0;           // of all block tables, · seconds; one that is shared counts for each sequence
  double distinct_blocks = 0;  // one that is shared counts once
  int max_sequences = 0;
  int max_tokens = 0;  // of a step

  void Add(const StepSums& other);
};

// A runner that keeps these sums of another one.
class MeteredRunner final : public engine::Runner {
 public:
  // What is pointed to outlives this. Distinct blocks are counted only when `num_blocks`, of the pool, is given: it takes
  // time for each block.
  MeteredRunner(engine::Runner* runner, const Clock* clock, int num_blocks = 0);
  Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) override;
  const StepSums& sums() const { return sums_; }

 private:
  engine::Runner* const runner_;
  const Clock* const clock_;
  std::vector<std::int64_t> last_seen_;  // [num_blocks]: the step that had the block last
  StepSums sums_;
};

// What became of the requests: all samples, so that several replays can be put together.
struct ReplaySamples {
  int num_requests = 0;
  int num_finished = 0;
  int num_too_long = 0;                                      // prompt and output did not fit into the model or the pool
  int num_refused = 0;                                       // the queue was full, or the policy gave it up
  std::int64_t num_input_tokens = 0, num_output_tokens = 0;  // of finished requests
  std::uint64_t num_looked_up_tokens = 0, num_hit_tokens = 0;  // in the prefix cache
  std::uint64_t num_preemptions = 0, num_evicted_blocks = 0;
  double duration_seconds = 0;                   // from the start to the last token
  double pool_seconds = 0;                       // share of the pool's blocks in use · seconds
  double pool_used_max = 0;                      // share
  std::vector<double> ttft, tpot, itl, latency;  // seconds
  StepSums steps;

  // Of another replica, which ran at the same time.
  void Add(const ReplaySamples& other);
  double hit_rate() const;
  double output_tokens_per_second() const;
};

struct ReplayOptions {
  int max_concurrency = 0;  // requests in the engine at a time; 0: no limit
  bool counts_distinct_blocks = false;
};

// Runs the engine until all requests have ended. `requests` are by arrival; `config` is valid. An error of the runner is
// an error.
Result<ReplaySamples> Replay(const engine::EngineConfig& config, engine::Runner* runner, Timeline* timeline,
                             std::span<const TraceRequest> requests, const ReplayOptions& options = {});

}  // namespace quire::bench
