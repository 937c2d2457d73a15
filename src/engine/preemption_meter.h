// What preemption by swap and by recompute costs on this machine: measured, not guessed.
#pragma once

#include "base/clock.h"
#include "engine/runner.h"
#include "sched/scheduler.h"

namespace quire::engine {

// One thread.
class PreemptionMeter {
 public:
  // Times copies of blocks of the pool to the swap area behind it. All are filled with zeros: none is in use yet.
  void MeasureCopies(int num_pool_blocks, int num_swap_blocks, Runner* runner, const Clock& clock);
  // Takes in a step. Steps of few tokens read all weights for them, and say nothing about what prompts cost.
  void ObserveStep(int num_tokens, Duration took);

  const sched::PreemptionCosts& costs() const { return costs_; }

 private:
  sched::PreemptionCosts costs_;
};

}  // namespace quire::engine
