#include "engine/engine.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/check.h"

namespace quire::engine {

Result<> ValidateAsyncScheduling(int async_scheduling, sched::PolicyKind policy) {
  if (async_scheduling < 0 || async_scheduling > 2) {
    return FailParam("async_scheduling", "async_scheduling must be 0, 1 or 2, got {}", async_scheduling);
  }
  if (async_scheduling > 0 && policy == sched::PolicyKind::kSlo) {
    return FailParam("async_scheduling",
                     "async_scheduling {} does not go with the slo policy, which sizes a step by how long the streams "
                     "have waited when the last one is over",
                     async_scheduling);
  }
  return {};
}

Result<> EngineConfig::Validate() const {
  QUIRE_TRY_VOID(scheduler.Validate());
  QUIRE_TRY_VOID(ValidateAsyncScheduling(async_scheduling, scheduler.policy));
  for (const TokenId id : eos_token_ids) {
    if (id.value() < 0 || id.value() >= scheduler.vocab_size) {
      return FailParam("eos_token_ids", "end-of-sequence id {} is not one of the vocabulary's {} tokens", id,
                       scheduler.vocab_size);
    }
  }
  return {};
}

Engine::Engine(const EngineConfig& config, Runner* runner, const Clock* clock, KvTiers* tiers, TraceLane* lane,
               std::unique_ptr<StepExecutor> executor)
    : runner_(runner),
      clock_(clock),
      tiers_(tiers),
      lane_(lane),
      async_scheduling_(config.async_scheduling),
      scheduler_(config.scheduler, config.eos_token_ids, config.text_stops),
      executor_(std::move(executor)) {
  if (async_scheduling_ > 0 && executor_ == nullptr) executor_ = std::make_unique<StepThread>(runner_, clock_);
  if (tiers_ != nullptr) {
    CHECK(config.scheduler.enable_prefix_caching);
    scheduler_.KeyBlocks(config.content_identity);
    arrivals_ = std::make_unique<Arrivals>(config.content_identity, tiers_, &scheduler_, runner_, clock_);
  }
  meter_.MeasureCopies(config.scheduler.num_blocks, config.scheduler.num_swap_blocks, runner, *clock);
}

Result<> Engine::Add(GenerateRequest request, TimePoint queued, std::shared_ptr<PrefixFetch> fetch) {
  if (!arrivals_) return scheduler_.Add(std::move(request), queued);
  return arrivals_->Add(std::move(request), queued, std::move(fetch));
}

Result<> Engine::Add(GenerateRequest request, TimePoint queued) {
  std::shared_ptr<PrefixFetch> fetch = LookUp(request);
  return Add(std::move(request), queued, std::move(fetch));
}

bool Engine::can_step() const {
  return scheduler_.has_unfinished() || in_flight_ != nullptr || (arrivals_ && arrivals_->CanAdvance()) ||
         (tiers_ != nullptr && scheduler_.kv().has_unsaved() && tiers_->HasRoom());
}

void Engine::SaveBlocks() {
  while (tiers_ != nullptr && tiers_->HasRoom()) {
    const std::optional<kv::KeyedBlock> next = scheduler_.NextUnsaved();
    if (!next) return;
    CHECK(tiers_->Store(next->key, runner_->BlockBytes(next->block)));
  }
}

void Engine::SaveRemaining(Duration timeout) {
  if (tiers_ == nullptr) return;
  const SteadyClock wall;
  const TimePoint deadline = wall.Now() + timeout;
  while (scheduler_.kv().has_unsaved() && wall.Now() < deadline) {
    SaveBlocks();
    tiers_->WaitIdle(deadline - wall.Now());
  }
}

void Engine::ReadStats(EngineStats* stats) const {
  scheduler_.ReadStats(stats);
  stats->num_requests_waiting += num_arriving();
  stats->num_queued_tokens += num_arriving_tokens();
  if (tiers_ != nullptr) tiers_->ReadStats(stats);
}

void Engine::Abort(RequestId id, std::optional<int> choice, std::vector<EngineEvent>* events) {
  const std::size_t num_before = events->size();
  if (arrivals_) arrivals_->Release(id, events);
  scheduler_.Abort(id, choice, events);
  StampFinished(num_before, clock_->Now(), events);
}

void Engine::AbortAll(std::vector<EngineEvent>* events) {
  const std::size_t num_before = events->size();
  if (arrivals_) arrivals_->ReleaseAll(events);
  Land(events);
  scheduler_.AbortAll(events);
  StampFinished(num_before, clock_->Now(), events);
}

void Engine::StampFinished(std::size_t first, TimePoint now, std::vector<EngineEvent>* events) {
  for (EngineEvent& event : std::span(*events).subspan(first)) {
    if (event.finish_reason != FinishReason::kNone) event.times.finished = now;
  }
}

// What a choice that has finished spent its time with.
void Engine::TraceLives(std::span<const EngineEvent> events) {
  if (lane_ == nullptr || !lane_->is_on()) return;
  for (const EngineEvent& event : events) {
    if (event.finish_reason == FinishReason::kNone) continue;
    const RequestTimes& times = event.times;
    const auto add = [&](TraceLabel label, TimePoint begin, TimePoint end) {
      if (begin == TimePoint{} || end < begin) return;
      lane_->Add({.begin = begin,
                  .duration = end - begin,
                  .label = label,
                  .values = {static_cast<std::int32_t>(event.request.value()), event.choice, event.num_cached_tokens}});
    };
    add(TraceLabel::kQueued, times.queued, times.first_scheduled);
    add(TraceLabel::kPrefill, times.first_scheduled, times.first_token);
    add(TraceLabel::kDecode, times.first_token, times.last_token);
  }
}

Result<> Engine::Step(std::vector<EngineEvent>* events) {
  const std::size_t num_before = events->size();
  TraceSpan span(lane_, TraceLabel::kStep);
  const auto [flight, ran] = executor_ == nullptr ? StepNow(events) : StepAhead(events);
  if (flight == nullptr) SaveBlocks();  // there was time for it
  if (flight != nullptr) {
    span.SetValue(0, flight->plan.num_tokens);
    span.SetValue(1, std::ssize(flight->plan.sequences));
  }
  StampFinished(num_before, clock_->Now(), events);
  TraceLives(std::span(*events).subspan(num_before));
  return ran;
}

Engine::Stepped Engine::StepNow(std::vector<EngineEvent>* events) {
  Flight* const flight = &flights_.front();
  if (!Plan(flight, events)) return {};
  Result<> ran;
  {
    const TraceSpan span(lane_, TraceLabel::kRun);
    ran = RunTimed(flight->plan, runner_, *clock_, &flight->result);
  }
  Commit(flight, ran, events);
  return {flight, std::move(ran)};
}

// While a step is computed the next one is planned, as if it were over; then the two change places.
Engine::Stepped Engine::StepAhead(std::vector<EngineEvent>* events) {
  if (in_flight_ == nullptr) {
    Flight* const first = &flights_.front();
    if (!Plan(first, events)) return {};
    Launch(first);
  }
  Flight* const current = in_flight_;
  Flight* const next = current == &flights_.front() ? &flights_.back() : &flights_.front();
  const bool has_next = Plan(next, events);
  Result<> ran = Wait();
  if (has_next && ran.has_value() && async_scheduling_ == 2) {
    sched::Scheduler::FillIn(&current->plan, current->result);
    Launch(next);
    Commit(current, ran, events);
  } else {
    Commit(current, ran, events);
    if (has_next) Launch(next);
  }
  return {current, std::move(ran)};
}

bool Engine::Plan(Flight* flight, std::vector<EngineEvent>* events) {
  const TraceSpan span(lane_, TraceLabel::kPlan);
  if (arrivals_) arrivals_->Advance(events);
  const TimePoint now = clock_->Now();
  scheduler_.Shed(now, events);
  scheduler_.Plan(now, &flight->plan);
  if (flight->plan.empty()) return false;
  flight->result.sequences.resize(flight->plan.sequences.size());
  for (sched::SequenceResult& found : flight->result.sequences) {
    found.tokens.clear();
    found.logprobs.clear();
    found.prompt_logprobs.clear();
    found.candidates.clear();
    found.alternatives.clear();
  }
  if (lane_ != nullptr && lane_->is_on()) {
    const auto samples = std::ranges::count_if(flight->plan.sequences, &sched::ScheduledSequence::samples);
    lane_->Count(TraceLabel::kTokens, {flight->plan.num_tokens, static_cast<std::int32_t>(samples), 0});
  }
  return true;
}

void Engine::Launch(Flight* flight) {
  if (!scheduler_.Launch(&flight->plan)) return;
  flight->result.sequences.resize(flight->plan.sequences.size());  // some may have ended since it was planned
  in_flight_ = flight;
  executor_->Launch(&flight->plan, &flight->result);
}

Result<> Engine::Wait() {
  const TraceSpan span(lane_, TraceLabel::kRun);
  in_flight_ = nullptr;
  return executor_->Wait();
}

void Engine::Commit(Flight* flight, const Result<>& ran, std::vector<EngineEvent>* events) {
  const TraceSpan span(lane_, TraceLabel::kCommit);
  if (!ran.has_value()) return scheduler_.Fail(&flight->plan, ran.error(), events);
  meter_.ObserveStep(flight->plan.num_tokens, flight->result.ended - flight->result.began);
  scheduler_.SetPreemptionCosts(meter_.costs());
  scheduler_.Commit(&flight->plan, &flight->result, flight->result.ended, events);
  SaveBlocks();  // before a later step puts something else into them
}

// A step that is in flight comes to its end, and no other begins.
void Engine::Land(std::vector<EngineEvent>* events) {
  if (in_flight_ == nullptr) return;
  Flight* const flight = in_flight_;
  const Result<> ran = Wait();
  Commit(flight, ran, events);
}

}  // namespace quire::engine
