// Who runs in the next step. No clock, thread or I/O of its own: the caller hands in the time, carries the
// plan out and hands back what came of it, so that any schedule can be simulated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
#include "sched/beam_search.h"
#include "sched/policy.h"
#include "sched/scheduler_config.h"
#include "sched/sequence.h"
#include "sched/step_pacer.h"

namespace quire::sched {

// What preemptions cost on this machine, as measured by the engine.
struct PreemptionCosts {
  double token_s = 0;       // to compute a token of a prompt; 0: not known yet
  double block_copy_s = 0;  // to copy a block
};

// One thread. Plan and Commit (or Fail) alternate; everything else comes between a Commit and the next Plan. Or one step
// ahead, with what a step computes as in scheduler_flight.cc:
//
//   Plan(1) Launch(1) │ Plan(2) … Commit(1) Launch(2) │ Plan(3) … Commit(2) Launch(3) │ …      everything else comes at │
//   Plan(1) Launch(1) │ Plan(2) … FillIn(1) Launch(2) Commit(1) │ Plan(3) …               the same, and Commit in flight
//
// * Running sequences go first, oldest first (or as the policy ranks them), those with one token to run before those
//   with a chunk of a prompt; then preempted ones; then waiting ones in the policy's order; all under one token budget,
//   and with the slo policy one of time. Some policies let a waiting sequence go before running ones.
// * When blocks run out, the last running sequence is preempted: its blocks go (what it published stays in the
//   cache while it can), and it is recomputed later. The first always gets on, so the whole always gets on.
//   Its keys and values may be saved in the swap area instead, see PreemptionMode; it then goes on where it was.
// * A sequence is admitted when there is room for all of its tokens beside those that others still have to run. What
//   there is room for is counted anew for each plan.
// * Of a request with several choices, the first computes the prompt; then the others fork from it.
// * The beams of a request run one token each, in one step or in several; when all have proposed what comes next, the
//   search says which go on. They are admitted and preempted together: then the first computes what they have in
//   common, and the others fork from it again.
class Scheduler final {
 public:
  // `config` is valid. `eos_token_ids` end a choice unless it ignores them. Without `text_stops`, which outlives the
  // scheduler, beams with stop strings are refused.
  Scheduler(const SchedulerConfig& config, std::vector<TokenId> eos_token_ids, TextStopMaker* text_stops = nullptr);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Puts a request that arrived at `queued` in the queue. kUnavailable when that is full, in requests or in tokens;
  // kInvalidArgument as ValidateRequest says, or when the id is that of an unfinished request. `saved` are landing
  // blocks with what lower tiers had of the prompt.
  Result<> Add(GenerateRequest request, TimePoint queued, kv::SavedBlocks saved = {});
  bool IsUnfinished(RequestId id) const { return groups_.contains(id); }
  // As EngineClient::Abort; the kAbort events are appended.
  void Abort(RequestId id, std::optional<int> choice, std::vector<EngineEvent>* events);
  void AbortAll(std::vector<EngineEvent>* events);
  // Forgets every cached prefix that no running sequence uses.
  void ResetPrefixCache() { kv_.ResetPrefixCache(); }
  // For PreemptionMode::kAuto; whatever they are, only the time that things take depends on it.
  void SetPreemptionCosts(const PreemptionCosts& costs) { preemption_costs_ = costs; }

  // Ends waiting requests that have waited too long or, when the configuration says so, cannot be in time any more, with
  // kShed events. Before each Plan.
  void Shed(TimePoint now, std::vector<EngineEvent>* events);
  // Fills `plan` for the next step. Empty only when nothing is unfinished but what is in flight.
  void Plan(TimePoint now, BatchPlan* plan);
  // The plan goes to what computes it, and stays what it is whatever happens here; from now on the next one may be made
  // before it is committed. One plan is in flight at a time, or two between Launch and Commit. Not with the slo policy,
  // whose steps depend on how long the last one took.
  // False, and it is as if the plan had not been made, when nothing is left of it.
  bool Launch(BatchPlan* plan);
  // Tells the sequences which tokens a plan found, on which the next plan has been made already.
  static void FillIn(BatchPlan* plan, const StepResult& result);
  // Takes in what the step found (one entry per scheduled sequence; logprobs are moved out) and appends the
  // events.
  void Commit(BatchPlan* plan, StepResult* result, TimePoint now, std::vector<EngineEvent>* events);
  // The step failed: ends every request of the plan with kError events, and caches nothing of the step.
  void Fail(BatchPlan* plan, const Error& error, std::vector<EngineEvent>* events);

  // What the engine needs for lower tiers, as in KvManager.
  void KeyBlocks(std::string_view identity) { kv_.KeyBlocks(identity); }
  std::optional<kv::KeyedBlock> NextUnsaved() { return kv_.NextUnsaved(); }
  kv::BlockRef TakeLandingBlock() { return kv_.TakeLandingBlock(); }

  bool has_unfinished() const { return !groups_.empty(); }
  // Requests that never ran; max_num_queued_requests bounds them.
  int num_queued_requests() const { return static_cast<int>(waiting_.size()); }
  std::int64_t num_queued_tokens() const { return num_queued_tokens_; }  // of their prompts
  int num_running_sequences() const { return static_cast<int>(running_.size()); }
  int num_unfinished_sequences() const { return num_unfinished_sequences_; }
  // Gauges count choices. Allocates nothing when `stats` is used again.
  void ReadStats(EngineStats* stats) const;

  const SchedulerConfig& config() const { return config_; }
  const kv::KvManager& kv() const { return kv_; }
  const Policy& policy() const { return *policy_; }
  const StepPacer* pacer() const { return pacer_ ? &*pacer_ : nullptr; }  // with the slo policy
  // CHECKs the invariants of the scheduler and of its memory; O(num_blocks).
  void CheckIntegrity() const;

 private:
  // The search of a request with beams, whose result are its choices.
  struct Beams {
    BeamSearch search;
    std::vector<bool> has_ended;  // by choice
    std::vector<int> num_told;    // settled tokens that each choice has been told
  };
  // A request and its choices. It goes when all of them have finished.
  struct Group {
    Request request;
    std::vector<std::unique_ptr<Sequence>> choices;  // with beams: as many as the search is wide
    std::unique_ptr<Beams> beams;                    // null without
    int num_unfinished = 0;                          // choices
  };
  // How the plan being made stands.
  struct Planning {
    TimePoint now{};
    BatchPlan* plan = nullptr;
    int budget = 0;  // tokens
    bool preempted = false;
    bool is_ordered = false;  // order_ is made,
    std::size_t next = 0;     // and admitted as far as here
  };

  // Arrival
  void SetTerms(const ServiceTerms& terms, Request* request) const;

  // Plan
  void ScheduleRunning(bool decodes, Planning* planning);
  // Admits whoever has a place; with `before`, only those who may go before that running sequence.
  void ScheduleAdmissions(const Sequence* before, Planning* planning);
  void AdmitCandidates(const Sequence* before, Planning* planning);
  Sequence* NextCandidate(Planning* planning);
  bool AdmitOrDisplace(Sequence* candidate, Planning* planning);
  bool CanDisplaceEnough(const Sequence& candidate) const;
  bool KeepsTempo(const Sequence& candidate) const;
  bool Admit(Sequence* sequence, Planning* planning);
  void PutInPlan(Sequence* sequence, int num_tokens, Planning* planning);
  void TakeOutOfPlan(Sequence* sequence, BatchPlan* plan);
  void Preempt(Sequence* sequence, Planning* planning);
  bool IsSwapCheaper(const Sequence& sequence) const;
  int ChunkOf(const Sequence& sequence, int budget) const;
  int CountSpareBlocks() const;
  int CountSeats() const;
  // With the ablation, the memory of a whole reservation.
  int TokensToReserve(int num_tokens) const {
    return config_.ablations.reserve_max_model_len ? config_.max_model_len : num_tokens;
  }
  void ReserveToTheEnd(Sequence* sequence);
  void LeaveQueue(Sequence* sequence, Planning* planning);
  void Insert(Sequence* sequence, std::vector<Sequence*>* sequences) const;  // by rank

  // Shed
  void ShedUnmeetable(TimePoint now, std::vector<EngineEvent>* events);
  void ShedRequest(const Sequence& sequence, const std::string& why, double retry_after_s,
                   std::vector<EngineEvent>* events);
  int CountTokensToCompute(const Sequence& sequence, bool looks_up) const;

  // Flight
  void AdvanceInFlight();
  void Land(BatchPlan* plan);
  void LeavePlan(Sequence* sequence);

  // Commit
  void CommitSequence(const ScheduledSequence& scheduled, bool is_advanced, SequenceResult* found, TimePoint now,
                      std::vector<EngineEvent>* events);
  void TakeToken(Sequence* sequence, int position, TokenId token, TimePoint now, EngineEvent* event);
  void ForkChoices(Sequence* first, bool first_has_memory);
  EngineEvent MakeEvent(const Sequence& sequence) const;
  void FinishSequence(Sequence* sequence, FinishReason reason, EngineEvent* event);
  // Appends the event of a choice that ends without a token.
  void EndChoice(Sequence* sequence, FinishReason reason, const std::string& error, std::vector<EngineEvent>* events);
  void EndGroup(Group* group, FinishReason reason, const std::string& error, std::vector<EngineEvent>* events);
  void EraseFinished();
  Group& GroupOf(const Sequence& sequence);
  const Group& GroupOf(const Sequence& sequence) const;

  // Beams
  Result<> AddBeams(std::span<const TokenId> prompt, Group* group);
  int BlocksToAdmit(const Sequence& sequence) const;
  void ParkBeams(Sequence* first);
  void ForkBeams(Sequence* first);
  void CommitBeam(Sequence* sequence, SequenceResult* found, TimePoint now, std::vector<EngineEvent>* events);
  void MoveBeams(Group* group);
  void ReportSettled(Group* group, std::vector<EngineEvent>* events);
  void ReportResult(Group* group, std::vector<EngineEvent>* events);
  void EndBeamChoice(Group* group, int choice, EngineEvent event, std::vector<EngineEvent>* events);
  // Ends the choice that is named, or all that have not ended.
  void EndBeams(Group* group, std::optional<int> choice, FinishReason reason, const std::string& error,
                std::vector<EngineEvent>* events);
  void ReleaseBeams(Group* group, bool caches);
  void CheckBeams(const Group& group) const;

  const SchedulerConfig config_;
  const std::vector<TokenId> eos_token_ids_;
  TextStopMaker* const text_stops_;  // may be null
  kv::KvManager kv_;
  const std::unique_ptr<Policy> policy_;
  std::optional<StepPacer> pacer_;  // with the slo policy
  std::unordered_map<RequestId, std::unique_ptr<Group>> groups_;
  // Every sequence that is neither parked nor finished is in exactly one of these: the first by age, the others as the
  // policy ranks them.
  std::vector<Sequence*> waiting_;          // the first choices of requests that never ran
  std::vector<Sequence*> resuming_;         // without memory: preempted, or found no place beside the first choice
  std::vector<Sequence*> running_;          // with memory
  std::vector<Sequence*> order_;            // reused: the policy's order of waiting_
  std::vector<RequestId> finished_groups_;  // reused
  PreemptionCosts preemption_costs_;
  std::vector<Sequence*> old_lanes_;         // reused: the sequences of the beams that a search has just left
  std::vector<const Sequence*> prefilling_;  // reused: running ones whose prompts are being computed
  bool is_batch_open_ = false;               // of static batching: more may come
  BatchPlan* planned_ = nullptr;             // made, and neither launched nor committed
  BatchPlan* in_flight_ = nullptr;           // launched last, and not committed
  // Of requests that ended while a plan in flight named them; until that is committed.
  std::vector<std::unique_ptr<Group>> ended_in_flight_;
  TimePoint committed_at_{};
  std::int64_t num_queued_tokens_ = 0;
  int num_shed_since_step_ = 0;  // because they would have been late
  int num_unfinished_sequences_ = 0;
  std::uint64_t num_arrivals_ = 0;
  EngineStats counters_;  // only the counters; ReadStats() adds the gauges
};

}  // namespace quire::sched
