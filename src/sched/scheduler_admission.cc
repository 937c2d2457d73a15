// The third part of Scheduler: who comes in, in whose place, and who has waited too long for it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {

void Scheduler::ScheduleAdmissions(const Sequence* before, Planning* planning) {
  if (!config_.ablations.static_batching) return AdmitCandidates(before, planning);
  is_batch_open_ |= running_.empty() && resuming_.empty();
  AdmitCandidates(before, planning);
  // The batch goes on to fill when nothing but the budget of this step was in the way.
  is_batch_open_ &= planning->budget <= 0 && !waiting_.empty() && CountSeats() < config_.max_num_seqs;
}

void Scheduler::AdmitCandidates(const Sequence* before, Planning* planning) {
  while (planning->budget > 0) {
    if (CountSeats() >= config_.max_num_seqs && !policy_->overtakes()) return;
    Sequence* const candidate = NextCandidate(planning);
    if (candidate == nullptr) return;
    if (before != nullptr && !policy_->MayOvertake(*candidate, *before)) return;
    // Whoever does not fit keeps those behind it waiting: otherwise the small would starve the large.
    if (!KeepsTempo(*candidate)) {
      if (before == nullptr) ++candidate->num_held_back_steps_;
      return;
    }
    if (!AdmitOrDisplace(candidate, planning)) return;
    LeaveQueue(candidate, planning);
  }
}

// Preempted sequences come first, unless a waiting one may overtake them. But who was preempted in this plan is not
// admitted again at once, and nobody else is then, except in the place of another; unless nothing else runs: a fork that
// is alone may lack the block for copying what it shares with the cache; with its blocks given back there is room.
Sequence* Scheduler::NextCandidate(Planning* planning) {
  const bool is_short = planning->preempted && !running_.empty();
  Sequence* const resuming = is_short || resuming_.empty() ? nullptr : resuming_.front();
  if (!policy_->overtakes() && (is_short || resuming != nullptr)) return resuming;
  if (config_.ablations.static_batching && !is_batch_open_) return nullptr;
  if (!planning->is_ordered) {
    planning->is_ordered = true;
    order_.clear();
    if (!waiting_.empty()) policy_->Order(waiting_, kv_, planning->now, &order_);
  }
  for (; planning->next < order_.size(); ++planning->next) {
    Sequence* const waiting = order_[planning->next];
    if (resuming != nullptr && !policy_->MayOvertake(*waiting, *resuming)) return resuming;
    if (is_short && !policy_->MayDisplace(*waiting, *running_.back())) return nullptr;
    if (!policy_->HoldBack(*waiting, running_, kv_)) return waiting;
    ++waiting->num_held_back_steps_;
  }
  return resuming;
}

// Whether the step has time for some of its tokens, and those after it for one more stream; but streams that never end,
// or cannot keep their tempo in any case, do not keep others out for ever.
bool Scheduler::KeepsTempo(const Sequence& candidate) const {
  if (!pacer_) return true;
  if (pacer_->TokensFor(candidate.num_tokens(), 1) == 0) return false;
  return candidate.num_held_back_steps() >= config_.max_held_back_steps || pacer_->HasRoomFor(candidate, running_);
}

// Admits the candidate, if need be in the place and in the memory of running sequences that it may displace.
bool Scheduler::AdmitOrDisplace(Sequence* candidate, Planning* planning) {
  const int num_seats = candidate->request().num_seats;
  const auto has_seats = [&] { return CountSeats() + num_seats <= config_.max_num_seqs; };
  if (has_seats() && Admit(candidate, planning)) return true;
  if (!CanDisplaceEnough(*candidate)) return false;
  while (!running_.empty() && policy_->MayDisplace(*candidate, *running_.back())) {
    Preempt(running_.back(), planning);
    if (has_seats() && Admit(candidate, planning)) return true;
  }
  return false;
}

// Whether the sequences that the candidate may displace hold what it needs; counted as if they shared nothing.
bool Scheduler::CanDisplaceEnough(const Sequence& candidate) const {
  int num_blocks = kv_.num_available_blocks();
  int num_seats = config_.max_num_seqs - CountSeats();
  bool displaces = false;
  for (auto last = running_.rbegin(); last != running_.rend(); ++last) {
    if (!policy_->MayDisplace(candidate, **last)) break;
    for (const Sequence* const lane : (*last)->lanes_) num_blocks += lane->blocks_.table.num_blocks();
    num_seats += (*last)->request().num_seats;
    displaces = true;
  }
  if (!displaces || num_seats < candidate.request().num_seats) return false;
  const int num_cached =
      kv_.Peek(candidate.request().cache_namespace, candidate.tokens().first(candidate.num_cacheable_tokens()));
  return BlocksToAdmit(candidate) - num_cached / kv_.block_size() <= num_blocks;
}

void Scheduler::LeaveQueue(Sequence* sequence, Planning* planning) {
  if (std::erase(resuming_, sequence) > 0) return;
  const auto place = std::ranges::find(waiting_, sequence);
  CHECK(place != waiting_.end() && order_[planning->next] == sequence);
  for (auto older = waiting_.begin(); older != place; ++older) ++(*older)->num_overtakes_;
  waiting_.erase(place);
  ++planning->next;
  num_queued_tokens_ -= sequence->num_prompt_tokens();
}

// ---------------------------------------------------------------- shed

void Scheduler::Shed(TimePoint now, std::vector<EngineEvent>* events) {
  CHECK(planned_ == nullptr);
  for (const Sequence* const sequence : waiting_) {
    const Request& request = sequence->request();
    if (request.queue_until > now) continue;
    ++counters_.queue_timeouts;
    ShedRequest(
        *sequence,
        fmt::format("the request did not get its turn within {:.0f} ms, the longest that it may wait; try again",
                    1e3 * Seconds(request.queue_until - request.queued)),
        1, events);
  }
  if (config_.shed_unmeetable && pacer_->costs().is_ready()) ShedUnmeetable(now, events);
  EraseFinished();
}

// Counts the prompt tokens that come before each waiting request, in the policy's order, and what they take. Who is shed
// teaches nothing, so a wrong estimate would last: after some of them an idle engine tries one.
void Scheduler::ShedUnmeetable(TimePoint now, std::vector<EngineEvent>* events) {
  constexpr int kShedBeforeProbe = 4;
  const bool is_idle = running_.empty() && resuming_.empty();
  prefilling_.clear();
  for (const Sequence* const sequence : running_) {
    if (sequence->num_tokens() - sequence->num_computed_tokens() > 1) prefilling_.push_back(sequence);
  }
  std::int64_t num_resuming = 0;
  for (const Sequence* const sequence : resuming_) num_resuming += sequence->num_tokens();
  policy_->Order(waiting_, kv_, now, &order_);
  std::int64_t num_ahead = 0;
  int num_looked_up = 0;
  for (const Sequence* const sequence : order_) {
    if (sequence->state_ == SequenceState::kFinished) continue;  // has waited too long already
    std::int64_t num_tokens = num_ahead + num_resuming;
    for (const Sequence* const other : prefilling_) {
      if (!policy_->MayOvertake(*sequence, *other)) num_tokens += other->num_tokens() - other->num_computed_tokens();
    }
    const double wait_s = pacer_->PrefillSeconds(num_tokens);
    const int own = CountTokensToCompute(*sequence, num_looked_up++ < config_.max_lookups_per_step);
    const double first_token_s = pacer_->PrefillSeconds(num_tokens + own);
    const Request& request = sequence->request();
    const bool is_late = request.has_deadline && first_token_s > Seconds(request.deadline - now);
    const bool is_probe = is_idle && num_ahead == 0 && num_shed_since_step_ >= kShedBeforeProbe;
    if (is_late && !is_probe) {
      ++counters_.requests_shed;
      ++num_shed_since_step_;
      ShedRequest(
          *sequence,
          fmt::format("the first token would come {:.0f} ms after the request, later than its ttft_ms of {:.0f}",
                      1e3 * (first_token_s + Seconds(now - request.queued)),
                      1e3 * Seconds(request.deadline - request.queued)),
          wait_s, events);
    } else {
      num_ahead += own;
    }
  }
}

int Scheduler::CountTokensToCompute(const Sequence& sequence, bool looks_up) const {
  if (!looks_up) return sequence.num_tokens();
  const auto cacheable = sequence.tokens().first(sequence.num_cacheable_tokens());
  return sequence.num_tokens() - kv_.Peek(sequence.request().cache_namespace, cacheable);
}

void Scheduler::ShedRequest(const Sequence& sequence, const std::string& why, double retry_after_s,
                            std::vector<EngineEvent>* events) {
  constexpr double kRetryMaxS = 600;
  const std::size_t first = events->size();
  EndGroup(&GroupOf(sequence), FinishReason::kShed, why, events);
  for (std::size_t i = first; i < events->size(); ++i) {
    (*events)[i].retry_after_s = static_cast<int>(std::ceil(std::clamp(retry_after_s, 1.0, kRetryMaxS)));
  }
}

}  // namespace quire::sched
