// What one step runs: plain data, made by Scheduler::Plan, carried out by the engine, handed back to Commit. It says
// everything that a model runner needs, for one rank or many.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "api/events.h"
#include "api/sampling_params.h"
#include "base/clock.h"
#include "base/strong_id.h"
#include "kv/block_copy.h"

namespace quire::sched {

class Sequence;

struct ScheduledSequence {
  Sequence* sequence = nullptr;     // owned by the scheduler, alive until Commit returns
  std::int32_t first_position = 0;  // == num_computed_tokens before the step
  std::int32_t num_tokens = 0;      // tokens [first_position, first_position + num_tokens)
  // What the step reads: all tokens of the sequence before it, and its block table from position 0, long enough for them.
  std::span<const TokenId> tokens;
  std::span<const BlockId> blocks;
  bool samples = false;  // the step reaches the sequence's last token: sample the next one, or propose some
  // Positions of this slice whose logits are wanted for prompt_logprobs: [first_position, … num_tokens) when true.
  bool prompt_logprobs = false;
  std::int32_t num_losses = 0;  // Sequence::num_losses_ when it was planned

  std::int32_t end() const { return first_position + num_tokens; }
};

using BlockCopy = kv::BlockCopy;

struct BatchPlan {
  std::vector<BlockCopy> copies;  // before anything runs, in order
  std::vector<ScheduledSequence> sequences;
  std::int32_t num_tokens = 0;  // in all

  // Only for the scheduler.
  TimePoint planned_at{};
  std::vector<Sequence*> swapped_out;  // what they saved is written by the copies
  std::vector<BlockId> block_ids;      // Launch(): what `blocks` point to
  bool is_advanced = false;            // the next step was planned as if this one had run …
  bool is_filled_in = false;           // … and knows the tokens that it sampled

  // Of a plan whose sequences have all ended, the copies may be left.
  bool empty() const { return sequences.empty() && copies.empty(); }
};

// What the runner found, one entry per scheduled sequence, in the plan's order.
struct SequenceResult {
  // Empty when the sequence did not sample; several after a verified draft (later).
  std::vector<TokenId> tokens;
  std::vector<PositionLogprobs> logprobs;  // as many as tokens, when asked for
  // Instead of both, of a sequence that samples and computes a beam: Request::num_beam_candidates tokens that may come
  // next, or as many as are possible but at least one, best first; and the alternatives when logprobs are asked for.
  std::vector<TokenLogprob> candidates;
  std::vector<TokenLogprob> alternatives;
  std::vector<PositionLogprobs> prompt_logprobs;  // for positions first_position + 1 … : one per token of the slice
                                                  // whose successor is a prompt token
};

struct StepResult {
  TimePoint began{};  // when the plan came to what computes it
  TimePoint ended{};
  std::vector<SequenceResult> sequences;
};

}  // namespace quire::sched
