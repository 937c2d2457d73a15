#include "bench/simulation/request_trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numbers>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "base/counter_rng.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace quire::bench {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;
constexpr int kTokensMax = 1 << 24;       // of a request
constexpr int kRequestsMax = 10'000'000;  // of a trace that is made up
constexpr int kMooncakeBlock = 512;       // tokens that one of Mooncake's hashes stands for

// Contents of segments that are of one request only begin here; those that a file names come before.
constexpr std::uint64_t kOwnContents = std::uint64_t{1} << 62;

std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::string_view NextLine(std::string_view* text) {
  const std::size_t end = text->find('\n');
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "2023-11-16 18:17:03.9799600" in seconds since 1970.
std::optional<double> ParseTimestamp(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const auto year = ParseNumber<int>(text.substr(0, 4));
  const auto month = ParseNumber<unsigned>(text.substr(5, 2)), day = ParseNumber<unsigned>(text.substr(8, 2));
  const auto hour = ParseNumber<int>(text.substr(11, 2)), minute = ParseNumber<int>(text.substr(14, 2));
  const auto second = ParseNumber<double>(text.substr(17));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok() || !(*second >= 0 && *second < 61)) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count() * 86400.0 + *hour * 3600 + *minute * 60 + *second;
}

Result<> CheckCounts(std::string_view where, std::int64_t input, std::int64_t output) {
  if (input >= 1 && input <= kTokensMax && output >= 1 && output <= kTokensMax) return {};
  return Fail(ErrorCode::kCorrupt, "{}: {} prompt and {} output tokens; both must be 1 to {}", where, input, output,
              kTokensMax);
}

Result<std::vector<TraceRequest>> ParseAzure(std::string_view text, std::string_view name) {
  std::vector<TraceRequest> requests;
  NextLine(&text);
  for (int number = 2; !text.empty(); ++number) {
    const std::string_view line = NextLine(&text);
    if (line.empty()) continue;
    const std::string where = fmt::format("{}: line {}", name, number);
    const std::size_t first = line.find(','), second = line.rfind(',');
    const auto time = ParseTimestamp(line.substr(0, first));
    if (first == std::string_view::npos || first == second || !time) {
      return Fail(ErrorCode::kCorrupt, "{}: it is no \"TIMESTAMP,ContextTokens,GeneratedTokens\"", where);
    }
    const auto input = ParseNumber<int>(line.substr(first + 1, second - first - 1));
    const auto output = ParseNumber<int>(line.substr(second + 1));
    QUIRE_TRY_VOID(CheckCounts(where, input.value_or(0), output.value_or(0)));
    requests.push_back({.arrival_seconds = *time,
                        .segments = {{kOwnContents + requests.size(), *input}},
                        .num_output_tokens = *output});
  }
  return requests;
}

Result<TraceRequest> ParseMooncakeLine(std::string_view line, const std::string& where, std::uint64_t own) {
  QUIRE_TRY(const json::value value, ParseJson(line, where));
  const auto number = [&](std::string_view key) -> std::optional<std::int64_t> {
    const json::value* const found = value.is_object() ? value.get_object().if_contains(key) : nullptr;
    return found != nullptr && found->is_int64() ? std::optional(found->get_int64()) : std::nullopt;
  };
  const auto milliseconds = number("timestamp"), input = number("input_length"), output = number("output_length");
  if (!milliseconds || !input || !output) {
    return Fail(ErrorCode::kCorrupt, "{}: it lacks an integer timestamp, input_length or output_length", where);
  }
  QUIRE_TRY_VOID(CheckCounts(where, *input, *output));
  TraceRequest request{.arrival_seconds = static_cast<double>(*milliseconds) / 1000,
                       .segments = {},
                       .num_output_tokens = static_cast<int>(*output)};
  int left = static_cast<int>(*input);
  if (const json::value* const ids = value.get_object().if_contains("hash_ids"); ids != nullptr && ids->is_array()) {
    for (const json::value& id : ids->get_array()) {
      if (!id.is_int64() || id.get_int64() < 0) {
        return Fail(ErrorCode::kCorrupt, "{}: hash_ids must be numbers of at least 0", where);
      }
      if (left == 0) break;
      const int count = std::min(left, kMooncakeBlock);
      request.segments.push_back({static_cast<std::uint64_t>(id.get_int64()), count});
      left -= count;
    }
  }
  if (left > 0) request.segments.push_back({own, left});
  return request;
}

Result<std::vector<TraceRequest>> ParseMooncake(std::string_view text, std::string_view name) {
  std::vector<TraceRequest> requests;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = NextLine(&text);
    if (line.empty()) continue;
    QUIRE_TRY(TraceRequest request,
              ParseMooncakeLine(line, fmt::format("{}: line {}", name, number), kOwnContents + requests.size()));
    requests.push_back(std::move(request));
  }
  return requests;
}

// Those of the same time stay in the order of the file; the first one comes at 0.
void SortByArrival(std::vector<TraceRequest>* requests) {
  std::vector<std::pair<double, std::size_t>> places;
  for (std::size_t i = 0; i < requests->size(); ++i) places.emplace_back((*requests)[i].arrival_seconds, i);
  std::ranges::sort(places);
  std::vector<TraceRequest> sorted;
  sorted.reserve(requests->size());
  for (const auto& [seconds, index] : places) {
    sorted.push_back(std::move((*requests)[index]));
    sorted.back().arrival_seconds = seconds - places.front().first;
  }
  *requests = std::move(sorted);
}

// A length with the given mean; log-normal with the given standard deviation over mean.
int DrawLength(int mean, double cv, std::uint64_t seed, std::uint64_t index, std::uint32_t draw) {
  if (cv == 0) return mean;
  const double variance = std::log1p(cv * cv);
  const double radius = std::sqrt(-2 * std::log1p(-UniformDouble(seed, index, draw)));
  const double normal = radius * std::cos(2 * std::numbers::pi * UniformDouble(seed, index, draw + 1));
  const double length = mean * std::exp(std::sqrt(variance) * normal - variance / 2);
  return static_cast<int>(std::clamp(std::round(length), 1.0, double{kTokensMax}));
}

Result<> InRange(const char* field, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return FailParam(field, "{} is {}; it must be at least {} and at most {}", field, value, least, most);
}

}  // namespace

int TraceRequest::num_prompt_tokens() const {
  int count = 0;
  for (const PromptSegment& segment : segments) count += segment.num_tokens;
  return count;
}

double RequestTrace::rate() const {
  if (requests.size() < 2 || requests.back().arrival_seconds <= 0) return 0;
  return static_cast<double>(requests.size() - 1) / requests.back().arrival_seconds;
}

void RequestTrace::SetRate(double requests_per_second) {
  const double factor = requests_per_second > 0 ? rate() / requests_per_second : 0;
  for (TraceRequest& request : requests) request.arrival_seconds *= factor;
}

void RequestTrace::SetCount(int count) {
  const auto wanted = static_cast<std::size_t>(count);
  const std::size_t size = requests.size();
  if (size == 0) return;
  // The next round begins as long after the last arrival as two arrivals are apart on average.
  const double round_seconds = rate() > 0 ? requests.back().arrival_seconds + 1 / rate() : 0;
  for (std::size_t i = size; i < wanted; ++i) {
    TraceRequest request = requests[i % size];
    const std::size_t round = i / size;
    request.arrival_seconds += round_seconds * static_cast<double>(round);
    for (PromptSegment& segment : request.segments) segment.content = Mix(segment.content + Mix(round));
    requests.push_back(std::move(request));
  }
  if (wanted < size) requests.resize(wanted);
}

Result<RequestTrace> ReadTrace(const std::filesystem::path& path) {
  QUIRE_TRY(const std::string text, ReadFile(path, kFileBytesMax));
  return ParseTrace(text, path.filename().string());
}

Result<RequestTrace> ParseTrace(std::string_view text, std::string_view name) {
  RequestTrace trace{.description = std::string(name), .requests = {}};
  if (text.starts_with("TIMESTAMP,ContextTokens,GeneratedTokens")) {
    QUIRE_TRY(trace.requests, ParseAzure(text, name));
  } else if (text.starts_with('{')) {
    QUIRE_TRY(trace.requests, ParseMooncake(text, name));
  } else {
    return Fail(ErrorCode::kUnsupported,
                "{} is no trace: it begins neither with Azure's \"TIMESTAMP,ContextTokens,GeneratedTokens\" nor with a "
                "JSON object of Mooncake's",
                name);
  }
  if (trace.requests.empty()) return Fail(ErrorCode::kCorrupt, "{} has no requests", name);
  SortByArrival(&trace.requests);
  return trace;
}

Result<> SyntheticTraceConfig::Validate() const {
  QUIRE_TRY_VOID(InRange("num_prompts", num_prompts, 1, kRequestsMax));
  QUIRE_TRY_VOID(InRange("input_len", input_len, 1, kTokensMax));
  QUIRE_TRY_VOID(InRange("output_len", output_len, 1, kTokensMax));
  QUIRE_TRY_VOID(InRange("length_cv", length_cv, 0, 10));
  QUIRE_TRY_VOID(InRange("prefix_len", prefix_len, 0, kTokensMax));
  QUIRE_TRY_VOID(InRange("num_prefixes", num_prefixes, 1, kRequestsMax));
  QUIRE_TRY_VOID(InRange("burstiness", burstiness, 0.001, 1000));
  QUIRE_TRY_VOID(InRange("seed", seed, 0, INT32_MAX));
  if (prefix_len >= input_len) {
    return FailParam("prefix_len", "prefix_len is {}; it must be below input_len, {}", prefix_len, input_len);
  }
  return {};
}

RequestTrace MakeTrace(const SyntheticTraceConfig& config) {
  const auto seed = static_cast<std::uint64_t>(config.seed);
  RequestTrace trace;
  trace.description =
      fmt::format("{} requests of {} + {} tokens", config.num_prompts, config.input_len, config.output_len);
  if (config.prefix_len > 0) {
    trace.description += fmt::format(", {} of them shared ({} prefix{})", config.prefix_len, config.num_prefixes,
                                     config.num_prefixes == 1 ? "" : "es");
  }
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> gap(config.burstiness, 1 / config.burstiness);
  double now = 0;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(config.num_prompts); ++i) {
    TraceRequest request{.arrival_seconds = now, .segments = {}};
    if (config.prefix_len > 0) {
      const double draw = UniformDouble(seed, i, 4) * config.num_prefixes;
      request.segments.push_back({Mix(seed) + static_cast<std::uint64_t>(draw), config.prefix_len});
    }
    request.segments.push_back(
        {Mix(seed) + kOwnContents + i, DrawLength(config.input_len - config.prefix_len, config.length_cv, seed, i, 0)});
    request.num_output_tokens = DrawLength(config.output_len, config.length_cv, seed, i, 2);
    trace.requests.push_back(std::move(request));
    now += gap(random);
  }
  return trace;
}

GenerateRequest MakeRequest(const TraceRequest& request, std::uint64_t index, int vocab_size) {
  GenerateRequest made;
  made.id = RequestId(index);
  made.prompt.reserve(static_cast<std::size_t>(request.num_prompt_tokens()));
  for (const PromptSegment& segment : request.segments) {
    const std::uint64_t content = Mix(segment.content + 0x9E3779B97F4A7C15u);
    for (int i = 0; i < segment.num_tokens; ++i) {
      const std::uint64_t draw = Mix(content + static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(vocab_size);
      made.prompt.emplace_back(static_cast<std::int32_t>(draw));
    }
  }
  made.sampling.n = request.num_choices;
  made.sampling.temperature = request.num_choices > 1 ? 1 : 0;
  made.sampling.seed = index;
  made.stop = {.max_tokens = request.num_output_tokens, .ignore_eos = true};
  return made;
}

}  // namespace quire::bench
