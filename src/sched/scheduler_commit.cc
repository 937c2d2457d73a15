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

void Scheduler::Commit(BatchPlan* plan, StepResult* result, TimePoint now, std::vector<EngineEvent>* events) {
  CHECK(result->sequences.size() == plan->sequences.size());
  Land(plan);
  kv_.SetTime(now);
  const auto ended_before = std::exchange(ended_in_flight_, {});  // this plan may name them; no later one does
  if (plan->is_advanced && !plan->is_filled_in) FillIn(plan, *result);
  if (pacer_) pacer_->Observe(*plan, now - std::max(plan->planned_at, committed_at_));
  committed_at_ = now;
  num_shed_since_step_ = 0;
  ++counters_.steps;
  counters_.step_tokens_sum += static_cast<std::uint64_t>(plan->num_tokens);
  const auto bucket = std::ranges::lower_bound(kStepTokenBuckets, plan->num_tokens) - std::begin(kStepTokenBuckets);
  ++counters_.step_tokens_histogram[static_cast<std::size_t>(bucket)];
  for (std::size_t i = 0; i < plan->sequences.size(); ++i) {
    Sequence* const sequence = plan->sequences[i].sequence;
    if (sequence->state_ == SequenceState::kFinished) continue;  // ended while the step ran
    sequence->NoteStep(result->began, now);
    CommitSequence(plan->sequences[i], plan->is_advanced, &result->sequences[i], now, events);
  }
  EraseFinished();
}

void Scheduler::CommitSequence(const ScheduledSequence& scheduled, bool is_advanced, SequenceResult* found,
                               TimePoint now, std::vector<EngineEvent>* events) {
  Sequence* const sequence = scheduled.sequence;
  const int end = scheduled.end();
  const bool is_beam = sequence->request().num_beam_candidates > 0;
  CHECK(found->tokens.size() == (scheduled.samples && !is_beam ? 1u : 0u));
  const bool has_memory = scheduled.num_losses == sequence->num_losses_;
  if (has_memory) {
    sequence->is_in_flight_ = false;
    if (is_beam || !is_advanced) {
      CHECK(scheduled.first_position == sequence->num_computed_tokens_);
      sequence->num_computed_tokens_ = end;
    }
    CHECK(sequence->num_computed_tokens_ == end);
    sequence->blocks_.saved.Clear();  // it has its copies
    kv_.Publish(sequence->tokens().first(static_cast<std::size_t>(end)), &sequence->blocks_);
    const Request& request = sequence->request();
    const bool ends_prompt = scheduled.first_position < request.num_prompt_tokens && end >= request.num_prompt_tokens;
    if (ends_prompt && request.cache_retention > Duration()) {
      kv_.Retain(request.num_prompt_tokens, now + request.cache_retention, sequence->blocks_);
    }
  }
  if (sequence->wants_prompt_logprobs() && !sequence->AllPromptLogprobsKnown()) {
    if (scheduled.prompt_logprobs) {
      const int last = std::min(end, sequence->num_prompt_tokens() - 1);
      CHECK(static_cast<int>(found->prompt_logprobs.size()) == last - scheduled.first_position);
    }
    sequence->StorePromptLogprobs(scheduled.first_position, &found->prompt_logprobs);
  }
  if (is_beam && !has_memory) return;  // has lost what it might go on with
  if (is_beam && sequence->choice() == 0) ForkBeams(sequence);
  if (end < std::ssize(scheduled.tokens)) return;

  // The gap is closed. The first time that happens, the prompt is complete.
  if (sequence->choice() == 0 && end == sequence->num_prompt_tokens()) {
    counters_.prompt_tokens += static_cast<std::uint64_t>(sequence->num_prompt_tokens());
    if (sequence->wants_output() && !is_beam) {
      ForkChoices(sequence, has_memory);
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
  TakeToken(sequence, end, found->tokens.front(), now, &event);
  events->push_back(std::move(event));
}

// `position` is the token's; a step that was launched has taken the place for it, if another token follows.
void Scheduler::TakeToken(Sequence* sequence, int position, TokenId token, TimePoint now, EngineEvent* event) {
  CHECK(token.value() >= 0 && token.value() < config_.vocab_size);
  const Request& request = sequence->request();
  const int num_output = position - sequence->num_prompt_tokens();
  RequestTimes& times = sequence->times_;
  if (num_output == 0) {
    times.first_token = now;
  } else {
    times.longest_token_gap = std::max(times.longest_token_gap, now - times.last_token);
  }
  times.last_token = now;
  event->times = times;
  // Before the token counts: min_tokens tokens have to stand before one that ends the choice.
  const bool may_stop = num_output >= request.stop.min_tokens;
  if (sequence->num_tokens() == position) sequence->tokens_.push_back(token);
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
void Scheduler::ForkChoices(Sequence* first, bool first_has_memory) {
  const Group& group = GroupOf(*first);
  int num_seats = CountSeats();
  // When the next step has been planned already, the first writes behind the prompt in the block where that ends.
  const int last = first->num_prompt_tokens() - 1;
  const int num_shared = first->num_tokens() == last + 1 ? last : last - last % kv_.block_size();
  for (const auto& choice : group.choices) {
    if (choice->state_ != SequenceState::kParked) continue;
    choice->tokens_.assign(first->prompt().begin(), first->prompt().end());
    choice->num_cached_tokens_ = first->num_cached_tokens_;
    choice->has_run_ = true;
    // The prompt was computed for this choice, too; who was preempted meanwhile was the first.
    choice->times_ = first->times_;
    choice->times_.num_preemptions = 0;
    choice->times_.marks.clear();
    const bool has_place = first_has_memory && num_seats < config_.max_num_seqs &&
                           !config_.ablations.reserve_max_model_len;  // which would need another reservation
    std::vector<Sequence*>& list = has_place ? running_ : resuming_;
    choice->state_ = has_place ? SequenceState::kRunning : SequenceState::kWaiting;
    if (has_place) {
      ++num_seats;
      choice->num_computed_tokens_ = num_shared;
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
  LeavePlan(sequence);
  const bool is_complete = reason == FinishReason::kStop || reason == FinishReason::kLength;
  if (is_complete) policy_->OnFinish(*sequence);
  // What is still saved has not been copied to its place.
  if (is_complete && sequence->blocks_.saved.empty()) {
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
  for (const RequestId id : finished_groups_) {
    if (in_flight_ != nullptr) ended_in_flight_.push_back(std::move(groups_.at(id)));
    groups_.erase(id);
  }
  finished_groups_.clear();
}

void Scheduler::Fail(BatchPlan* plan, const Error& error, std::vector<EngineEvent>* events) {
  Land(plan);
  const auto ended_before = std::exchange(ended_in_flight_, {});
  // Nobody knows how far the copies of the step came.
  for (Sequence* const sequence : plan->swapped_out) {
    sequence->blocks_.saved.Clear();
    if (sequence->plan_index_ >= 0) EndGroup(&GroupOf(*sequence), FinishReason::kError, error.message, events);
  }
  for (const ScheduledSequence& scheduled : plan->sequences) {
    if (scheduled.sequence->state_ == SequenceState::kFinished) continue;
    EndGroup(&GroupOf(*scheduled.sequence), FinishReason::kError, error.message, events);
  }
  EraseFinished();
}

}  // namespace quire::sched
