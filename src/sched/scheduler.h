// Who runs in the next step. No clock, thread or I/O of its own: the caller hands in the time, carries the
// plan out and hands back what came of it, so that any schedule can be simulated.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "api/engine_info.h"
#include "api/events.h"
#include "api/request.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "kv/kv_manager.h"
#include "sched/batch_plan.h"
#include "sched/policy.h"
#include "sched/scheduler_config.h"
#include "sched/sequence.h"

namespace quire::sched {

// One thread. Plan and Commit (or Fail) alternate; everything else comes between a Commit and the next Plan.
//
// * Running sequences go first, oldest first, those with one token to run before those with a chunk of a
// prompt; then
//   preempted ones; then waiting ones in the policy's order; all under one token budget.
// * When blocks run out, the youngest running sequence is preempted: its blocks go (what it published stays
// in the
//   cache while it can), and it is recomputed later. The oldest always gets on, so the whole always gets on.
// * A waiting sequence is admitted when there is room for all of its tokens and for those that others still
// have to
//   run. What there is room for is counted anew each time, never kept up to date.
class Scheduler final {
 public:
  // `config` is valid. `eos_token_ids` end a choice unless it ignores them.
  Scheduler(const SchedulerConfig& config, std::vector<TokenId> eos_token_ids);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // What a request must fulfil on its own, whatever else runs: ids and lengths in range, and enough memory in
  // an empty pool. Reads nothing that changes, so any thread may ask.
  Result<> Validate(const GenerateRequest& request) const;
  // Puts a request in the queue. kUnavailable when that is full; kInvalidArgument as Validate, or when the id
  // lives.
  Result<> Add(GenerateRequest request, TimePoint now);
  // Ends all unfinished choices of a request with kAbort events. Unknown ids are ignored.
  void Abort(RequestId id, TimePoint now, std::vector<EngineEvent>* events);
  void AbortAll(TimePoint now, std::vector<EngineEvent>* events);
  void ResetPrefixCache();

  // Fills `plan` for the next step. Empty only when nothing is unfinished.
  void Plan(TimePoint now, BatchPlan* plan);
  // Takes the step's outcome (one entry per scheduled sequence) in and appends the events.
  void Commit(const BatchPlan& plan, StepResult* result, TimePoint now, std::vector<EngineEvent>* events);
  // The step failed: ends every request of the plan with kError events, and caches nothing of it.
  void Fail(const BatchPlan& plan, const Error& error, TimePoint now, std::vector<EngineEvent>* events);

  bool has_unfinished() const { return !groups_.empty(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  // Requests that never ran; what max_num_queued_requests bounds.
  int num_queued_requests() const { return static_cast<int>(waiting_.size()); }
  EngineStats stats() const;

  const SchedulerConfig& config() const { return config_; }
  const kv::KvManager& kv() const { return kv_; }
  // CHECKs the invariants of the scheduler and of its memory; O(num_blocks).
  void CheckIntegrity() const;

 private:
  // A request and its choices, until all have finished.
  struct Group {
    Request request;
    std::vector<std::unique_ptr<Sequence>> choices;
    int num_unfinished = 0;
  };

  SchedulerConfig config_;
  std::vector<TokenId> eos_token_ids_;
  kv::KvManager kv_;
  std::unique_ptr<Policy> policy_;
  std::unordered_map<RequestId, std::unique_ptr<Group>> groups_;
  std::vector<Sequence*> waiting_;   // never ran; by arrival
  std::vector<Sequence*> resuming_;  // preempted, or a choice that found no room beside the first; by age
  std::vector<Sequence*> running_;   // by age
};

}  // namespace quire::sched
