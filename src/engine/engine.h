// The step loop: Drain → Plan → Run → Commit → Emit, without the threads at its ends (those are
// LocalEngine's). The only owner and the only mutator of the engine's state.
#pragma once

#include <optional>
#include <vector>

#include "api/engine_info.h"
#include "api/events.h"
#include "api/request.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/preemption_meter.h"
#include "engine/runner.h"
#include "sched/batch_plan.h"
#include "sched/scheduler.h"

namespace quire::engine {

struct EngineConfig {
  sched::SchedulerConfig scheduler;
  std::vector<TokenId> eos_token_ids;  // the model's own end-of-sequence ids

  Result<> Validate() const;
};

// One thread. Everything it needs comes in, so that a whole engine runs in a test with a fake runner and a
// ManualClock.
class Engine final {
 public:
  // `config` is valid; `runner` and `clock` outlive the engine.
  Engine(const EngineConfig& config, Runner* runner, const Clock* clock);

  // As EngineClient::Submit, for a request that arrived at `queued`.
  Result<> Add(GenerateRequest request, TimePoint queued);
  // As EngineClient::Abort; the events are appended.
  void Abort(RequestId id, std::optional<int> choice, std::vector<EngineEvent>* events) {
    scheduler_.Abort(id, choice, events);
  }
  void AbortAll(std::vector<EngineEvent>* events) { scheduler_.AbortAll(events); }
  void ResetPrefixCache() { scheduler_.ResetPrefixCache(); }

  // Whether a Step has anything to do.
  bool has_work() const { return scheduler_.has_unfinished(); }
  // Plans, runs and commits one step, and appends what came of it. A step that the runner cannot carry out
  // ends its requests with kError. Returns whether the runner succeeded.
  Result<> Step(std::vector<EngineEvent>* events);

  const sched::Scheduler& scheduler() const { return scheduler_; }

 private:
  Runner* const runner_;
  const Clock* const clock_;
  sched::Scheduler scheduler_;
  PreemptionMeter meter_;
  sched::BatchPlan plan_;     // reused
  sched::StepResult result_;  // reused
};

}  // namespace quire::engine
