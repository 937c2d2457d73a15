// The second half of Scheduler: what came of a step, and how sequences end.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {
namespace {

bool Contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

void Scheduler::Commit(const BatchPlan& plan, StepResult* result, TimePoint now, std::vector<EngineEvent>* events) {
  CHECK(has_plan_ && result->sequences.size() == plan.sequences.size());
  has_plan_ = false;
  if (pacer_) pacer_->Observe(plan, now - planned_at_);
  ++counters_.steps;
  counters_.step_tokens_sum += static_cast<std::uint64_t>(plan.num_tokens);
  const auto bucket = std::ranges::lower_bound(kStepTokenBuckets, plan.num_tokens) - std::begin(kStepTokenBuckets);
  ++counters_.step_tokens_histogram[static_cast<std::size_t>(bucket)];
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    plan.sequences[i].sequence->plan_index_ = -1;
    plan.sequences[i].sequence->NoteStep(result->began, now);
    CommitSequence(plan.sequences[i], &result->sequences[i], now, events);
  }
  EraseFinished();
}

void Scheduler::CommitSequence(const ScheduledSequence& scheduled, SequenceResult* found, TimePoint now,
                               std::vector<EngineEvent>* events) {
  Sequence* const sequence = scheduled.sequence;
  CHECK(scheduled.first_position == sequence->num_computed_tokens_);
  const bool is_beam = sequence->request().num_beam_candidates > 0;
  CHECK(found->tokens.size() == (scheduled.samples && !is_beam ? 1u : 0u));
  sequence->num_computed_tokens_ += scheduled.num_tokens;
  sequence->blocks_.saved.Clear();  // it has its copies
  const int num_computed = sequence->num_computed_tokens_;
  kv_.Publish(sequence->tokens().first(static_cast<std::size_t>(num_computed)), &sequence->blocks_);
  if (sequence->wants_prompt_logprobs() && !sequence->AllPromptLogprobsKnown()) {
    if (scheduled.prompt_logprobs) {
      const int end = std::min(num_computed, sequence->num_prompt_tokens() - 1);
      CHECK(static_cast<int>(found->prompt_logprobs.size()) == end - scheduled.first_position);
    }
    sequence->StorePromptLogprobs(scheduled.first_position, &found->prompt_logprobs);
  }
  if (is_beam && sequence->choice() == 0) ForkBeams(sequence);
  if (num_computed < sequence->num_tokens()) return;

  // The gap is closed. The first time that happens, the prompt is complete.
  if (sequence->choice() == 0 && sequence->num_output_tokens() == 0) {
    counters_.prompt_tokens += static_cast<std::uint64_t>(sequence->num_prompt_tokens());
    if (sequence->wants_output() && !is_beam) {
      ForkChoices(sequence);
      if (sequence->is_aborted_) return EndChoice(sequence, FinishReason::kAbort, "", events);
    }
  }
  if (is_beam) return CommitBeam(sequence, found, now, events);
  EngineEvent event = MakeEvent(*sequence);
  if (sequence->wants_prompt_logprobs() && !std::exchange(sequence->prompt_logprobs_reported_, true)) {
    event.prompt_logprobs = std::exchange(sequence->prompt_logprobs_, {});
  }
  if (!sequence->wants_output()) {
    FinishSequence(sequence, FinishReason::kLength, &event);
    events->push_back(std::move(event));
    // The other choices have nothing to add.
    EndGroup(&GroupOf(*sequence), FinishReason::kLength, "", events);
    return;
  }
  event.logprobs = std::move(found->logprobs);
  TakeToken(sequence, found->tokens.front(), now, &event);
  events->push_back(std::move(event));
}

void Scheduler::TakeToken(Sequence* sequence, TokenId token, TimePoint now, EngineEvent* event) {
  CHECK(token.value() >= 0 && token.value() < config_.vocab_size);
  const Request& request = sequence->request();
  RequestTimes& times = sequence->times_;
  if (sequence->num_output_tokens() == 0) {
    times.first_token = now;
  } else {
    times.longest_token_gap = std::max(times.longest_token_gap, now - times.last_token);
  }
  times.last_token = now;
  event->times = times;
  // Before the token counts: min_tokens tokens have to stand before one that ends the choice.
  const bool may_stop = sequence->num_output_tokens() >= request.stop.min_tokens;
  sequence->tokens_.push_back(token);
  event->tokens.push_back(token);
  ++counters_.generation_tokens;
  policy_->OnToken(*sequence);
  if (may_stop && Contains(request.eos_ids, token)) {
    FinishSequence(sequence, FinishReason::kStop, event);
  } else if (may_stop && Contains(request.stop.stop_token_ids, token)) {
    event->stop_token = token;
    FinishSequence(sequence, FinishReason::kStop, event);
  } else if (sequence->num_tokens() >= request.max_num_tokens) {
    FinishSequence(sequence, FinishReason::kLength, event);
  }
}

// The first choice has computed the prompt. The others share its blocks, and run the prompt's last token
// themselves to sample from it. One for which there is no place beside those that run waits without blocks,
// and finds the prompt in the cache.
void Scheduler::ForkChoices(Sequence* first) {
  const Group& group = GroupOf(*first);
  int num_seats = CountSeats();
  for (const auto& choice : group.choices) {
    if (choice->state_ != SequenceState::kParked) continue;
    choice->tokens_.assign(first->tokens_.begin(), first->tokens_.end());
    choice->num_cached_tokens_ = first->num_cached_tokens_;
    choice->has_run_ = true;
    // The prompt was computed for this choice, too; who was preempted meanwhile was the first.
    choice->times_ = first->times_;
    choice->times_.num_preemptions = 0;
    choice->times_.marks.clear();
    const bool has_place =
        num_seats < config_.max_num_seqs && !config_.ablations.reserve_max_model_len;  // a reservation of its own
    std::vector<Sequence*>& list = has_place ? running_ : resuming_;
    choice->state_ = has_place ? SequenceState::kRunning : SequenceState::kWaiting;
    if (has_place) {
      ++num_seats;
      choice->num_computed_tokens_ = first->num_tokens() - 1;
      choice->blocks_ = kv_.Fork(first->blocks_, choice->num_computed_tokens_);
    }
    ReserveToTheEnd(choice.get());
    Insert(choice.get(), &list);
  }
}

EngineEvent Scheduler::MakeEvent(const Sequence& sequence) const {
  EngineEvent event;
  event.request = sequence.request().id;
  event.choice = sequence.choice();
  event.num_cached_tokens = sequence.num_cached_tokens();
  return event;
}

// The sequence leaves its list in EraseFinished().
void Scheduler::FinishSequence(Sequence* sequence, FinishReason reason, EngineEvent* event) {
  event->finish_reason = reason;
  event->times = sequence->times_;
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) {
    policy_->OnFinish(*sequence);
    kv_.Finish(sequence->tokens().first(static_cast<std::size_t>(sequence->num_computed_tokens_)), &sequence->blocks_);
  } else {
    kv_.Release(&sequence->blocks_);
  }
  sequence->blocks_.saved.Clear();
  sequence->state_ = SequenceState::kFinished;
  Group& group = GroupOf(*sequence);
  --num_unfinished_sequences_;
  if (--group.num_unfinished == 0) finished_groups_.push_back(group.request.id);
}

void Scheduler::EndGroup(Group* group, FinishReason reason, const std::string& error,
                         std::vector<EngineEvent>* events) {
  if (group->beams) return EndBeams(group, std::nullopt, reason, error, events);
  for (const auto& choice : group->choices) {
    if (choice->state_ != SequenceState::kFinished) EndChoice(choice.get(), reason, error, events);
  }
}

void Scheduler::EndChoice(Sequence* sequence, FinishReason reason, const std::string& error,
                          std::vector<EngineEvent>* events) {
  EngineEvent event = MakeEvent(*sequence);
  event.error = error;
  FinishSequence(sequence, reason, &event);
  events->push_back(std::move(event));
}

void Scheduler::EraseFinished() {
  const auto is_finished = [](const Sequence* sequence) { return sequence->state_ == SequenceState::kFinished; };
  for (const Sequence* sequence : waiting_) {
    if (is_finished(sequence)) num_queued_tokens_ -= sequence->num_prompt_tokens();
  }
  for (std::vector<Sequence*>* list : {&waiting_, &resuming_, &running_}) std::erase_if(*list, is_finished);
  for (const RequestId id : finished_groups_) groups_.erase(id);
  finished_groups_.clear();
}

void Scheduler::Fail(const BatchPlan& plan, const Error& error, std::vector<EngineEvent>* events) {
  CHECK(has_plan_);
  has_plan_ = false;
  // Nobody knows how far the copies of the step came.
  for (Sequence* const sequence : swapped_out_) sequence->blocks_.saved.Clear();
  for (const ScheduledSequence& scheduled : plan.sequences) {
    scheduled.sequence->plan_index_ = -1;
    EndGroup(&GroupOf(*scheduled.sequence), FinishReason::kError, error.message, events);
  }
  EraseFinished();
}

}  // namespace quire::sched
