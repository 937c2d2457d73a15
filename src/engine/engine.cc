#include "engine/engine.h"

#include <algorithm>
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

Engine::Engine(const EngineConfig& config, Runner* runner, const Clock* clock, KvTiers* tiers)
    : runner_(runner),
      clock_(clock),
      tiers_(tiers),
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

void Engine::Abort(RequestId id, std::optional<int> choice, std::vector<EngineEvent>* events) {
  if (arrivals_) arrivals_->Release(id, events);
  scheduler_.Abort(id, choice, events);
}

void Engine::AbortAll(std::vector<EngineEvent>* events) {
  if (arrivals_) arrivals_->ReleaseAll(events);
  scheduler_.AbortAll(events);
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
  if (tiers_ != nullptr) tiers_->ReadStats(stats);
}

Result<> Engine::Step(std::vector<EngineEvent>* events) {
  if (arrivals_) arrivals_->Advance(events);
  scheduler_.Plan(clock_->Now(), &plan_);
  if (plan_.empty()) {
    SaveBlocks();
    return {};
  }
  result_.sequences.resize(plan_.sequences.size());
  for (sched::SequenceResult& found : result_.sequences) {
    found.tokens.clear();
    found.logprobs.clear();
    found.prompt_logprobs.clear();
    found.candidates.clear();
    found.alternatives.clear();
  }
  const TimePoint start = clock_->Now();
  if (Result<> ran = runner_->Run(plan_, &result_); !ran.has_value()) {
    scheduler_.Fail(plan_, ran.error(), events);
    return ran;
  }
  const TimePoint end = clock_->Now();
  meter_.ObserveStep(plan_.num_tokens, end - start);
  scheduler_.SetPreemptionCosts(meter_.costs());
  scheduler_.Commit(plan_, &result_, end, events);
  SaveBlocks();  // before a later step puts something else into them
  return {};
}

}  // namespace quire::engine
