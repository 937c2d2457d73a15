#include "sched/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "kv/cache_namespace.h"
#include "sched/validate.h"

namespace quire::sched {
namespace {

Duration Milliseconds(double count) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(count));
}

kv::RadixCacheConfig CacheConfig(const SchedulerConfig& config) {
  return {.eviction_policy = config.eviction_policy,
          .max_retained_blocks = static_cast<int>(config.num_blocks * config.kv_retained_fraction)};
}

void ReadCacheStats(const kv::RadixCache& cache, EngineStats* stats) {
  const kv::CacheStats& cached = cache.stats();
  stats->prefix_cache_evicted_blocks = cached.num_evicted();
  stats->block_evictions = {.capacity = cached.evicted_for_capacity,
                            .expired = cached.evicted_after_retention,
                            .retained = cached.evicted_while_retained,
                            .reset = cached.evicted_by_reset};
  stats->num_blocks_retained = cache.num_retained_blocks();
  stats->block_lifetime = cached.lifetime;
  stats->block_idle_before_evict = cached.idle_before_evict;
  stats->block_reuse_gap = cached.reuse_gap;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, std::vector<TokenId> eos_token_ids, TextStopMaker* text_stops)
    : config_(config),
      eos_token_ids_(std::move(eos_token_ids)),
      text_stops_(text_stops),
      kv_(config.num_blocks, config.block_size, config.enable_prefix_caching, config.num_swap_blocks,
          config.num_landing_blocks, CacheConfig(config)),
      policy_(Policy::Create(config)) {
  CHECK(config.Validate().has_value());
  if (config.policy == PolicyKind::kSlo) pacer_.emplace(config);
  counters_.step_tokens_histogram.assign(std::size(kStepTokenBuckets) + 1, 0);
}

Scheduler::~Scheduler() = default;

Result<> Scheduler::Add(GenerateRequest request, TimePoint queued, kv::SavedBlocks saved) {
  CHECK(planned_ == nullptr);
  QUIRE_TRY_VOID(ValidateRequest(config_, request));
  if (groups_.contains(request.id)) {
    return FailParam("id", "a request with id {} is unfinished; ids must be unique", request.id);
  }
  QUIRE_TRY_VOID(CheckQueueRoom(config_, request, num_queued_requests(), num_queued_tokens_));
  auto group = std::make_unique<Group>();
  Request& kept = group->request;
  kept.id = request.id;
  kept.num_prompt_tokens = static_cast<int>(request.prompt.size());
  kept.max_num_tokens = MaxNumTokens(config_, request);
  kept.cache_namespace = kv::MakeCacheNamespace(request.cache_salt);
  kept.cache_retention = std::chrono::seconds(request.cache_retention_s);
  if (!request.stop.ignore_eos) kept.eos_ids = eos_token_ids_;
  kept.masked_ids = kept.eos_ids;
  kept.masked_ids.insert(kept.masked_ids.end(), request.stop.stop_token_ids.begin(), request.stop.stop_token_ids.end());
  kept.arrival = num_arrivals_++;
  kept.queued = queued;
  SetTerms(request.terms, &kept);
  kept.sampling = std::move(request.sampling);
  kept.stop = std::move(request.stop);

  int num_sequences = kept.sampling.n;
  if (kept.sampling.beam && kept.stop.max_tokens > 0) {
    QUIRE_TRY_VOID(AddBeams(request.prompt, group.get()));
    num_sequences = kept.sampling.beam->width;
  }
  group->num_unfinished = kept.sampling.n;
  num_unfinished_sequences_ += kept.sampling.n;
  for (int choice = 0; choice < num_sequences; ++choice) {
    group->choices.push_back(std::make_unique<Sequence>(&kept, choice, kv_.MakeEmpty()));
    group->choices.back()->state_ = SequenceState::kParked;
    if (choice > 0 && group->beams) group->choices.back()->lanes_.clear();
  }
  Sequence* const first = group->choices.front().get();
  first->tokens_ = std::move(request.prompt);
  first->blocks_.saved = std::move(saved);
  first->state_ = SequenceState::kWaiting;
  policy_->OnArrival(&kept, waiting_);
  waiting_.push_back(first);
  num_queued_tokens_ += kept.num_prompt_tokens;
  groups_.emplace(kept.id, std::move(group));
  return {};
}

void Scheduler::SetTerms(const ServiceTerms& terms, Request* request) const {
  request->terms = terms;
  const int timeout_ms = terms.queue_timeout_ms > 0 ? terms.queue_timeout_ms : config_.queue_timeout_ms;
  if (timeout_ms > 0) request->queue_until = request->queued + std::chrono::milliseconds(timeout_ms);
  const double ttft_ms = terms.ttft_ms > 0 ? terms.ttft_ms : config_.default_ttft_ms;
  request->has_deadline = ttft_ms > 0;
  request->deadline = request->queued + Milliseconds(ttft_ms > 0 ? ttft_ms : config_.untargeted_ttft_ms);
  request->tempo = Milliseconds(terms.tpot_ms > 0 ? terms.tpot_ms : config_.default_tpot_ms);
}

void Scheduler::Abort(RequestId id, std::optional<int> choice, std::vector<EngineEvent>* events) {
  CHECK(planned_ == nullptr);
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  if (found->second->beams) {
    EndBeams(found->second.get(), choice, FinishReason::kAbort, "", events);
    return EraseFinished();
  }
  const auto& choices = found->second->choices;
  for (const auto& sequence : choices) {
    if (choice.value_or(sequence->choice()) == sequence->choice()) sequence->is_aborted_ = true;
  }
  // The first choice computes the prompt for those that are parked: then it ends in CommitSequence().
  const bool first_is_needed = std::ranges::any_of(choices, [](const auto& sequence) {
    return sequence->state_ == SequenceState::kParked && !sequence->is_aborted_;
  });
  for (const auto& sequence : choices) {
    if (sequence->state_ == SequenceState::kFinished || !sequence->is_aborted_) continue;
    if (sequence->choice() == 0 && first_is_needed) continue;
    EndChoice(sequence.get(), FinishReason::kAbort, "", events);
  }
  EraseFinished();
}

void Scheduler::AbortAll(std::vector<EngineEvent>* events) {
  CHECK(planned_ == nullptr);
  for (const auto& [id, group] : groups_) EndGroup(group.get(), FinishReason::kAbort, "", events);
  EraseFinished();
}

Scheduler::Group& Scheduler::GroupOf(const Sequence& sequence) {
  return *groups_.at(sequence.request().id);
}

const Scheduler::Group& Scheduler::GroupOf(const Sequence& sequence) const {
  return *groups_.at(sequence.request().id);
}

void Scheduler::ReadStats(EngineStats* stats) const {
  *stats = counters_;
  for (const Sequence* sequence : running_) {
    stats->num_requests_running += sequence->request().num_beam_candidates > 0 ? GroupOf(*sequence).num_unfinished : 1;
  }
  stats->num_requests_waiting = num_unfinished_sequences_ - stats->num_requests_running;
  stats->num_queued_tokens = num_queued_tokens_;
  stats->num_blocks_total = kv_.num_blocks();
  stats->num_blocks_free = kv_.num_free_blocks();
  stats->num_blocks_cached = kv_.num_evictable_blocks();
  if (kv_.cache() != nullptr) ReadCacheStats(*kv_.cache(), stats);
  stats->kv_tier_backlog_lost = kv_.num_lost_unsaved();
  stats->num_swap_blocks_total = kv_.num_swap_blocks();
  stats->num_swap_blocks_used = kv_.num_used_swap_blocks();
}

void Scheduler::CheckIntegrity() const {
  std::vector<const kv::SequenceBlocks*> memory;
  std::size_t num_listed = 0;
  const auto check_list = [&](const std::vector<Sequence*>& list, SequenceState state) {
    // By age where they wait, by rank where they run.
    CHECK(std::ranges::is_sorted(list, [&](const Sequence* a, const Sequence* b) {
      return &list == &waiting_ ? Sequence::IsOlder(a, b) : policy_->IsServedBefore(*a, *b);
    }));
    for (const Sequence* sequence : list) {
      CHECK(sequence->state_ == state);
      CHECK(sequence->num_computed_tokens_ < sequence->num_tokens() || GroupOf(*sequence).beams);
      CHECK(groups_.contains(sequence->request().id));
      ++num_listed;
    }
  };
  check_list(waiting_, SequenceState::kWaiting);
  check_list(resuming_, SequenceState::kWaiting);
  check_list(running_, SequenceState::kRunning);
  CHECK(CountSeats() <= config_.max_num_seqs);
  CHECK(num_queued_requests() <= config_.max_num_queued_requests);
  std::int64_t num_queued_tokens = 0;
  for (const Sequence* sequence : waiting_) num_queued_tokens += sequence->num_prompt_tokens();
  CHECK(num_queued_tokens == num_queued_tokens_);

  std::size_t num_active = 0;
  int num_unfinished_sequences = 0;
  for (const auto& [id, group] : groups_) {
    int num_unfinished = 0;
    bool has_parked = false;
    for (const auto& sequence : group->choices) {
      const SequenceState state = sequence->state_;
      if (state != SequenceState::kFinished) ++num_unfinished;
      if (state == SequenceState::kParked) has_parked = true;
      const bool is_listed = !group->beams || sequence->choice() == 0;
      if (is_listed && (state == SequenceState::kWaiting || state == SequenceState::kRunning)) ++num_active;
      // Whoever does not run holds nothing.
      if (state != SequenceState::kRunning) {
        CHECK(sequence->blocks_.table.num_blocks() == 0 && !sequence->blocks_.lock);
        CHECK(state == SequenceState::kFinished || sequence->num_computed_tokens_ == 0);
      }
      memory.push_back(&sequence->blocks_);
    }
    if (group->beams) {
      CheckBeams(*group);
      num_unfinished = static_cast<int>(std::ranges::count(group->beams->has_ended, false));
    }
    CHECK(num_unfinished == group->num_unfinished && num_unfinished > 0);
    num_unfinished_sequences += num_unfinished;
    if (has_parked) CHECK(group->choices.front()->state_ != SequenceState::kFinished);
  }
  CHECK(num_listed == num_active);
  CHECK(num_unfinished_sequences == num_unfinished_sequences_);
  kv_.CheckIntegrity(memory);
}

// ---------------------------------------------------------------- plan

void Scheduler::Plan(TimePoint now, BatchPlan* plan) {
  CHECK(planned_ == nullptr);
  if (in_flight_ != nullptr && !in_flight_->is_advanced) AdvanceInFlight();
  kv_.SetTime(now);
  plan->copies.clear();
  plan->sequences.clear();
  plan->num_tokens = 0;
  plan->swapped_out.clear();
  plan->planned_at = now;
  plan->is_advanced = plan->is_filled_in = false;
  if (pacer_) pacer_->Begin(running_, now);
  Planning planning{.now = now, .plan = plan, .budget = config_.max_num_batched_tokens};
  ScheduleRunning(/*decodes=*/true, &planning);
  ScheduleRunning(/*decodes=*/false, &planning);
  ScheduleAdmissions(/*before=*/nullptr, &planning);
  for (ScheduledSequence& scheduled : plan->sequences) {
    scheduled.tokens = scheduled.sequence->tokens();
    scheduled.blocks = scheduled.sequence->blocks_.table.blocks();
  }
  // With anything unfinished there is always a sequence that can run: the oldest one, unless it just does.
  CHECK(!plan->sequences.empty() || groups_.empty() || in_flight_ != nullptr);
  planned_ = plan->empty() ? nullptr : plan;
}

// Steps that follow append to what this sequence has without allocating.
void Scheduler::ReserveToTheEnd(Sequence* sequence) {
  sequence->tokens_.reserve(static_cast<std::size_t>(sequence->request().max_num_tokens));
  sequence->blocks_.table.Reserve(kv_.BlocksFor(sequence->request().max_num_tokens));
}

int Scheduler::ChunkOf(const Sequence& sequence, int budget) const {
  const int gap = sequence.num_tokens() - sequence.num_computed_tokens();
  int chunk = std::min(gap, budget);
  if (config_.max_chunk_tokens > 0) chunk = std::min(chunk, config_.max_chunk_tokens);
  return pacer_ && gap > 1 ? pacer_->TokensFor(sequence.num_computed_tokens(), chunk) : chunk;
}

void Scheduler::ScheduleRunning(bool decodes, Planning* planning) {
  // Only sequences behind the current one are preempted, or it itself, so the index stays right.
  for (std::size_t i = 0; i < running_.size() && planning->budget > 0; ++i) {
    Sequence* const sequence = running_[i];
    const auto is_due = [decodes](const Sequence* lane) {
      const int gap = lane->num_tokens() - lane->num_computed_tokens();
      // A beam without a gap waits for the others; one that is parked, for the first to compute what they share; one
      // that is in the plan was admitted a moment ago.
      return gap > 0 && (gap == 1) == decodes && lane->state_ != SequenceState::kParked && lane->plan_index_ < 0 &&
             !lane->is_in_flight_;
    };
    if (std::ranges::none_of(sequence->lanes_, is_due)) continue;
    if (!decodes && policy_->overtakes()) {
      ScheduleAdmissions(/*before=*/sequence, planning);
      // Whoever came stands before it, and may have taken its place; then the first that is not planned is next.
      const auto place = std::ranges::find(running_, sequence);
      i = place == running_.end() ? std::size_t(-1) : static_cast<std::size_t>(place - running_.begin());
      if (place == running_.end()) continue;
    }
    for (Sequence* const lane : sequence->lanes_) {
      if (!is_due(lane) || planning->budget == 0) continue;
      const int num_tokens = ChunkOf(*lane, planning->budget);
      if (num_tokens == 0) continue;  // the step has no time left for it
      while (sequence->state_ == SequenceState::kRunning &&
             !kv_.Reserve(lane->num_computed_tokens_, num_tokens, &lane->blocks_, &planning->plan->copies)) {
        Preempt(running_.back(), planning);
      }
      if (sequence->state_ != SequenceState::kRunning) break;
      PutInPlan(lane, num_tokens, planning);
    }
  }
}

void Scheduler::PutInPlan(Sequence* sequence, int num_tokens, Planning* planning) {
  const int first = sequence->num_computed_tokens_;
  const bool closes_gap = first + num_tokens == sequence->num_tokens();
  const bool wants_logits = sequence->wants_prompt_logprobs() && !sequence->AllPromptLogprobsKnown();
  sequence->plan_index_ = static_cast<int>(planning->plan->sequences.size());
  planning->plan->sequences.push_back({.sequence = sequence,
                                       .first_position = first,
                                       .num_tokens = num_tokens,
                                       .tokens = {},  // this and the next when the plan is complete
                                       .blocks = {},
                                       .samples = closes_gap && sequence->wants_output(),
                                       .prompt_logprobs = wants_logits && first + 1 < sequence->num_prompt_tokens(),
                                       .num_losses = sequence->num_losses_});
  planning->plan->num_tokens += num_tokens;
  planning->budget -= num_tokens;
  if (!pacer_) return;
  pacer_->Add(first, num_tokens);
  const Request& request = sequence->request();
  if (closes_gap && sequence->num_output_tokens() == 0 && request.has_deadline) {
    pacer_->EndWithin(Seconds(request.deadline - planning->now));
  }
}

void Scheduler::TakeOutOfPlan(Sequence* sequence, BatchPlan* plan) {
  auto& scheduled = plan->sequences;
  const auto index = static_cast<std::size_t>(std::exchange(sequence->plan_index_, -1));
  plan->num_tokens -= scheduled[index].num_tokens;
  if (pacer_) pacer_->Remove(scheduled[index].first_position, scheduled[index].num_tokens);
  scheduled.erase(scheduled.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::size_t i = index; i < scheduled.size(); ++i) scheduled[i].sequence->plan_index_ = static_cast<int>(i);
}

void Scheduler::Preempt(Sequence* sequence, Planning* planning) {
  CHECK(running_.back() == sequence);
  running_.pop_back();
  // Of beams the first is swapped: the others fork from it, and compute what they do not share.
  const int num_tokens = std::min(sequence->num_computed_tokens_, sequence->num_tokens() - 1);
  if (num_tokens > 0 && IsSwapCheaper(*sequence) &&
      kv_.SwapOut(num_tokens, &sequence->blocks_, &planning->plan->copies)) {
    planning->plan->swapped_out.push_back(sequence);
    ++counters_.swap_preemptions;
    counters_.swapped_out_blocks += sequence->blocks_.saved.blocks.size();
  }
  for (Sequence* const lane : sequence->lanes_) {
    if (lane->plan_index_ >= 0) {
      planning->budget += planning->plan->sequences[static_cast<std::size_t>(lane->plan_index_)].num_tokens;
      TakeOutOfPlan(lane, planning->plan);
    }
    kv_.Release(&lane->blocks_);
    lane->num_computed_tokens_ = 0;
    lane->is_in_flight_ = false;
    ++lane->num_losses_;
  }
  if (sequence->request().num_beam_candidates > 0) ParkBeams(sequence);
  sequence->state_ = SequenceState::kWaiting;
  ++sequence->times_.num_preemptions;
  sequence->NoteChange(LifeChange::kPreempted, planning->now);
  ++counters_.preemptions;
  Insert(sequence, &resuming_);
  planning->preempted = true;
}

// Copying out and in again, against computing what would be lost. What others hold too stays where it is, but it is
// copied all the same: they may be gone by then.
bool Scheduler::IsSwapCheaper(const Sequence& sequence) const {
  const int num_tokens = sequence.num_computed_tokens_;
  if (num_tokens == 0) return false;
  switch (config_.preemption_mode) {
    case PreemptionMode::kRecompute:
      return false;
    case PreemptionMode::kSwap:
      return true;
    case PreemptionMode::kAuto:
      return 2 * kv_.BlocksFor(num_tokens) * preemption_costs_.block_copy_s <
             kv_.CountPrivateTokens(num_tokens, sequence.blocks_) * preemption_costs_.token_s;
  }
  return false;
}

// Blocks that an admission leaves alone: what the running sequences need to close their gaps, and one more
// for each that will go on after that, so that who is admitted is not preempted at once.
int Scheduler::CountSpareBlocks() const {
  if (config_.ablations.reserve_max_model_len) return 0;  // who runs has all it will need
  int count = 0;
  for (const Sequence* sequence : running_) {
    const int needed = kv_.BlocksFor(sequence->num_tokens());
    for (const Sequence* lane : sequence->lanes_) {
      const bool is_parked = lane->state_ == SequenceState::kParked;
      const int held = is_parked ? sequence->fork_position_ / kv_.block_size() : lane->blocks_.table.num_blocks();
      count += std::max(0, needed - held);
    }
    if (kv_.BlocksFor(sequence->request().max_num_tokens - 1) <= needed) continue;
    count += sequence->request().num_beam_candidates > 0 ? sequence->sampling().beam->width : 1;
  }
  return count;
}

int Scheduler::CountSeats() const {
  int count = 0;
  for (const Sequence* sequence : running_) count += sequence->request().num_seats;
  return count;
}

void Scheduler::Insert(Sequence* sequence, std::vector<Sequence*>* sequences) const {
  const auto by_rank = [this](const Sequence* a, const Sequence* b) { return policy_->IsServedBefore(*a, *b); };
  sequences->insert(std::ranges::upper_bound(*sequences, sequence, by_rank), sequence);
}

bool Scheduler::Admit(Sequence* sequence, Planning* planning) {
  const std::size_t num_cacheable = sequence->num_cacheable_tokens();
  const auto cacheable = sequence->tokens().first(num_cacheable);
  const std::string& cache_namespace = sequence->request().cache_namespace;
  if (config_.ablations.whole_prompts &&
      sequence->num_tokens() - kv_.Peek(cache_namespace, cacheable) > planning->budget) {
    planning->budget = 0;  // the rest of it is of no use; the next step has room
    return false;
  }
  const std::optional<int> cached = kv_.Attach(cache_namespace, cacheable, BlocksToAdmit(*sequence), CountSpareBlocks(),
                                               &sequence->blocks_, &planning->plan->copies);
  if (!cached) {
    CHECK(!running_.empty());  // an empty pool has room for every request that was accepted
    return false;
  }
  sequence->num_computed_tokens_ = *cached;
  sequence->state_ = SequenceState::kRunning;
  if (!std::exchange(sequence->has_run_, true)) {
    ReserveToTheEnd(sequence);
    sequence->times_.first_scheduled = planning->now;
    sequence->num_cached_tokens_ = std::min(*cached, sequence->num_prompt_tokens());
    counters_.prefix_cache_queries += num_cacheable;
    const int restored = sequence->blocks_.num_restored_tokens;
    counters_.prefix_cache_hits += static_cast<std::uint64_t>(*cached - restored);
    counters_.tier_hits += static_cast<std::uint64_t>(restored);
    policy_->OnAdmission(*sequence, *cached);
  } else {
    sequence->NoteChange(LifeChange::kScheduled, planning->now);
    counters_.swapped_in_blocks += static_cast<std::uint64_t>(kv_.BlocksFor(sequence->blocks_.num_restored_tokens));
  }
  sequence->times_.last_scheduled = planning->now;
  Insert(sequence, &running_);
  const int num_tokens = ChunkOf(*sequence, planning->budget);
  CHECK(kv_.Reserve(*cached, TokensToReserve(*cached + num_tokens) - *cached, &sequence->blocks_,
                    &planning->plan->copies));
  PutInPlan(sequence, num_tokens, planning);
  return true;
}

}  // namespace quire::sched
