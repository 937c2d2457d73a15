// A runner without a model: it takes the time that a step would take, in simulated time, and says tokens that are as
// different from each other as those of different texts.
#pragma once

#include <span>

#include "base/counter_rng.h"
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
      if (const int count = sequence.request().num_beam_candidates; count > 0) {
        Propose(sequence.request().id.value(), plan.sequences[i].tokens, count, &result->sequences[i].candidates);
        continue;
      }
      const std::uint64_t text = sequence.request().id.value() * 1009 + static_cast<std::uint64_t>(sequence.choice());
      result->sequences[i].tokens.push_back(TokenAt(text, static_cast<int>(plan.sequences[i].tokens.size())));
    }
    const std::chrono::duration<double> seconds(cost_->Seconds(WorkOf(plan)));
    timeline_->Advance(std::chrono::round<Duration>(seconds));
    return {};
  }

 private:
  TokenId TokenAt(std::uint64_t text, int position) const {
    const std::uint64_t place = text * 31337 + static_cast<std::uint64_t>(position);
    return TokenId(static_cast<std::int32_t>(place % vocab_size_));
  }
  // What may follow is a function of a beam's text, as with a model: sometimes one token is much likelier than the others.
  void Propose(std::uint64_t request, std::span<const TokenId> tokens, int count,
               std::vector<TokenLogprob>* candidates) const {
    const auto size = static_cast<int>(tokens.size());
    const auto last = static_cast<std::uint64_t>(tokens.back().value());
    const double step = 4 * UniformDouble(request, last, static_cast<std::uint32_t>(size));
    const TokenId first = TokenAt(request * 1009 + last * 7919, size);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t token =
          (static_cast<std::uint64_t>(first.value()) + static_cast<std::uint64_t>(i)) % vocab_size_;
      candidates->push_back({TokenId(static_cast<std::int32_t>(token)), static_cast<float>(-step * (i + 1))});
    }
  }

  const StepCost* const cost_;
  const std::uint64_t vocab_size_;
  SimulatedTimeline* const timeline_;
};

}  // namespace quire::bench
