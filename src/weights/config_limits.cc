#include "weights/config_limits.h"

#include <cmath>

namespace quire::weights {
namespace {

Result<> CheckRange(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high,
                    std::string_view name) {
  if (value >= low && value <= high) return {};
  return Fail(ErrorCode::kCorrupt, "{}: {} is {}; it must lie between {} and {}", name, field, value, low, high);
}

Result<> CheckReal(std::string_view field, double value, double low, double high, std::string_view name) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return Fail(ErrorCode::kCorrupt, "{}: {} is {}; it must lie between {} and {}", name, field, value, low, high);
}

Result<> CheckRope(const RopeConfig& rope, int rotary_dim, std::string_view name) {
  QUIRE_TRY_VOID(CheckReal("rope_theta", rope.theta, 1.0, kRopeThetaMax, name));
  QUIRE_TRY_VOID(CheckReal("the RoPE factor", rope.factor, 1e-6, kRopeFactorMax, name));
  if (!rope.frequency_divisors.empty()) {
    const auto wanted = static_cast<std::size_t>(rotary_dim / 2);
    if (rope.frequency_divisors.size() != wanted) {
      return Fail(ErrorCode::kCorrupt, "{}: {} RoPE frequency divisors; {} are wanted, one for each rotated pair", name,
                  rope.frequency_divisors.size(), wanted);
    }
    for (const float divisor : rope.frequency_divisors) {
      QUIRE_TRY_VOID(CheckReal("a RoPE frequency divisor", static_cast<double>(divisor), 1e-6, 1e9, name));
    }
  }
  if (rope.type == RopeType::kDefault || rope.type == RopeType::kLinear) return {};
  QUIRE_TRY_VOID(
      CheckRange("original_max_position_embeddings", rope.original_max_position_embeddings, 1, kPositionsMax, name));
  // A base of 1 turns every pair equally fast; the yarn ramp and the NTK base divide by its logarithm.
  QUIRE_TRY_VOID(CheckReal("rope_theta", rope.theta, 1.0001, kRopeThetaMax, name));
  if (rope.type == RopeType::kLlama3 && !(rope.low_freq_factor < rope.high_freq_factor)) {
    return Fail(ErrorCode::kCorrupt, "{}: low_freq_factor {} is not below high_freq_factor {}", name,
                rope.low_freq_factor, rope.high_freq_factor);
  }
  if (rope.type == RopeType::kDynamic && rotary_dim <= 2) {
    return Fail(ErrorCode::kCorrupt, "{}: dynamic RoPE needs more than one rotated pair", name);
  }
  return {};
}

}  // namespace

Result<> CheckTokenIds(std::span<const TokenId> ids, int vocab_size, std::string_view what, std::string_view name) {
  for (const TokenId id : ids) {
    if (id.value() < 0 || id.value() >= vocab_size) {
      return Fail(ErrorCode::kCorrupt, "{}: {} {} is outside the vocabulary of {} tokens", name, what, id, vocab_size);
    }
  }
  return {};
}

Result<> CheckModelConfig(const ModelConfig& config, std::string_view name) {
  QUIRE_TRY_VOID(CheckRange("vocab_size", config.vocab_size, 1, kVocabSizeMax, name));
  QUIRE_TRY_VOID(CheckRange("hidden_size", config.hidden_size, 1, kHiddenSizeMax, name));
  QUIRE_TRY_VOID(CheckRange("intermediate_size", config.intermediate_size, 1, kHiddenSizeMax, name));
  QUIRE_TRY_VOID(CheckRange("num_layers", config.num_layers, 1, kLayersMax, name));
  QUIRE_TRY_VOID(CheckRange("num_heads", config.num_heads, 1, kHeadsMax, name));
  QUIRE_TRY_VOID(CheckRange("num_kv_heads", config.num_kv_heads, 1, config.num_heads, name));
  QUIRE_TRY_VOID(CheckRange("head_dim", config.head_dim, 2, kHeadDimMax, name));
  QUIRE_TRY_VOID(CheckRange("rotary_dim", config.rotary_dim, 2, config.head_dim, name));
  QUIRE_TRY_VOID(CheckRange("max_position_embeddings", config.max_position_embeddings, 1, kPositionsMax, name));
  QUIRE_TRY_VOID(CheckRange("sliding_window", config.sliding_window, 0, kPositionsMax, name));
  QUIRE_TRY_VOID(CheckReal("rms_norm_eps", static_cast<double>(config.rms_norm_eps), 1e-12, 1.0, name));
  if (config.num_heads % config.num_kv_heads != 0) {
    return Fail(ErrorCode::kCorrupt, "{}: {} query heads do not divide into {} key-value heads", name, config.num_heads,
                config.num_kv_heads);
  }
  if (config.head_dim % 2 != 0 || config.rotary_dim % 2 != 0) {
    return Fail(ErrorCode::kUnsupported, "{}: head_dim {} and rotary_dim {} must be even", name, config.head_dim,
                config.rotary_dim);
  }
  if (config.layer_uses_sliding_window.size() != static_cast<std::size_t>(config.num_layers)) {
    return Fail(ErrorCode::kCorrupt, "{}: {} layer types for {} layers", name, config.layer_uses_sliding_window.size(),
                config.num_layers);
  }
  QUIRE_TRY_VOID(CheckRope(config.rope, config.rotary_dim, name));
  QUIRE_TRY_VOID(CheckTokenIds(config.eos_token_ids, config.vocab_size, "the end-of-text id", name));
  if (config.bos_token_id) {
    QUIRE_TRY_VOID(CheckTokenIds({&*config.bos_token_id, 1}, config.vocab_size, "the begin-of-text id", name));
  }
  return {};
}

}  // namespace quire::weights
