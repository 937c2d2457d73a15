#include <algorithm>
#include <array>
#include <utility>

#include "weights/config_json.h"
#include "weights/config_limits.h"

namespace quire::weights {
namespace {

constexpr std::array<std::pair<std::string_view, RopeType>, 5> kRopeTypes = {{
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
}};

// A key that is not here may change the frequencies in a way that this file knows nothing of.
constexpr std::array<std::string_view, 15> kKnownKeys = {"type",
                                                         "rope_type",
                                                         "rope_theta",
                                                         "partial_rotary_factor",
                                                         "factor",
                                                         "low_freq_factor",
                                                         "high_freq_factor",
                                                         "original_max_position_embeddings",
                                                         "attention_factor",
                                                         "mscale",
                                                         "mscale_all_dim",
                                                         "beta_fast",
                                                         "beta_slow",
                                                         "truncate",
                                                         "finetuned"};

Result<RopeType> ParseType(const JsonFields& fields) {
  QUIRE_TRY(const auto spelled, fields.OptionalString("rope_type"));
  QUIRE_TRY(const auto legacy, fields.OptionalString("type"));
  if (spelled && legacy && *spelled != *legacy) {
    return Fail(ErrorCode::kCorrupt, "{}: \"rope_type\" is \"{}\" and \"type\" is \"{}\"", fields.name(), *spelled,
                *legacy);
  }
  const std::string name = spelled ? *spelled : legacy.value_or("default");
  const auto found = std::ranges::find(kRopeTypes, name, &std::pair<std::string_view, RopeType>::first);
  if (found != kRopeTypes.end()) return found->second;
  return Fail(ErrorCode::kUnsupported,
              "{}: the RoPE type \"{}\" is unknown; default, linear, dynamic, llama3 and yarn are supported",
              fields.name(), name);
}

Result<> RefuseUnknownKeys(const json::object& object, const std::string& name) {
  for (const auto& [key, value] : object) {
    if (std::ranges::find(kKnownKeys, std::string_view(key)) == kKnownKeys.end()) {
      return Fail(ErrorCode::kUnsupported, "{}: the key \"{}\" is unknown", name, std::string_view(key));
    }
  }
  return {};
}

Result<> ParseYarn(const JsonFields& fields, RopeConfig* rope) {
  QUIRE_TRY(rope->beta_fast, fields.DoubleOr("beta_fast", 1e-3, 1e6, rope->beta_fast));
  QUIRE_TRY(rope->beta_slow, fields.DoubleOr("beta_slow", 1e-3, 1e6, rope->beta_slow));
  QUIRE_TRY(rope->attention_factor, fields.OptionalDouble("attention_factor", 1e-6, 1e6));
  QUIRE_TRY(rope->mscale, fields.OptionalDouble("mscale", 0, 1e6));
  QUIRE_TRY(rope->mscale_all_dim, fields.OptionalDouble("mscale_all_dim", 0, 1e6));
  QUIRE_TRY(rope->yarn_truncate, fields.BoolOr("truncate", true));
  if (rope->beta_fast < rope->beta_slow) {
    return Fail(ErrorCode::kCorrupt, "{}: beta_fast {} is below beta_slow {}", fields.name(), rope->beta_fast,
                rope->beta_slow);
  }
  return {};
}

// The context that the model was trained with, which llama3 and yarn scale from. Dynamic scaling always
// starts at max_position_embeddings; a file that says otherwise contradicts itself.
Result<std::int64_t> ParseOriginalLength(const JsonFields& fields, RopeType type, std::int64_t max_positions) {
  QUIRE_TRY(const auto original, fields.OptionalInt("original_max_position_embeddings", 1, kPositionsMax));
  if (type == RopeType::kLlama3 && !original) {
    return Fail(ErrorCode::kCorrupt, "{}: \"original_max_position_embeddings\" is missing", fields.name());
  }
  if (type == RopeType::kDynamic && original && *original != max_positions) {
    return Fail(ErrorCode::kUnsupported,
                "{}: dynamic scaling from original_max_position_embeddings {}, which is not "
                "max_position_embeddings {}",
                fields.name(), *original, max_positions);
  }
  return original.value_or(max_positions);
}

Result<> ParseScaling(const JsonFields& fields, std::int64_t max_positions, RopeConfig* rope) {
  QUIRE_TRY(rope->type, ParseType(fields));
  if (rope->type == RopeType::kDefault) return {};
  QUIRE_TRY(const auto factor, fields.OptionalDouble("factor", 1.0, kRopeFactorMax));
  if (!factor) return Fail(ErrorCode::kCorrupt, "{}: \"factor\" is missing", fields.name());
  rope->factor = *factor;
  if (rope->type == RopeType::kLinear) return {};
  QUIRE_TRY(rope->original_max_position_embeddings, ParseOriginalLength(fields, rope->type, max_positions));
  if (rope->type == RopeType::kLlama3) {
    QUIRE_TRY(rope->low_freq_factor, fields.DoubleOr("low_freq_factor", 1e-6, 1e6, rope->low_freq_factor));
    QUIRE_TRY(rope->high_freq_factor, fields.DoubleOr("high_freq_factor", 1e-6, 1e6, rope->high_freq_factor));
  }
  if (rope->type == RopeType::kYarn) return ParseYarn(fields, rope);
  return {};
}

}  // namespace

Result<RopeConfig> ParseRopeJson(const JsonFields& config, std::int64_t max_position_embeddings) {
  RopeConfig rope;
  QUIRE_TRY(rope.theta, config.DoubleOr("rope_theta", 1.0, kRopeThetaMax, rope.theta));
  QUIRE_TRY(const auto scaling, config.OptionalObject("rope_scaling"));
  QUIRE_TRY(const auto parameters, config.OptionalObject("rope_parameters"));
  if (scaling && parameters) {
    return Fail(ErrorCode::kCorrupt, "{}: \"rope_scaling\" and \"rope_parameters\" are both given", config.name());
  }
  if (!scaling && !parameters) return rope;
  const JsonFields& fields = scaling ? *scaling : *parameters;
  QUIRE_TRY_VOID(
      RefuseUnknownKeys(config.Find(scaling ? "rope_scaling" : "rope_parameters")->get_object(), fields.name()));
  QUIRE_TRY(rope.theta, fields.DoubleOr("rope_theta", 1.0, kRopeThetaMax, rope.theta));
  QUIRE_TRY_VOID(ParseScaling(fields, max_position_embeddings, &rope));
  return rope;
}

}  // namespace quire::weights
