// The part of Scheduler that knows beams: which sequence computes which beam, and what the choices are told.
//
//   group.choices    [0] [1] [2] [3]     sequences, as many as the search is wide; only [0] is in the scheduler's lists
//   [0]->lanes_      [2] [0] [1]         of the live beams, best first; a sequence in none is parked and holds nothing
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {

Result<> Scheduler::AddBeams(std::span<const TokenId> prompt, Group* group) {
  Request& request = group->request;
  std::unique_ptr<TextStop> text;
  if (!request.stop.stop_strings.empty()) {
    if (text_stops_ == nullptr) {
      return std::unexpected(
          Error{ErrorCode::kUnsupported, "this engine has no tokenizer, which stop strings of beams need", "stop"});
    }
    QUIRE_TRY_VOID(text_stops_->Prepare());
    text = text_stops_->Make(prompt, request.stop);
  }
  request.num_seats = std::min(request.sampling.beam->width, config_.max_num_seqs);
  request.num_beam_candidates =
      BeamSearch::NumCandidates(*request.sampling.beam, request.stop, request.masked_ids.size(), config_.vocab_size);
  const auto num_choices = static_cast<std::size_t>(request.sampling.n);
  group->beams = std::make_unique<Beams>(
      Beams{.search = BeamSearch(request.sampling, request.stop, request.eos_ids,
                                 request.max_num_tokens - request.num_prompt_tokens, std::move(text)),
            .has_ended = std::vector<bool>(num_choices, false),
            .num_told = std::vector<int>(num_choices, 0)});
  return {};
}

// All live beams are equally long; those that are parked will fork from the first one.
int Scheduler::BlocksToAdmit(const Sequence& sequence) const {
  const int needed = kv_.BlocksFor(TokensToReserve(sequence.num_tokens()));
  const int num_others = static_cast<int>(sequence.lanes_.size()) - 1;
  return needed + num_others * (needed - sequence.fork_position_ / kv_.block_size());
}

// The beams have lost their memory. What they have proposed goes too: their last tokens must be run again in any case.
void Scheduler::ParkBeams(Sequence* first) {
  BeamSearch& search = GroupOf(*first).beams->search;
  search.ForgetCandidates();
  first->fork_position_ = first->num_prompt_tokens() + search.num_common_tokens();
  for (Sequence* const lane : first->lanes_) lane->state_ = SequenceState::kParked;
}

void Scheduler::ForkBeams(Sequence* first) {
  if (first->num_computed_tokens_ < first->fork_position_) return;
  for (Sequence* const lane : first->lanes_) {
    if (lane->state_ != SequenceState::kParked) continue;
    lane->blocks_ = kv_.Fork(first->blocks_, first->fork_position_);
    lane->num_computed_tokens_ = first->fork_position_;
    lane->state_ = SequenceState::kRunning;
  }
}

void Scheduler::CommitBeam(Sequence* sequence, SequenceResult* found, TimePoint now, std::vector<EngineEvent>* events) {
  Group& group = GroupOf(*sequence);
  Sequence* const first = group.choices.front().get();
  BeamSearch& search = group.beams->search;
  const auto lane = std::ranges::find(first->lanes_, sequence);
  CHECK(lane != first->lanes_.end());
  search.SetCandidates(static_cast<int>(lane - first->lanes_.begin()), &found->candidates, &found->alternatives);
  if (!search.is_ready()) return;

  for (const Sequence* const each : first->lanes_) policy_->OnToken(*each);
  search.Advance();
  if (first->num_output_tokens() == 0) first->times_.first_token = now;
  first->times_.last_token = now;
  if (search.is_done()) {
    policy_->OnFinish(*first);
    ReportResult(&group, events);
    return ReleaseBeams(&group, /*caches=*/true);
  }
  MoveBeams(&group);
  ReportSettled(&group, events);
}

// The first child of a beam goes on in its parent's sequence, further ones fork from that, into sequences that are free.
void Scheduler::MoveBeams(Group* group) {
  Sequence* const first = group->choices.front().get();
  const BeamSearch& search = group->beams->search;
  std::vector<Sequence*>& lanes = first->lanes_;
  std::swap(old_lanes_, lanes);
  lanes.assign(static_cast<std::size_t>(search.num_live()), nullptr);
  for (Sequence* const lane : old_lanes_) lane->state_ = SequenceState::kParked;
  const auto parent_of = [&](std::size_t beam) {
    return old_lanes_[static_cast<std::size_t>(search.parent(static_cast<int>(beam)))];
  };
  for (std::size_t beam = 0; beam < lanes.size(); ++beam) {
    Sequence* const parent = parent_of(beam);
    if (parent->state_ == SequenceState::kRunning) continue;
    parent->state_ = SequenceState::kRunning;
    lanes[beam] = parent;
  }
  for (Sequence* const lane : old_lanes_) {
    if (lane->state_ == SequenceState::kRunning) continue;
    kv_.Release(&lane->blocks_);
    lane->tokens_.clear();
    lane->num_computed_tokens_ = 0;
  }
  auto free = group->choices.begin();
  for (std::size_t beam = 0; beam < lanes.size(); ++beam) {
    if (lanes[beam] != nullptr) continue;
    while ((*free)->state_ != SequenceState::kParked) ++free;
    Sequence* const fork = lanes[beam] = free->get();
    const Sequence* const parent = parent_of(beam);
    fork->tokens_.assign(parent->tokens_.begin(), parent->tokens_.end());
    fork->num_computed_tokens_ = parent->num_computed_tokens_;
    fork->blocks_ = kv_.Fork(parent->blocks_, parent->num_computed_tokens_);
    fork->state_ = SequenceState::kRunning;
  }
  // There is always a beam in the first sequence.
  if (first->state_ != SequenceState::kRunning) {
    Sequence* const last = std::exchange(lanes.back(), first);
    std::swap(first->tokens_, last->tokens_);
    std::swap(first->blocks_, last->blocks_);
    std::swap(first->num_computed_tokens_, last->num_computed_tokens_);
    std::swap(first->state_, last->state_);
  }
  for (int beam = 0; beam < search.num_live(); ++beam) {
    lanes[static_cast<std::size_t>(beam)]->tokens_.push_back(search.live(beam).tokens.back());
  }
}

namespace {

// Appends the tokens of a hypothesis from `begin` to `end`.
void Tell(const Hypothesis& hypothesis, int begin, int end, EngineEvent* event) {
  event->tokens.assign(hypothesis.tokens.begin() + begin, hypothesis.tokens.begin() + end);
  if (hypothesis.logprobs.empty()) return;
  for (int i = begin; i < end; ++i) event->logprobs.push_back(*hypothesis.logprobs[static_cast<std::size_t>(i)]);
}

}  // namespace

void Scheduler::ReportSettled(Group* group, std::vector<EngineEvent>* events) {
  Sequence* const first = group->choices.front().get();
  Beams& beams = *group->beams;
  const int num_settled = beams.search.num_settled_tokens();
  // There will be so many hypotheses at least. A tiny vocabulary may not have one for each choice.
  const int num_sure = beams.search.num_live() + static_cast<int>(beams.search.finished().size());
  const bool tells_prompt = first->wants_prompt_logprobs() && !std::exchange(first->prompt_logprobs_reported_, true);
  for (int choice = 0; choice < std::min(group->request.sampling.n, num_sure); ++choice) {
    const auto index = static_cast<std::size_t>(choice);
    if (beams.has_ended[index]) continue;
    const int begin = std::exchange(beams.num_told[index], num_settled);
    if (begin == num_settled && !(choice == 0 && tells_prompt)) continue;
    EngineEvent event = MakeEvent(*first);
    event.choice = choice;
    Tell(beams.search.live(0), begin, num_settled, &event);
    if (choice == 0 && tells_prompt) event.prompt_logprobs = std::exchange(first->prompt_logprobs_, {});
    counters_.generation_tokens += event.tokens.size();
    events->push_back(std::move(event));
  }
}

void Scheduler::ReportResult(Group* group, std::vector<EngineEvent>* events) {
  Sequence* const first = group->choices.front().get();
  const Beams& beams = *group->beams;
  const auto finished = beams.search.finished();
  for (int choice = 0; choice < group->request.sampling.n; ++choice) {
    const auto index = static_cast<std::size_t>(choice);
    if (beams.has_ended[index]) continue;
    EngineEvent event = MakeEvent(*first);
    // Only when the vocabulary has not as many continuations is there nothing to say.
    event.finish_reason = FinishReason::kStop;
    if (index < finished.size()) {
      const Hypothesis& hypothesis = finished[index];
      Tell(hypothesis, beams.num_told[index], static_cast<int>(hypothesis.tokens.size()), &event);
      event.finish_reason = hypothesis.finish_reason;
      event.stop_token = hypothesis.stop_token;
      event.ended_by_text = hypothesis.ended_by_text;
    }
    if (choice == 0 && first->wants_prompt_logprobs() && !first->prompt_logprobs_reported_) {
      event.prompt_logprobs = std::exchange(first->prompt_logprobs_, {});
    }
    counters_.generation_tokens += event.tokens.size();
    EndBeamChoice(group, choice, std::move(event), events);
  }
}

void Scheduler::EndBeamChoice(Group* group, int choice, EngineEvent event, std::vector<EngineEvent>* events) {
  event.choice = choice;
  event.times = group->choices.front()->times_;
  events->push_back(std::move(event));
  group->beams->has_ended[static_cast<std::size_t>(choice)] = true;
  --group->num_unfinished;
  --num_unfinished_sequences_;
}

void Scheduler::EndBeams(Group* group, std::optional<int> choice, FinishReason reason, const std::string& error,
                         std::vector<EngineEvent>* events) {
  if (group->num_unfinished == 0) return;  // ended by another of its sequences
  for (int i = 0; i < group->request.sampling.n; ++i) {
    if (choice.value_or(i) != i || group->beams->has_ended[static_cast<std::size_t>(i)]) continue;
    EngineEvent event = MakeEvent(*group->choices.front());
    event.finish_reason = reason;
    event.error = error;
    EndBeamChoice(group, i, std::move(event), events);
  }
  if (group->num_unfinished == 0) ReleaseBeams(group, /*caches=*/false);
}

void Scheduler::ReleaseBeams(Group* group, bool caches) {
  for (const auto& sequence : group->choices) {
    LeavePlan(sequence.get());
    if (caches && sequence->state_ == SequenceState::kRunning) {
      const auto computed = static_cast<std::size_t>(sequence->num_computed_tokens_);
      kv_.Finish(sequence->tokens().first(computed), &sequence->blocks_);
    } else {
      kv_.Release(&sequence->blocks_);
    }
    sequence->blocks_.saved.Clear();
    sequence->state_ = SequenceState::kFinished;
  }
  finished_groups_.push_back(group->request.id);
}

void Scheduler::CheckBeams(const Group& group) const {
  const Sequence* const first = group.choices.front().get();
  const BeamSearch& search = group.beams->search;
  CHECK(static_cast<int>(first->lanes_.size()) == search.num_live());
  CHECK(std::ranges::count(first->lanes_, first) == 1);
  bool can_run = false;
  for (int beam = 0; beam < search.num_live(); ++beam) {
    const Sequence* const lane = first->lanes_[static_cast<std::size_t>(beam)];
    CHECK(std::ranges::equal(lane->output(), search.live(beam).tokens));
    CHECK((lane->num_computed_tokens_ == lane->num_tokens()) == search.has_candidates(beam));
    CHECK(lane == first || lane->lanes_.empty());
    CHECK(lane->state_ == first->state_ || lane->state_ == SequenceState::kParked);
    can_run = can_run || !search.has_candidates(beam);
  }
  CHECK(can_run && first->state_ != SequenceState::kParked);
  for (const auto& sequence : group.choices) {
    const bool is_live = std::ranges::find(first->lanes_, sequence.get()) != first->lanes_.end();
    CHECK(is_live || sequence->state_ == SequenceState::kParked);
  }
}

}  // namespace quire::sched
