// The seam between the step loop and what computes: a model, or a fake in tests.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "sched/batch_plan.h"

namespace quire::engine {

class Runner {
 public:
  virtual ~Runner() = default;

  // Carries a plan out: first plan.copies in order, then all sequences in one batch. `result` comes with one
  // entry per scheduled sequence, its vectors empty (their capacity is kept from step to step); the runner
  // fills in
  //   tokens           exactly one token below the vocabulary's size where `samples`, else none
  //   logprobs         one per token when sampling().logprobs is set
  //   candidates       with beams, instead of the two: see SequenceResult
  //   alternatives     likewise
  //   prompt_logprobs  where the slice asks for them: one per position p of the slice for which
  //                    p + 1 < num_prompt_tokens(), in order; `chosen` is the prompt's token p + 1
  // Called by one thread at a time: the engine's, or with async scheduling the one that computes. It reads of a sequence
  // what never changes, and its tokens through the plan. After an error the requests of the plan fail and the engine
  // lives on.
  virtual Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) = 0;

  // The keys and values of one block, or of one of the blocks behind the pool's that nothing computes on. Every block
  // has as many bytes. Empty for a runner that computes nothing. Called by the engine's thread, also while Run runs.
  virtual std::span<std::byte> BlockBytes(BlockId /*block*/) { return {}; }
};

}  // namespace quire::engine
