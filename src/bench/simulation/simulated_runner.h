// A runner without a model: it takes the time that a step would take, in simulated time, and says tokens that are as
// different from each other as those of different texts.
#pragma once

#include "bench/simulation/replay.h"
#include "bench/simulation/step_cost.h"
#include "engine/runner.h"
#include "sched/sequence.h"

namespace quire::bench {

class SimulatedRunner final : public engine::Runner {
 public:
  // What is pointed to outlives this.
  SimulatedRunner(const StepCost* cost, int vocab_size, SimulatedTimeline* timeline)
      : cost_(cost), vocab_size_(static_cast<std::uint64_t>(vocab_size)), timeline_(timeline) {}

  Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) override {
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      if (!plan.sequences[i].samples) continue;
      const sched::Sequence& sequence = *plan.sequences[i].sequence;
      const std::uint64_t text = sequence.request().id.value() * 1009 + static_cast<std::uint64_t>(sequence.choice());
      const std::uint64_t place = text * 31337 + static_cast<std::uint64_t>(sequence.num_tokens());
      result->sequences[i].tokens.emplace_back(static_cast<std::int32_t>(place % vocab_size_));
    }
    const std::chrono::duration<double> seconds(cost_->Seconds(WorkOf(plan)));
    timeline_->Advance(std::chrono::round<Duration>(seconds));
    return {};
  }

 private:
  const StepCost* const cost_;
  const std::uint64_t vocab_size_;
  SimulatedTimeline* const timeline_;
};

}  // namespace quire::bench
