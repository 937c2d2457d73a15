#include "sched/validate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace quire::sched {
namespace {

Result<> CheckId(const char* field, std::size_t index, TokenId id, int vocab_size) {
  if (id.value() >= 0 && id.value() < vocab_size) return {};
  return FailParam(field, "{}[{}] is {}; token ids of this model are 0 … {}", field, index, id, vocab_size - 1);
}

struct Range {
  const char* field;
  double value, least, most;
  bool least_excluded = false;
};

Result<> CheckRanges(const SamplingParams& sampling) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const Range ranges[] = {
      {"temperature", sampling.temperature, 0, kMost},
      {"top_k", static_cast<double>(sampling.top_k), 0, std::numeric_limits<int>::max()},
      {"top_p", sampling.top_p, 0, 1, true},
      {"min_p", sampling.min_p, 0, 1},
      {"repetition_penalty", sampling.repetition_penalty, 0, kMost, true},
      {"presence_penalty", sampling.presence_penalty, -2, 2},
      {"frequency_penalty", sampling.frequency_penalty, -2, 2},
  };
  for (const Range& range : ranges) {
    // Written so that NaN fails.
    const bool above = range.least_excluded ? range.value > range.least : range.value >= range.least;
    if (above && range.value <= range.most) continue;
    return FailParam(range.field, "{} is {}; it must be {} {}{}", range.field, range.value,
                     range.least_excluded ? "above" : "at least", range.least,
                     range.most == kMost ? std::string(" and finite") : fmt::format(" and at most {}", range.most));
  }
  return {};
}

// What clients call the width: best_of, or n when that is all they say.
const char* WidthField(const SamplingParams& sampling) {
  return sampling.beam->width > sampling.n ? "best_of" : "n";
}

// Beams are not drawn, so that nothing may ask for a draw.
Result<> CheckBeams(const SchedulerConfig& config, const SamplingParams& sampling) {
  const BeamParams& beam = *sampling.beam;
  if (config.ablations.reserve_max_model_len) {
    return FailParam(WidthField(sampling),
                     "the beam width is {}; beams share their blocks, which sequences that each reserve the longest "
                     "length for themselves do not",
                     beam.width);
  }
  if (beam.width < sampling.n) {
    return FailParam("best_of", "the beam width is {}; it must be at least n, {}", beam.width, sampling.n);
  }
  const int most =
      std::min(config.max_num_choices, config.max_beam_width > 0 ? config.max_beam_width : config.max_num_seqs);
  if (beam.width > most) {
    return FailParam(WidthField(sampling), "the beam width is {}; at most {} sequences of a request run at a time",
                     beam.width, most);
  }
  if (!(std::abs(beam.length_penalty) <= 10)) {
    return FailParam("length_penalty", "length_penalty is {}; it must be at least -10 and at most 10",
                     beam.length_penalty);
  }
  const struct {
    const char* field;
    double value, neutral;
  } fields[] = {
      {"temperature", sampling.temperature, 0},
      {"top_k", static_cast<double>(sampling.top_k), 0},
      {"top_p", sampling.top_p, 1},
      {"min_p", sampling.min_p, 0},
      {"repetition_penalty", sampling.repetition_penalty, 1},
      {"presence_penalty", sampling.presence_penalty, 0},
      {"frequency_penalty", sampling.frequency_penalty, 0},
  };
  for (const auto& [field, value, neutral] : fields) {
    if (value != neutral) return FailParam(field, "{} is {}; beam search needs {}", field, value, neutral);
  }
  return {};
}

Result<> CheckCounts(const SchedulerConfig& config, const GenerateRequest& request) {
  const SamplingParams& sampling = request.sampling;
  const StopCriteria& stop = request.stop;
  if (sampling.n < 1 || sampling.n > config.max_num_choices) {
    return FailParam("n", "n is {}; it must be at least 1 and at most {}", sampling.n, config.max_num_choices);
  }
  const auto check_top = [&](const char* field, const std::optional<int>& count) -> Result<> {
    if (!count || (*count >= 0 && *count <= config.vocab_size)) return {};
    return FailParam(field, "{} is {}; it must be at least 0 and at most {}", field, *count, config.vocab_size);
  };
  QUIRE_TRY_VOID(check_top("logprobs", sampling.logprobs));
  QUIRE_TRY_VOID(check_top("prompt_logprobs", sampling.prompt_logprobs));
  if (stop.max_tokens < 0) return FailParam("max_tokens", "max_tokens is {}; it must be at least 0", stop.max_tokens);
  if (stop.min_tokens < 0 || stop.min_tokens > stop.max_tokens) {
    return FailParam("min_tokens", "min_tokens is {}; it must be at least 0 and at most max_tokens, {}",
                     stop.min_tokens, stop.max_tokens);
  }
  if (sampling.beam) return CheckBeams(config, sampling);
  if (!stop.stop_strings.empty()) return FailParam("stop", "an engine looks for stop strings in beams only");
  return {};
}

// In an empty pool. The last token of the output is never run, so it needs no memory.
Result<> CheckMemory(const SchedulerConfig& config, const GenerateRequest& request) {
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t num_run = std::max(num_prompt, std::int64_t{MaxNumTokens(config, request)} - 1);
  const std::int64_t num_slots = std::int64_t{config.num_blocks} * config.block_size;
  if (num_run > num_slots) {
    return FailParam("max_tokens", "{} prompt tokens and max_tokens {} need memory for {} tokens; the KV pool has {}",
                     num_prompt, request.stop.max_tokens, num_run, num_slots);
  }
  if (!request.sampling.beam || request.stop.max_tokens == 0) return {};
  // Beams share the full blocks of the prompt at least.
  const std::int64_t num_shared = num_prompt / config.block_size;
  const std::int64_t num_own = (num_run + config.block_size - 1) / config.block_size - num_shared;
  const std::int64_t needed = num_shared + num_own * request.sampling.beam->width;
  if (needed <= config.num_blocks) return {};
  return FailParam(WidthField(request.sampling),
                   "{} beams of up to {} tokens behind a prompt of {} may need {} KV blocks of {} tokens; the pool has "
                   "{}: ask for fewer beams or a smaller max_tokens",
                   request.sampling.beam->width, MaxNumTokens(config, request) - num_prompt, num_prompt, needed,
                   config.block_size, config.num_blocks);
}

Result<> CheckIds(const SchedulerConfig& config, const GenerateRequest& request) {
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    QUIRE_TRY_VOID(CheckId("prompt", i, request.prompt[i], config.vocab_size));
  }
  for (std::size_t i = 0; i < request.stop.stop_token_ids.size(); ++i) {
    QUIRE_TRY_VOID(CheckId("stop_token_ids", i, request.stop.stop_token_ids[i], config.vocab_size));
  }
  for (std::size_t i = 0; i < request.sampling.logit_bias.size(); ++i) {
    const auto& [id, bias] = request.sampling.logit_bias[i];
    QUIRE_TRY_VOID(CheckId("logit_bias", i, id, config.vocab_size));
    if (!(bias >= -100 && bias <= 100)) {
      return FailParam("logit_bias", "logit_bias of token {} is {}; it must be at least -100 and at most 100", id,
                       bias);
    }
  }
  return {};
}

// Ranges, and what only one policy can honour.
Result<> CheckTerms(const SchedulerConfig& config, const ServiceTerms& terms) {
  const struct {
    const char* field;
    double value, least, most;
    std::optional<PolicyKind> policy;  // that it needs, unless it is 0
  } rows[] = {
      {"priority", static_cast<double>(terms.priority), std::numeric_limits<std::int32_t>::min(),
       std::numeric_limits<std::int32_t>::max(), PolicyKind::kPriority},
      {"ttft_ms", terms.ttft_ms, 0, kServiceMsMax, PolicyKind::kSlo},
      {"tpot_ms", terms.tpot_ms, 0, kServiceMsMax, PolicyKind::kSlo},
      {"queue_timeout_ms", static_cast<double>(terms.queue_timeout_ms), 0, kServiceMsMax, {}},
      {"tenant", static_cast<double>(terms.tenant), 0, kTenantsMax - 1, {}},
      {"route", static_cast<double>(terms.route), 0, kRoutesMax - 1, {}},
  };
  for (const auto& row : rows) {
    if (!(row.value >= row.least && row.value <= row.most)) {
      return FailParam(row.field, "{} is {}; it must be at least {} and at most {}", row.field, row.value, row.least,
                       row.most);
    }
    if (row.value == 0 || !row.policy || *row.policy == config.policy) continue;
    return FailParam(row.field, "{} needs the scheduling policy {}; this is {}", row.field, PolicyName(*row.policy),
                     PolicyName(config.policy));
  }
  return {};
}

}  // namespace

Result<> CheckQueueRoom(const SchedulerConfig& config, const GenerateRequest& request, int num_waiting,
                        std::int64_t num_waiting_tokens) {
  if (num_waiting >= config.max_num_queued_requests) {
    return Fail(ErrorCode::kUnavailable, "{} requests are waiting; at most {} may", num_waiting,
                config.max_num_queued_requests);
  }
  const auto size = static_cast<std::int64_t>(request.prompt.size());
  if (num_waiting > 0 && num_waiting_tokens + size > config.max_num_queued_tokens) {
    return Fail(ErrorCode::kUnavailable, "{} prompt tokens are waiting; with {} more they are over {}",
                num_waiting_tokens, size, config.max_num_queued_tokens);
  }
  return {};
}

int MaxNumTokens(const SchedulerConfig& config, const GenerateRequest& request) {
  const std::int64_t wanted = std::int64_t{request.stop.max_tokens} + static_cast<std::int64_t>(request.prompt.size());
  return static_cast<int>(std::min<std::int64_t>(wanted, config.max_model_len));
}

Result<> ValidateRequest(const SchedulerConfig& config, const GenerateRequest& request) {
  if (request.prompt.empty()) return FailParam("prompt", "the prompt is empty; it needs at least one token");
  if (request.prompt.size() >= static_cast<std::size_t>(config.max_model_len)) {
    return FailParam("prompt", "the prompt has {} tokens; at most {} fit in the model's context of {}",
                     request.prompt.size(), config.max_model_len - 1, config.max_model_len);
  }
  QUIRE_TRY_VOID(CheckCounts(config, request));
  QUIRE_TRY_VOID(CheckRanges(request.sampling));
  QUIRE_TRY_VOID(CheckIds(config, request));
  QUIRE_TRY_VOID(CheckTerms(config, request.terms));
  if (request.cache_retention_s < 0 || request.cache_retention_s > kCacheRetentionSecondsMax) {
    return FailParam("cache_retention_s", "cache_retention_s is {}; it must be at least 0 and at most {}",
                     request.cache_retention_s, kCacheRetentionSecondsMax);
  }
  return CheckMemory(config, request);
}

}  // namespace quire::sched
