#include "weights/quantization_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <span>
#include <string_view>
#include <system_error>

namespace quire::weights {
namespace {

constexpr std::int64_t kGroupSizeMax = 1 << 20;
constexpr std::size_t kSchemesMax = 256;

// A string that must be one of a few; absent: the first of them. Upper and lower case are the same.
Result<std::string> OneOf(const JsonFields& fields, std::string_view key, std::span<const std::string_view> known) {
  QUIRE_TRY(auto text, fields.OptionalString(key));
  if (!text) return std::string(known.front());
  std::ranges::transform(*text, text->begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (std::ranges::find(known, *text) != known.end()) return *std::move(text);
  return Fail(ErrorCode::kUnsupported, "{}: {} \"{}\" is not supported; {} {}", fields.name(), key, *text,
              fmt::join(known, ", "), known.size() == 1 ? "is" : "are");
}

Result<std::int64_t> GroupSize(const JsonFields& fields, std::string_view key) {
  QUIRE_TRY(const auto size, fields.OptionalInt(key, -1, kGroupSizeMax));
  if (size == 0) return Fail(ErrorCode::kCorrupt, "{}: \"{}\" is 0; −1 or at least 1 is wanted", fields.name(), key);
  return size.value_or(-1);
}

Result<> ParseAwq(const JsonFields& fields, QuantizationConfig* config) {
  const bool old_names = fields.Has("w_bit");
  QUIRE_TRY(config->bits, fields.IntOr(old_names ? "w_bit" : "bits", 1, 64, 4));
  if (config->bits != 4) {
    return Fail(ErrorCode::kUnsupported, "{}: AWQ with {} bits is not supported; 4 are", fields.name(), config->bits);
  }
  QUIRE_TRY(config->group_size, GroupSize(fields, old_names ? "q_group_size" : "group_size"));
  // The layouts called gemv and marlin order the codes in other ways.
  constexpr std::array<std::string_view, 1> kVersions = {"gemm"};
  QUIRE_TRY_VOID(OneOf(fields, "version", kVersions));
  QUIRE_TRY(const bool zero_point, fields.BoolOr("zero_point", true));
  if (!zero_point) {
    return Fail(ErrorCode::kUnsupported, "{}: AWQ without zero points is not supported", fields.name());
  }
  return {};
}

// GPTQModel overrides settings of modules by patterns; "-:pattern" leaves modules alone, which their tensors show.
Result<> CheckNoOverrides(const JsonFields& fields) {
  const json::value* dynamic = fields.Find("dynamic");
  if (dynamic == nullptr || !dynamic->is_object()) return {};
  for (const auto& [pattern, settings] : dynamic->get_object()) {
    if (pattern.starts_with("-:")) continue;
    return Fail(ErrorCode::kUnsupported, "{}: \"dynamic\" with other settings for \"{}\" is not supported",
                fields.name(), std::string_view(pattern));
  }
  return {};
}

Result<> ParseGptq(const JsonFields& fields, QuantizationConfig* config) {
  QUIRE_TRY(const std::int64_t bits, fields.Int("bits", 1, 64));
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    return Fail(ErrorCode::kUnsupported, "{}: GPTQ with {} bits is not supported; 2, 3, 4 and 8 are", fields.name(),
                bits);
  }
  config->bits = static_cast<int>(bits);
  QUIRE_TRY(config->group_size, GroupSize(fields, "group_size"));
  constexpr std::array<std::string_view, 2> kFormats = {"gptq", "gptq_v2"};
  const bool newer_name = !fields.Has("checkpoint_format") && fields.Has("format");
  QUIRE_TRY(const std::string format, OneOf(fields, newer_name ? "format" : "checkpoint_format", kFormats));
  config->zeros_minus_one = format == "gptq";
  constexpr std::array<std::string_view, 1> kPackTypes = {"int32"};
  QUIRE_TRY_VOID(OneOf(fields, "pack_dtype", kPackTypes));
  QUIRE_TRY(const bool marlin, fields.BoolOr("is_marlin_format", false));
  if (marlin) return Fail(ErrorCode::kUnsupported, "{}: GPTQ in the layout of Marlin is not supported", fields.name());
  return CheckNoOverrides(fields);
}

// [128, 128]; "128x128" is what compressed-tensors wrote at first.
Result<> ParseBlockSize(const JsonFields& fields, std::string_view key, QuantizationConfig* config) {
  const json::value* value = fields.Find(key);
  if (value == nullptr) return {};
  const auto in_range = [](std::int64_t size) { return size > 0 && size <= kGroupSizeMax; };
  std::int64_t rows = 0, columns = 0;
  if (const json::array* pair = value->if_array(); pair != nullptr && pair->size() == 2) {
    rows = (*pair)[0].is_int64() ? (*pair)[0].get_int64() : 0;
    columns = (*pair)[1].is_int64() ? (*pair)[1].get_int64() : 0;
  } else if (value->is_string()) {
    const std::string_view text = value->get_string();
    const char* const end = text.data() + text.size();
    const auto [middle, error] = std::from_chars(text.data(), end, rows);
    if (error == std::errc() && middle != end && *middle == 'x') std::from_chars(middle + 1, end, columns);
  }
  if (!in_range(rows) || !in_range(columns)) {
    return Fail(ErrorCode::kCorrupt, "{}: \"{}\" is {}; a pair like [128, 128] is wanted", fields.name(), key,
                ToJson(*value));
  }
  config->block_rows = rows;
  config->block_columns = columns;
  return {};
}

Result<WeightScheme> ParseScheme(const JsonFields& weights) {
  WeightScheme scheme;
  constexpr std::array<std::string_view, 2> kTypes = {"int", "float"};
  QUIRE_TRY(const std::string type, OneOf(weights, "type", kTypes));
  scheme.is_float = type == "float";
  QUIRE_TRY(const std::int64_t bits, weights.Int("num_bits", 1, 64));
  if (scheme.is_float ? bits != 8 : bits != 4 && bits != 8) {
    return Fail(ErrorCode::kUnsupported,
                "{}: {} weights of {} bits are not supported; int of 4 or 8 and float of 8 are", weights.name(), type,
                bits);
  }
  scheme.bits = static_cast<int>(bits);
  constexpr std::array<std::string_view, 4> kStrategies = {"tensor", "channel", "group", "block"};
  QUIRE_TRY(const std::string strategy, OneOf(weights, "strategy", kStrategies));
  QUIRE_TRY(const std::int64_t group_size, GroupSize(weights, "group_size"));
  if (strategy == "group" || (!weights.Has("strategy") && group_size > 0)) {
    scheme.group_size = std::max<std::int64_t>(group_size, 0);
  }
  return scheme;
}

Result<> ParseCompressedTensors(const JsonFields& fields, QuantizationConfig* config) {
  constexpr std::array<std::string_view, 6> kFormats = {"dense",           "int-quantized",  "float-quantized",
                                                        "naive-quantized", "pack-quantized", "mixed-precision"};
  QUIRE_TRY_VOID(OneOf(fields, "format", kFormats));
  QUIRE_TRY(const auto sparsity, fields.OptionalObject("sparsity_config"));
  if (sparsity) {
    constexpr std::array<std::string_view, 2> kSparse = {"dense", "sparse-24-bitmask"};
    QUIRE_TRY_VOID(OneOf(*sparsity, "format", kSparse));
  }
  // Rotations of the activations, without which the weights mean something else.
  if (const json::value* transform = fields.Find("transform_config");
      transform != nullptr && transform->is_object() && !transform->get_object().empty()) {
    return Fail(ErrorCode::kUnsupported, "{}: \"transform_config\" is not supported", fields.name());
  }
  const json::value* groups = fields.Find("config_groups");
  if (groups == nullptr) return {};
  if (!groups->is_object() || groups->get_object().size() > kSchemesMax) {
    return Fail(ErrorCode::kCorrupt, "{}: \"config_groups\" must be an object of at most {} groups", fields.name(),
                kSchemesMax);
  }
  for (const auto& [key, value] : groups->get_object()) {
    if (!value.is_object()) {
      return Fail(ErrorCode::kCorrupt, "{}: config_groups: \"{}\" is not an object", fields.name(),
                  std::string_view(key));
    }
    const JsonFields group(value.get_object(), fmt::format("{}: {}", fields.name(), std::string_view(key)));
    QUIRE_TRY(const auto weights, group.OptionalObject("weights"));
    if (!weights) continue;
    QUIRE_TRY(const WeightScheme scheme, ParseScheme(*weights));
    config->schemes.push_back(scheme);
    QUIRE_TRY_VOID(ParseBlockSize(*weights, "block_structure", config));
  }
  return {};
}

Result<> ParseFp8(const JsonFields& fields, QuantizationConfig* config) {
  constexpr std::array<std::string_view, 2> kTypes = {"e4m3", "e5m2"};
  QUIRE_TRY_VOID(OneOf(fields, "fmt", kTypes));
  return ParseBlockSize(fields, "weight_block_size", config);
}

Result<> ParseBitsAndBytes(const JsonFields& fields, QuantizationConfig*) {
  QUIRE_TRY_VOID(fields.BoolOr("load_in_4bit", false));
  QUIRE_TRY_VOID(fields.BoolOr("load_in_8bit", false));
  return {};
}

struct MethodRow {
  std::string_view name;
  QuantizationMethod method;
  Result<> (*parse)(const JsonFields&, QuantizationConfig*);
};

constexpr std::array<MethodRow, 6> kMethods = {{
    {"awq", QuantizationMethod::kAwq, ParseAwq},
    {"gptq", QuantizationMethod::kGptq, ParseGptq},
    {"compressed-tensors", QuantizationMethod::kCompressedTensors, ParseCompressedTensors},
    {"fp8", QuantizationMethod::kFp8, ParseFp8},
    {"fbgemm_fp8", QuantizationMethod::kFp8, ParseFp8},
    {"bitsandbytes", QuantizationMethod::kBitsAndBytes, ParseBitsAndBytes},
}};

}  // namespace

Result<std::optional<QuantizationConfig>> ParseQuantizationConfig(const JsonFields& root) {
  QUIRE_TRY(auto fields, root.OptionalObject("quantization_config"));
  if (!fields) {
    QUIRE_TRY(fields, root.OptionalObject("compression_config"));  // what compressed-tensors called it at first
  }
  if (!fields) return std::nullopt;
  QUIRE_TRY(const auto name, fields->OptionalString("quant_method"));
  const auto row = std::ranges::find(kMethods, name.value_or(""), &MethodRow::name);
  if (row == kMethods.end()) {
    return Fail(
        ErrorCode::kUnsupported,
        "{}: quantization_config with quant_method \"{}\" is not supported; awq, gptq, compressed-tensors, fp8, "
        "fbgemm_fp8 and bitsandbytes are",
        root.name(), name.value_or("(none)"));
  }
  QuantizationConfig config{.method = row->method, .name = *name};
  QUIRE_TRY_VOID(row->parse(*fields, &config));
  return config;
}

}  // namespace quire::weights
