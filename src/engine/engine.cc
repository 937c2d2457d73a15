#include "engine/engine.h"

#include <utility>

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

Engine::Engine(const EngineConfig& config, Runner* runner, const Clock* clock)
    : runner_(runner), clock_(clock), scheduler_(config.scheduler, config.eos_token_ids) {
  meter_.MeasureCopies(config.scheduler.num_blocks, config.scheduler.num_swap_blocks, runner, *clock);
}

Result<> Engine::Add(GenerateRequest request, TimePoint queued) {
  return scheduler_.Add(std::move(request), queued);
}

Result<> Engine::Step(std::vector<EngineEvent>* events) {
  scheduler_.Plan(clock_->Now(), &plan_);
  if (plan_.empty()) return {};
  result_.sequences.resize(plan_.sequences.size());
  for (sched::SequenceResult& found : result_.sequences) {
    found.tokens.clear();
    found.logprobs.clear();
    found.prompt_logprobs.clear();
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
  return {};
}

}  // namespace quire::engine
