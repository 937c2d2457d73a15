// How much a step may do so that the running streams keep their tempo: the slo policy's half that is not an order.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "sched/batch_plan.h"
#include "sched/cost_model.h"
#include "sched/scheduler_config.h"
#include "sched/sequence.h"

namespace quire::sched {

// One step: its time limit, and what is planned of it. Tokens of prompts go in while they fit; those of streams always.
// The limit is what the streams' tempo leaves, and the deadline of a prompt that becomes complete in the step.
class StepPacer final {
 public:
  explicit StepPacer(const SchedulerConfig& config);

  // Begins the plan of a step. Without targets among `running` it is bounded by the token budget alone.
  void Begin(std::span<Sequence* const> running, TimePoint now);
  // How many tokens of a prompt may still go into the step, from that position on; at most `most`.
  int TokensFor(int first_position, int most) const;
  void Add(int first_position, int num_tokens);
  void Remove(int first_position, int num_tokens);
  // The step had better end in so many seconds, if that is still possible.
  void EndWithin(double seconds);
  // Whether one more stream, beside those that run, leaves each its tempo.
  bool HasRoomFor(const Sequence& candidate, std::span<Sequence* const> running) const;

  // What came of a step.
  void Observe(const BatchPlan& plan, Duration duration);

  // About how long so many prompt tokens take, beside what the last step had to do.
  double PrefillSeconds(std::int64_t num_tokens) const;
  const CostModel& costs() const { return costs_; }

 private:
  bool is_limited() const;
  double UsableOf(double seconds) const;

  const SchedulerConfig config_;
  CostModel costs_;
  double tempo_s_;          // the strictest target of those that run; infinity without
  double limit_s_;          // of the step; infinity without
  double planned_s_ = 0;    // of the step
  double rows_s_ = 0;       // of that, for streams
  int prefill_tokens_ = 0;  // in the step
};

}  // namespace quire::sched
