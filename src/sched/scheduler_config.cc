#include "sched/scheduler_config.h"

#include <cstdint>
#include <utility>

#include "api/request.h"
#include "base/parse_name.h"

namespace quire::sched {
namespace {

Result<> AtLeast(const char* name, int value, int least) {
  if (value >= least) return {};
  return FailParam(name, "{} is {}; it must be at least {}", name, value, least);
}

// What each of them leaves no room for.
Result<> CheckAblations(const SchedulerConfig& config) {
  if (config.ablations != Ablations() &&
      (config.policy == PolicyKind::kPriority || config.policy == PolicyKind::kSlo)) {
    return FailParam("policy", "the policy {} takes time and memory from running requests, which ablations rule out",
                     PolicyName(config.policy));
  }
  if (config.ablations.whole_prompts) {
    if (config.max_chunk_tokens != 0) {
      return FailParam("max_chunk_tokens", "max_chunk_tokens is {}; without chunks it must be 0",
                       config.max_chunk_tokens);
    }
    const std::int64_t least = std::int64_t{config.max_model_len} + config.max_num_seqs;
    if (config.max_num_batched_tokens < least) {
      return FailParam("max_num_batched_tokens",
                       "max_num_batched_tokens is {}; without chunks it must be at least max_model_len + max_num_seqs, "
                       "{}",
                       config.max_num_batched_tokens, least);
    }
  }
  if (config.ablations.reserve_max_model_len) {
    if (config.enable_prefix_caching) {
      return FailParam("enable_prefix_caching", "memory that each sequence reserves for itself has no prefix cache");
    }
    if (std::int64_t{config.num_blocks} * config.block_size < config.max_model_len) {
      return FailParam("num_blocks", "{} blocks of {} tokens are less than one reservation of {} tokens",
                       config.num_blocks, config.block_size, config.max_model_len);
    }
  }
  return {};
}

}  // namespace

std::string_view PolicyName(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kFcfs:
      return "fcfs";
    case PolicyKind::kLpm:
      return "lpm";
    case PolicyKind::kDfsWeight:
      return "dfs-weight";
    case PolicyKind::kRandom:
      return "random";
    case PolicyKind::kPriority:
      return "priority";
    case PolicyKind::kSjf:
      return "sjf";
    case PolicyKind::kSlo:
      return "slo";
  }
  return "";
}

Result<PolicyKind> ParsePolicy(std::string_view name) {
  return ParseName<PolicyKind>("scheduling policy", name, kPolicyKinds, PolicyName);
}

std::string_view PreemptionModeName(PreemptionMode mode) {
  switch (mode) {
    case PreemptionMode::kAuto:
      return "auto";
    case PreemptionMode::kRecompute:
      return "recompute";
    case PreemptionMode::kSwap:
      return "swap";
  }
  return "";
}

Result<PreemptionMode> ParsePreemptionMode(std::string_view name) {
  constexpr PreemptionMode kModes[] = {PreemptionMode::kAuto, PreemptionMode::kRecompute, PreemptionMode::kSwap};
  return ParseName<PreemptionMode>("preemption mode", name, kModes, PreemptionModeName);
}

Result<> SchedulerConfig::Validate() const {
  QUIRE_TRY_VOID(AtLeast("max_num_batched_tokens", max_num_batched_tokens, 1));
  QUIRE_TRY_VOID(AtLeast("max_num_seqs", max_num_seqs, 1));
  QUIRE_TRY_VOID(AtLeast("max_model_len", max_model_len, 2));
  QUIRE_TRY_VOID(AtLeast("num_blocks", num_blocks, 1));
  QUIRE_TRY_VOID(AtLeast("block_size", block_size, 1));
  QUIRE_TRY_VOID(AtLeast("vocab_size", vocab_size, 1));
  QUIRE_TRY_VOID(AtLeast("max_chunk_tokens", max_chunk_tokens, 0));
  QUIRE_TRY_VOID(AtLeast("num_swap_blocks", num_swap_blocks, 0));
  QUIRE_TRY_VOID(AtLeast("num_landing_blocks", num_landing_blocks, 0));
  QUIRE_TRY_VOID(AtLeast("max_num_queued_requests", max_num_queued_requests, 1));
  QUIRE_TRY_VOID(AtLeast("max_num_queued_tokens", max_num_queued_tokens, 1));
  QUIRE_TRY_VOID(AtLeast("queue_timeout_ms", queue_timeout_ms, 0));
  QUIRE_TRY_VOID(AtLeast("max_num_choices", max_num_choices, 1));
  QUIRE_TRY_VOID(AtLeast("max_beam_width", max_beam_width, 0));
  QUIRE_TRY_VOID(AtLeast("max_overtakes", max_overtakes, 0));
  QUIRE_TRY_VOID(AtLeast("max_lookups_per_step", max_lookups_per_step, 1));
  QUIRE_TRY_VOID(AtLeast("max_held_back_steps", max_held_back_steps, 0));
  QUIRE_TRY_VOID(AtLeast("min_prefix_wait_tokens", min_prefix_wait_tokens, 1));
  QUIRE_TRY_VOID(AtLeast("untargeted_ttft_ms", untargeted_ttft_ms, 1));
  QUIRE_TRY_VOID(AtLeast("min_prefill_tokens", min_prefill_tokens, 1));
  QUIRE_TRY_VOID(ValidatePolicy());
  // Positions and slots are counted in 32 bits.
  if (std::int64_t{num_blocks} * block_size > INT32_MAX) {
    return FailParam("num_blocks", "num_blocks × block_size is {} × {} tokens; at most {} are possible", num_blocks,
                     block_size, INT32_MAX);
  }
  if (std::int64_t{num_blocks} + num_swap_blocks + num_landing_blocks > INT32_MAX) {
    return FailParam("num_swap_blocks",
                     "num_blocks, num_swap_blocks and num_landing_blocks are {}, {} and {}; at most {} "
                     "are possible together",
                     num_blocks, num_swap_blocks, num_landing_blocks, INT32_MAX);
  }
  if (max_model_len > INT32_MAX / 2) {
    return FailParam("max_model_len", "max_model_len is {}; at most {} is possible", max_model_len, INT32_MAX / 2);
  }
  return CheckAblations(*this);
}

Result<> SchedulerConfig::ValidatePolicy() const {
  if (!(kv_retained_fraction >= 0 && kv_retained_fraction <= 1)) {
    return FailParam("kv_retained_fraction", "kv_retained_fraction is {}; it must lie between 0 and 1",
                     kv_retained_fraction);
  }
  for (const auto& [name, value] :
       {std::pair{"default_ttft_ms", default_ttft_ms}, {"default_tpot_ms", default_tpot_ms}}) {
    if (!(value >= 0 && value <= kServiceMsMax)) {
      return FailParam(name, "{} is {}; it must be from 0 to {}", name, value, kServiceMsMax);
    }
    if (value > 0 && policy != PolicyKind::kSlo) {
      return FailParam(name, "{} is for the policy slo; this one is {}", name, PolicyName(policy));
    }
  }
  if (shed_unmeetable && policy != PolicyKind::kSlo) {
    return FailParam("shed_unmeetable", "shed_unmeetable is for the policy slo; this one is {}", PolicyName(policy));
  }
  if (enable_fairness && (policy == PolicyKind::kSlo || policy == PolicyKind::kPriority)) {
    return FailParam("enable_fairness", "the policy {} orders all requests together; fairness between keys cannot",
                     PolicyName(policy));
  }
  for (const auto& [name, value] :
       {std::pair{"input_token_weight", input_token_weight}, {"output_token_weight", output_token_weight}}) {
    if (!(value >= 1e-3 && value <= 1e3))
      return FailParam(name, "{} is {}; it must be from 0.001 to 1000", name, value);
  }
  return {};
}

}  // namespace quire::sched
