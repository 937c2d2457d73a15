#include "wire/limits.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace quire::wire {
namespace {

// NaN is in no range.
Result<> CheckRange(const char* field, double value, double min, double max) {
  if (value >= min && value <= max) return {};
  return FailParam(field, "{} is {}; it must be from {} to {}", field, value, min, max);
}

Result<> CheckIds(const char* field, std::span<const TokenId> ids, int vocab_size) {
  for (const TokenId id : ids) {
    if (id.value() < 0 || id.value() >= vocab_size) {
      return FailParam(field, "{} holds token id {}; the model's ids are 0 to {}", field, id, vocab_size - 1);
    }
  }
  return {};
}

Result<> CheckCount(const char* field, std::size_t count, std::size_t max) {
  if (count <= max) return {};
  return FailParam(field, "{} has {} entries; at most {} are allowed", field, count, max);
}

Result<> CheckSampling(const SamplingParams& sampling, int vocab_size) {
  constexpr double kLargest = 1e30;  // finite as a float too
  QUIRE_TRY_VOID(CheckRange("temperature", sampling.temperature, 0, kLargest));
  QUIRE_TRY_VOID(CheckRange("top_k", sampling.top_k, -1, INT32_MAX));
  QUIRE_TRY_VOID(CheckRange("top_p", sampling.top_p, 0, 1));
  QUIRE_TRY_VOID(CheckRange("min_p", sampling.min_p, 0, 1));
  QUIRE_TRY_VOID(CheckRange("repetition_penalty", sampling.repetition_penalty, 1e-30, kLargest));
  QUIRE_TRY_VOID(CheckRange("presence_penalty", sampling.presence_penalty, -2, 2));
  QUIRE_TRY_VOID(CheckRange("frequency_penalty", sampling.frequency_penalty, -2, 2));
  QUIRE_TRY_VOID(CheckCount("logit_bias", sampling.logit_bias.size(), static_cast<std::size_t>(vocab_size)));
  for (const auto& [id, bias] : sampling.logit_bias) {
    QUIRE_TRY_VOID(CheckIds("logit_bias", std::span(&id, 1), vocab_size));
    QUIRE_TRY_VOID(CheckRange("logit_bias", bias, -100, 100));
  }
  QUIRE_TRY_VOID(CheckRange("n", sampling.n, 1, kNumChoicesMax));
  if (sampling.beam) {
    QUIRE_TRY_VOID(CheckRange("best_of", sampling.beam->width, 1, kNumChoicesMax));
    QUIRE_TRY_VOID(CheckRange("length_penalty", sampling.beam->length_penalty, -10, 10));
  }
  QUIRE_TRY_VOID(CheckRange("logprobs", sampling.logprobs.value_or(0), 0, vocab_size));
  return CheckRange("prompt_logprobs", sampling.prompt_logprobs.value_or(0), 0, vocab_size);
}

Result<> CheckTerms(const ServiceTerms& terms) {
  QUIRE_TRY_VOID(CheckRange("ttft_ms", terms.ttft_ms, 0, kServiceMsMax));
  QUIRE_TRY_VOID(CheckRange("tpot_ms", terms.tpot_ms, 0, kServiceMsMax));
  QUIRE_TRY_VOID(CheckRange("queue_timeout_ms", terms.queue_timeout_ms, 0, kServiceMsMax));
  QUIRE_TRY_VOID(CheckRange("tenant", terms.tenant, 0, kTenantsMax - 1));
  return CheckRange("route", terms.route, 0, kRoutesMax - 1);
}

}  // namespace

Result<> CheckRequest(const GenerateRequest& request, const EngineInfo& info) {
  if (request.prompt.empty()) return FailParam("prompt", "the prompt has no tokens");
  if (std::cmp_greater_equal(request.prompt.size(), info.max_model_len)) {
    return FailParam("prompt", "the prompt has {} tokens; at most {} fit into the model's context of {}",
                     request.prompt.size(), info.max_model_len - 1, info.max_model_len);
  }
  QUIRE_TRY_VOID(CheckIds("prompt", request.prompt, info.vocab_size));
  QUIRE_TRY_VOID(CheckSampling(request.sampling, info.vocab_size));
  QUIRE_TRY_VOID(CheckRange("max_tokens", request.stop.max_tokens, 0, INT32_MAX));
  QUIRE_TRY_VOID(CheckRange("min_tokens", request.stop.min_tokens, 0, INT32_MAX));
  QUIRE_TRY_VOID(
      CheckCount("stop_token_ids", request.stop.stop_token_ids.size(), static_cast<std::size_t>(info.vocab_size)));
  QUIRE_TRY_VOID(CheckIds("stop_token_ids", request.stop.stop_token_ids, info.vocab_size));
  QUIRE_TRY_VOID(CheckCount("stop", request.stop.stop_strings.size(), kStopStringsMax));
  for (const std::string& text : request.stop.stop_strings) {
    if (text.empty() || text.size() > kStopStringBytesMax) {
      return FailParam("stop", "stop has a text of {} bytes; 1 to {} are allowed", text.size(), kStopStringBytesMax);
    }
  }
  QUIRE_TRY_VOID(CheckTerms(request.terms));
  QUIRE_TRY_VOID(CheckRange("cache_retention_s", request.cache_retention_s, 0, kCacheRetentionSecondsMax));
  if (request.cache_salt.size() > kCacheSaltBytesMax) {
    return FailParam("cache_salt", "cache_salt has {} bytes; at most {} are allowed", request.cache_salt.size(),
                     kCacheSaltBytesMax);
  }
  return {};
}

}  // namespace quire::wire
