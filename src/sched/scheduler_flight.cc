// The part of Scheduler that plans a step while the one before it is computed. Where a sequence will stand after that
// is known, whatever it samples; only the token itself is not, so a placeholder stands in its place:
//
//                        num_computed    tokens
//   Launch(1)            3               a b c d             the step computes d and samples what follows
//   Plan(2) advances     4               a b c d ?           one token to compute: the next step samples again
//   FillIn(1)            4               a b c d e           before anybody reads it
//   Commit(1)            4               a b c d e           e is told, and cached; did it end the sequence, that leaves
//                                                            plan 2, or, if that is in flight, its result is dropped
//
// A sequence whose next token is its last by length gets no placeholder, so it is in no further plan. Beams wait for the
// step: which of them go on depends on what it finds. Forks of a prompt that the step completes begin one step later.
// Whoever is preempted while it computes keeps the token, but nothing is cached of it.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {
namespace {

constexpr TokenId kPlaceholder(-1);

}  // namespace

// The block tables may change before the step has run, and are copied; tokens stay where they are.
bool Scheduler::Launch(BatchPlan* plan) {
  CHECK(planned_ == plan && !pacer_);
  CHECK(in_flight_ == nullptr || in_flight_->is_filled_in);
  planned_ = nullptr;
  if (plan->empty()) return false;
  plan->block_ids.clear();
  for (const ScheduledSequence& scheduled : plan->sequences) {
    const auto blocks = scheduled.sequence->blocks_.table.blocks();
    plan->block_ids.insert(plan->block_ids.end(), blocks.begin(), blocks.end());
  }
  std::span<const BlockId> left = plan->block_ids;
  for (ScheduledSequence& scheduled : plan->sequences) {
    Sequence* const sequence = scheduled.sequence;
    const std::size_t num_blocks = sequence->blocks_.table.blocks().size();
    scheduled.blocks = left.first(num_blocks);
    left = left.subspan(num_blocks);
    sequence->plan_index_ = -1;
    sequence->is_in_flight_ = sequence->request().num_beam_candidates > 0;
  }
  in_flight_ = plan;
  return true;
}

void Scheduler::AdvanceInFlight() {
  in_flight_->is_advanced = true;
  for (const ScheduledSequence& scheduled : in_flight_->sequences) {
    Sequence* const sequence = scheduled.sequence;
    if (sequence->state_ == SequenceState::kFinished || sequence->is_in_flight_) continue;
    CHECK(sequence->num_computed_tokens_ == scheduled.first_position);
    sequence->num_computed_tokens_ = scheduled.end();
    if (!scheduled.samples || sequence->num_tokens() + 1 >= sequence->request().max_num_tokens) continue;
    CHECK(sequence->tokens_.size() < sequence->tokens_.capacity());  // the step is reading them
    sequence->tokens_.push_back(kPlaceholder);
  }
}

void Scheduler::FillIn(BatchPlan* plan, const StepResult& result) {
  plan->is_filled_in = true;
  for (std::size_t i = 0; i < plan->sequences.size(); ++i) {
    const ScheduledSequence& scheduled = plan->sequences[i];
    if (!scheduled.sequence->is_placeholder_at(scheduled.end())) continue;
    scheduled.sequence->tokens_[static_cast<std::size_t>(scheduled.end())] = result.sequences[i].tokens.front();
  }
}

// The plan is about to be committed, or has failed.
void Scheduler::Land(BatchPlan* plan) {
  if (planned_ == plan) {
    planned_ = nullptr;
    for (const ScheduledSequence& scheduled : plan->sequences) scheduled.sequence->plan_index_ = -1;
  } else if (in_flight_ == plan) {
    in_flight_ = nullptr;
  } else {
    CHECK(plan->is_filled_in);  // another one has been launched since
  }
}

// The sequence has ended while the next step was planned with it.
void Scheduler::LeavePlan(Sequence* sequence) {
  if (planned_ == nullptr) return;
  std::erase(planned_->swapped_out, sequence);
  if (sequence->plan_index_ >= 0) TakeOutOfPlan(sequence, planned_);
}

}  // namespace quire::sched
