// The step loop: Drain → Plan → Run → Commit → Emit, without the threads at its ends (those are
// LocalEngine's). The only owner and the only mutator of the engine's state.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/engine_info.h"
#include "api/events.h"
#include "api/request.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/tracer.h"
#include "engine/arrivals.h"
#include "engine/preemption_meter.h"
#include "engine/runner.h"
#include "engine/step_executor.h"
#include "engine/tiers/kv_tiers.h"
#include "sched/batch_plan.h"
#include "sched/scheduler.h"

namespace quire::engine {

// kInvalidArgument unless 0, 1 or 2, and 0 with the slo policy.
Result<> ValidateAsyncScheduling(int async_scheduling, sched::PolicyKind policy);

struct EngineConfig {
  sched::SchedulerConfig scheduler;
  std::vector<TokenId> eos_token_ids;  // the model's own end-of-sequence ids
  std::string content_identity;  // for lower tiers: what, besides tokens and namespace, decides the bits of a block
  // For stop strings of beams; outlives the engine. Null: requests with such are refused.
  sched::TextStopMaker* text_stops = nullptr;
  // 1: the next step is planned while one is computed. 2: it also begins before that one is committed, so that a sequence
  // that ends by what it sampled is found out one step late. See docs/async-scheduling.md.
  int async_scheduling = 0;

  Result<> Validate() const;
};

// One thread. Everything it needs comes in, so that a whole engine runs in a test with a fake runner and a
// ManualClock.
class Engine final {
 public:
  // `config` is valid; `runner`, `clock`, and `tiers` and `lane`, which may be null, outlive the engine. Tiers need
  // prefix caching; a trace of the engine's thread goes to the lane. With async_scheduling steps run in `executor`, or
  // in a thread of their own.
  Engine(const EngineConfig& config, Runner* runner, const Clock* clock, KvTiers* tiers = nullptr,
         TraceLane* lane = nullptr, std::unique_ptr<StepExecutor> executor = nullptr);

  // Begins to look for the start of a prompt in the tiers, so that the answer is there when the request is added. Any
  // thread; null when there is nothing to look for.
  std::shared_ptr<PrefixFetch> LookUp(const GenerateRequest& request) const {
    return arrivals_ ? arrivals_->LookUp(request) : nullptr;
  }
  // As EngineClient::Submit, for a request that arrived at `queued`; `fetch` comes from LookUp().
  Result<> Add(GenerateRequest request, TimePoint queued, std::shared_ptr<PrefixFetch> fetch);
  Result<> Add(GenerateRequest request, TimePoint queued);
  // As EngineClient::Abort; the events are appended.
  void Abort(RequestId id, std::optional<int> choice, std::vector<EngineEvent>* events);
  void AbortAll(std::vector<EngineEvent>* events);
  void ResetPrefixCache() { scheduler_.ResetPrefixCache(); }

  // Whether anything is unfinished.
  bool has_work() const { return scheduler_.has_unfinished() || in_flight_ != nullptr || num_arriving() > 0; }
  // Whether a Step has anything to do now: what is unfinished may wait for the tiers, and they may wait for blocks.
  bool can_step() const;
  std::int64_t num_arriving_tokens() const { return arrivals_ ? arrivals_->num_tokens() : 0; }
  int num_arriving() const { return arrivals_ ? arrivals_->size() : 0; }
  // Plans, runs and commits one step, and appends what came of it; with async_scheduling, plans and begins one more. A
  // step that the runner cannot carry out ends its requests with kError. Returns whether the runner succeeded.
  Result<> Step(std::vector<EngineEvent>* events);
  // Hands all cached blocks that no tier has yet to the tiers, for at most so long.
  void SaveRemaining(Duration timeout);

  // As Scheduler::ReadStats, with the tiers and with what has not reached the scheduler yet.
  void ReadStats(EngineStats* stats) const;

  const sched::Scheduler& scheduler() const { return scheduler_; }

 private:
  void SaveBlocks();
  // Of the events from `first` on: those that finish a choice did so now.
  static void StampFinished(std::size_t first, TimePoint now, std::vector<EngineEvent>* events);

  // A step, from its plan to what it found.
  struct Flight {
    sched::BatchPlan plan;
    sched::StepResult result;
  };
  struct Stepped {
    const Flight* flight = nullptr;  // that was committed; null: there was nothing to do
    Result<> ran;
  };
  Stepped StepNow(std::vector<EngineEvent>* events);
  Stepped StepAhead(std::vector<EngineEvent>* events);
  bool Plan(Flight* flight, std::vector<EngineEvent>* events);  // false: there is nothing to do
  void Launch(Flight* flight);
  Result<> Wait();
  void Commit(Flight* flight, const Result<>& ran, std::vector<EngineEvent>* events);
  void Land(std::vector<EngineEvent>* events);
  void TraceLives(std::span<const EngineEvent> events);

  Runner* const runner_;
  const Clock* const clock_;
  KvTiers* const tiers_;
  TraceLane* const lane_;  // or null
  const int async_scheduling_;
  sched::Scheduler scheduler_;
  PreemptionMeter meter_;
  std::unique_ptr<Arrivals> arrivals_;      // null without tiers
  std::array<Flight, 2> flights_;           // reused, in turn
  Flight* in_flight_ = nullptr;             // one of them
  std::unique_ptr<StepExecutor> executor_;  // null: steps run here; goes first, it may still be computing
};

}  // namespace quire::engine
