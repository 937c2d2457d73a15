// What bounds a scheduler, and by which policy it decides.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "kv/eviction_policy.h"

namespace quire::sched {

// What each of them optimises, and at what price: docs/scheduling.md.
enum class PolicyKind : std::uint8_t {
  kFcfs,       // first come, first served
  kLpm,        // longest cached prefix first
  kDfsWeight,  // depth first along the cached prefixes, where most requests wait first
  kRandom,     // a new order in each step
  kPriority,   // the client's number, lower first; takes memory and time from running requests of higher numbers
  kSjf,        // shortest job first, by predicted length
  kSlo,        // earliest deadline first, under a step time that keeps the running streams' tempo
};
inline constexpr PolicyKind kPolicyKinds[] = {PolicyKind::kFcfs,   PolicyKind::kLpm,      PolicyKind::kDfsWeight,
                                              PolicyKind::kRandom, PolicyKind::kPriority, PolicyKind::kSjf,
                                              PolicyKind::kSlo};

// "fcfs", "lpm", "dfs-weight", "random", "priority", "sjf", "slo".
std::string_view PolicyName(PolicyKind kind);
Result<PolicyKind> ParsePolicy(std::string_view name);

// What becomes of the keys and values of a sequence that is preempted.
enum class PreemptionMode : std::uint8_t {
  kAuto,       // whatever costs less by what was measured, for each victim
  kRecompute,  // they are computed again
  kSwap,       // they wait in the swap area, while it has room
};

std::string_view PreemptionModeName(PreemptionMode mode);
// "auto", "recompute" or "swap".
Result<PreemptionMode> ParsePreemptionMode(std::string_view name);

// What a scheduler does without, so that an experiment can show what it is worth. Not choices for a server: no flag of
// an engine sets them, only `quire bench papers` and `quire simulate --ablation` do.
struct Ablations {
  // A batch is admitted when nothing runs any more, and closed when places, memory or the queue are exhausted.
  bool static_batching = false;
  // No chunks: a sequence runs all that it has to run in one step, or waits for a step with room for it.
  bool whole_prompts = false;
  // A sequence holds memory for max_model_len tokens as long as it runs, and shares none of it.
  bool reserve_max_model_len = false;

  friend bool operator==(const Ablations&, const Ablations&) = default;
};
struct AblationName {
  std::string_view name;
  bool Ablations::* field;
};
inline constexpr AblationName kAblationNames[] = {{"static-batching", &Ablations::static_batching},
                                                  {"whole-prompts", &Ablations::whole_prompts},
                                                  {"reserve-max-model-len", &Ablations::reserve_max_model_len}};

struct SchedulerConfig {
  int max_num_batched_tokens = 2048;  // token budget of one step, ≥ 1
  int max_num_seqs = 256;             // choices that run at a time, ≥ 1
  int max_model_len = 0;              // prompt and output together, tokens, ≥ 2
  int num_blocks = 0;                 // of the KV pool, ≥ 1
  int block_size = 16;                // tokens, ≥ 1
  int vocab_size = 0;                 // token ids are below it, ≥ 1
  PolicyKind policy = PolicyKind::kLpm;
  bool enable_prefix_caching = true;
  kv::EvictionPolicy eviction_policy = kv::EvictionPolicy::kLru;  // of cached prefixes
  double kv_retained_fraction = 0.5;  // of the pool's blocks that requests may have retained, [0, 1]
  // Most tokens of one sequence in one step, so that a long prompt leaves room for others; 0: no limit but
  // the budget.
  int max_chunk_tokens = 0;
  // Blocks behind those of the pool, where preempted sequences may leave their keys and values, ≥ 0.
  int num_swap_blocks = 0;
  // Blocks behind those, which are filled from lower tiers before their request is added, ≥ 0.
  int num_landing_blocks = 0;
  PreemptionMode preemption_mode = PreemptionMode::kAuto;
  // Requests that may wait for their first step, and the tokens of their prompts; one more is refused with
  // kUnavailable. A request that is alone may be longer.
  int max_num_queued_requests = 1024;
  int max_num_queued_tokens = 1 << 22;
  // A request that has not run after so long is shed, unless it says otherwise; 0: never.
  int queue_timeout_ms = 0;
  int max_num_choices = 128;  // `n` of one request, ≥ 1
  int max_beam_width = 0;     // 0: max_num_seqs, and never more than max_num_choices. A wider search takes all seats
  // LPM, DFS-weight, SJF, SLO: this many younger requests may go first before a waiting request goes before all
  // others, ≥ 0.
  int max_overtakes = 64;
  // LPM, DFS-weight: how many of the oldest waiting requests are looked up in the cache per step; the others keep
  // their order, ≥ 1.
  int max_lookups_per_step = 64;
  // LPM, DFS-weight: a request is held back for at most this many steps while another one computes the prefix that it
  // needs; SLO: while it would cost streams their tempo; ≥ 0.
  int max_held_back_steps = 256;
  // LPM, DFS-weight: … and only when that spares it at least this many tokens, ≥ 1.
  int min_prefix_wait_tokens = 32;
  // Fairness between tenants: whoever has had least goes first, and the policy orders the requests of each tenant. Not
  // with priority and SLO, whose order holds for all tenants together.
  bool enable_fairness = false;
  // What a token costs, for fairness and for SJF; > 0.
  double input_token_weight = 1;
  double output_token_weight = 2;
  // SLO: the targets of requests that name none; 0: none.
  double default_ttft_ms = 0;
  double default_tpot_ms = 0;
  // SLO: how urgent a request without a target for its first token is, ≥ 1.
  int untargeted_ttft_ms = 30'000;
  // SLO: prompt tokens of a step whatever the streams' tempo, so that prompts always get on, ≥ 1.
  int min_prefill_tokens = 16;
  // SLO: requests that cannot have their first token in time are shed.
  bool shed_unmeetable = false;
  std::uint64_t random_seed = 0;  // random: the order is a function of it and of the number of orders so far
  Ablations ablations;            // none

  // kInvalidArgument names the field, its value and the limit.
  Result<> Validate() const;
  // The part of it that needs no model: what the policy can and cannot do, and what may be retained.
  Result<> ValidatePolicy() const;
};

}  // namespace quire::sched
