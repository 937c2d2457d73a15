#include "bench/load/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"

namespace quire::bench::load {
namespace {

constexpr int kPromptsMax = 1'000'000;
constexpr int kTokensMax = 1 << 22;
constexpr int kPrefixesMax = 1 << 20;
constexpr int kConcurrencyMax = 1 << 20;
constexpr double kRateMax = 1e6;

struct NamedDataset {
  DatasetKind kind;
  std::string_view name;
};
constexpr NamedDataset kDatasets[] = {
    {DatasetKind::kRandom, "random"}, {DatasetKind::kSharedPrefix, "shared-prefix"},
    {DatasetKind::kJsonl, "jsonl"},   {DatasetKind::kShareGpt, "sharegpt"},
    {DatasetKind::kChats, "chats"},   {DatasetKind::kTrace, "trace"},
};

Result<> Within(const char* flag, double value, double least, double most) {
  if (value >= least && value <= most) return {};  // false for NaN, too
  return FailParam(flag, "{} is not possible; {} to {} are", value, least, most);
}

}  // namespace

std::string_view DatasetName(DatasetKind kind) {
  return std::ranges::find(kDatasets, kind, &NamedDataset::kind)->name;
}

Result<DatasetKind> ParseDataset(std::string_view name) {
  for (const NamedDataset& dataset : kDatasets) {
    if (dataset.name == name) return dataset.kind;
  }
  return FailParam("dataset", "unknown dataset \"{}\"; known are {}", name, kDatasetNames);
}

std::string_view PromptFormatName(PromptFormat format) {
  switch (format) {
    case PromptFormat::kAuto:
      return "auto";
    case PromptFormat::kIds:
      return "ids";
    case PromptFormat::kText:
      return "text";
  }
  return "";
}

Result<PromptFormat> ParsePromptFormat(std::string_view name) {
  for (const PromptFormat format : {PromptFormat::kAuto, PromptFormat::kIds, PromptFormat::kText}) {
    if (PromptFormatName(format) == name) return format;
  }
  return FailParam("prompt-format", "unknown format \"{}\"; known are auto, ids, text", name);
}

Result<> DatasetConfig::Validate() const {
  QUIRE_TRY_VOID(Within("num-prompts", num_prompts, is_made_up() ? 1 : 0, kPromptsMax));
  QUIRE_TRY_VOID(Within("input-len", input_tokens(), 1, kTokensMax));
  QUIRE_TRY_VOID(Within("output-len", output_len.value_or(1), 1, kTokensMax));
  QUIRE_TRY_VOID(Within("prefix-len", prefix_tokens(), 0, input_tokens()));
  QUIRE_TRY_VOID(Within("num-prefixes", num_prefixes, 1, kPrefixesMax));
  QUIRE_TRY_VOID(Within("range-ratio", range_ratio, 0, 0.99));
  QUIRE_TRY_VOID(Within("length-scale", length_scale, 1e-4, 100));
  QUIRE_TRY_VOID(Within("trace-speed", trace_speed, 1e-4, 1e4));
  QUIRE_TRY_VOID(Within("max-total-len", max_total_len, 0, kTokensMax));
  if (seed < 0) return FailParam("seed", "seed is {}; it must be at least 0", seed);
  if (!is_made_up() && path.empty()) {
    return FailParam("dataset-path", "the dataset {} needs a file", DatasetName(kind));
  }
  if (is_made_up() && !path.empty()) {
    return FailParam("dataset-path", "the dataset {} is made up and reads no file", DatasetName(kind));
  }
  if (!is_made_up() && (input_len || prefix_len)) {
    return FailParam(input_len ? "input-len" : "prefix-len", "prompts come from the file; only made-up ones have it");
  }
  return {};
}

Result<> TrafficConfig::Validate() const {
  if (!(request_rate > 0) || (std::isfinite(request_rate) && request_rate > kRateMax)) {
    return FailParam("request-rate", "{} requests a second are not possible; up to {} are, and inf", request_rate,
                     kRateMax);
  }
  if (!(burstiness >= 0.01))
    return FailParam("burstiness", "{} is not possible; 0.01 and more, or inf, are", burstiness);
  QUIRE_TRY_VOID(Within("max-concurrency", max_concurrency, 0, kConcurrencyMax));
  QUIRE_TRY_VOID(Within("num-warmup", num_warmup, 0, kPromptsMax));
  if (timeout.count() < 1) return FailParam("timeout", "it must be longer than nothing");
  if (connect_timeout.count() < 1) return FailParam("connect-timeout", "it must be longer than nothing");
  return {};
}

Result<> ClientConfig::Validate() const {
  if (endpoint != "auto" && endpoint != "completions" && endpoint != "chat") {
    return FailParam("endpoint", "unknown endpoint \"{}\"; known are auto, completions, chat", endpoint);
  }
  QUIRE_TRY_VOID(Within("temperature", temperature, 0, 100));
  QUIRE_TRY_VOID(Within("vocab-size", vocab_size, 0, 1 << 30));
  const auto is_one_line = [](const std::string& text) { return text.find_first_of("\r\n") == std::string::npos; };
  if (!is_one_line(api_key)) return FailParam("api-key", "a key has no line ends");
  for (const std::string& header : headers) {
    const std::size_t colon = header.find(':');
    if (colon == std::string::npos || colon == 0 || !is_one_line(header)) {
      return FailParam("header", "\"{}\" is not a header; write \"Name: value\"", header);
    }
  }
  if (!extra_body.empty()) {
    const Result<json::value> value = ParseJson(extra_body, "extra-body");
    if (!value) return FailParam("extra-body", "{}", value.error().message);
    if (!value->is_object()) return FailParam("extra-body", "it must be a JSON object");
  }
  return {};
}

Result<GoodputConfig> GoodputConfig::Parse(const std::vector<std::string>& pairs) {
  GoodputConfig config;
  for (const std::string& pair : pairs) {
    const std::size_t colon = pair.find(':');
    const std::string name = pair.substr(0, colon);
    std::optional<double>* const limit = name == "ttft"   ? &config.ttft_ms
                                         : name == "tpot" ? &config.tpot_ms
                                         : name == "e2el" ? &config.e2el_ms
                                                          : nullptr;
    double ms = 0;
    const char* const end = pair.data() + pair.size();
    const bool has_value = colon != std::string::npos && limit != nullptr;
    const auto [rest, error] = has_value ? std::from_chars(pair.data() + colon + 1, end, ms) : std::from_chars_result{};
    if (!has_value || error != std::errc() || rest != end || !(ms > 0)) {
      return FailParam("goodput", "\"{}\" is no limit; write ttft:MS, tpot:MS or e2el:MS", pair);
    }
    *limit = ms;
  }
  return config;
}

Result<> LoadConfig::Validate() const {
  QUIRE_TRY_VOID(dataset.Validate());
  QUIRE_TRY_VOID(traffic.Validate());
  return client.Validate();
}

}  // namespace quire::bench::load
