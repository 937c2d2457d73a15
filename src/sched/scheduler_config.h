// What bounds a scheduler.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace quire::sched {

enum class PolicyKind : std::uint8_t {
  kFcfs,  // first come, first served
  kLpm,   // longest cached prefix first
};

// What becomes of the keys and values of a sequence that is preempted.
enum class PreemptionMode : std::uint8_t {
  kAuto,       // whatever costs less by what was measured, for each victim
  kRecompute,  // they are computed again
  kSwap,       // they wait in the swap area, while it has room
};

std::string_view PreemptionModeName(PreemptionMode mode);
// "auto", "recompute" or "swap".
Result<PreemptionMode> ParsePreemptionMode(std::string_view name);

std::string_view PolicyName(PolicyKind kind);
// "fcfs" or "lpm".
Result<PolicyKind> ParsePolicy(std::string_view name);

struct SchedulerConfig {
  int max_num_batched_tokens = 2048;  // token budget of one step, ≥ 1
  int max_num_seqs = 256;             // choices that run at a time, ≥ 1
  int max_model_len = 0;              // prompt and output together, tokens, ≥ 2
  int num_blocks = 0;                 // of the KV pool, ≥ 1
  int block_size = 16;                // tokens, ≥ 1
  int vocab_size = 0;                 // token ids are below it, ≥ 1
  PolicyKind policy = PolicyKind::kLpm;
  bool enable_prefix_caching = true;
  // Most tokens of one sequence in one step, so that a long prompt leaves room for others; 0: no limit but
  // the budget.
  int max_chunk_tokens = 0;
  // Blocks behind those of the pool, where preempted sequences may leave their keys and values, ≥ 0.
  int num_swap_blocks = 0;
  // Blocks behind those, which are filled from lower tiers before their request is added, ≥ 0.
  int num_landing_blocks = 0;
  PreemptionMode preemption_mode = PreemptionMode::kAuto;
  // Requests that may wait for their first step; one more is refused with kUnavailable.
  int max_num_queued_requests = 1024;
  int max_num_choices = 128;  // `n` of one request, ≥ 1
  int max_beam_width = 0;     // 0: max_num_seqs, and never more than max_num_choices. A wider search takes all seats
  // LPM: this many younger requests may go first before a waiting request goes before all others, ≥ 0.
  int max_overtakes = 64;
  // LPM: how many of the oldest waiting requests are looked up in the cache per step; the others keep their
  // order, ≥ 1.
  int max_lookups_per_step = 64;
  // LPM: a request is held back for at most this many steps while another one computes the prefix that it
  // needs, ≥ 0.
  int max_prefix_wait_steps = 256;
  // LPM: … and only when that spares it at least this many tokens, ≥ 1.
  int min_prefix_wait_tokens = 32;

  // kInvalidArgument names the field, its value and the limit.
  Result<> Validate() const;
};

}  // namespace quire::sched
