#include "engine/engine.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/check.h"

namespace quire::engine {

Result<> EngineConfig::Validate() const {
  QUIRE_TRY_VOID(scheduler.Validate());
  for (const TokenId id : eos_token_ids) {
    if (id.value() < 0 || id.value() >= scheduler.vocab_size) {
      return FailParam("eos_token_ids", "end-of-sequence id {} is not one of the vocabulary's {} tokens", id,
                       scheduler.vocab_size);
    }
  }
  return {};
}

Engine::Engine(const EngineConfig& config, Runner* runner, const Clock* clock, KvTiers* tiers, TraceLane* lane)
    : runner_(runner),
      clock_(clock),
      tiers_(tiers),
      lane_(lane),
      scheduler_(config.scheduler, config.eos_token_ids, config.text_stops) {
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
  return scheduler_.has_unfinished() || (arrivals_ && arrivals_->CanAdvance()) ||
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
  {
    const TraceSpan plan_span(lane_, TraceLabel::kPlan);
    if (arrivals_) arrivals_->Advance(events);
    const TimePoint now = clock_->Now();
    scheduler_.Shed(now, events);
    scheduler_.Plan(now, &plan_);
  }
  if (plan_.empty()) {
    SaveBlocks();
    StampFinished(num_before, clock_->Now(), events);
    return {};
  }
  span.SetValue(0, plan_.num_tokens);
  span.SetValue(1, std::ssize(plan_.sequences));
  Result<> ran = Run();
  const TimePoint ended = clock_->Now();
  const TraceSpan commit_span(lane_, TraceLabel::kCommit);
  if (ran.has_value()) {
    meter_.ObserveStep(plan_.num_tokens, ended - result_.began);
    scheduler_.SetPreemptionCosts(meter_.costs());
    scheduler_.Commit(plan_, &result_, ended, events);
    SaveBlocks();  // before a later step puts something else into them
  } else {
    scheduler_.Fail(plan_, ran.error(), events);
  }
  StampFinished(num_before, ended, events);
  TraceLives(std::span(*events).subspan(num_before));
  return ran;
}

Result<> Engine::Run() {
  const TraceSpan span(lane_, TraceLabel::kRun);
  result_.sequences.resize(plan_.sequences.size());
  for (sched::SequenceResult& found : result_.sequences) {
    found.tokens.clear();
    found.logprobs.clear();
    found.prompt_logprobs.clear();
    found.candidates.clear();
    found.alternatives.clear();
  }
  if (lane_ != nullptr && lane_->is_on()) {
    const auto samples = std::ranges::count_if(plan_.sequences, &sched::ScheduledSequence::samples);
    lane_->Count(TraceLabel::kTokens, {plan_.num_tokens, static_cast<std::int32_t>(samples), 0});
  }
  result_.began = clock_->Now();
  return runner_->Run(plan_, &result_);
}

}  // namespace quire::engine
