#include "bench/simulation/request_trace.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

#include "base/counter_rng.h"
#include "bench/load/dataset.h"

namespace quire::bench {
namespace {

constexpr int kTokensMax = 1 << 24;       // of a request
constexpr int kRequestsMax = 10'000'000;  // of a trace that is made up

// Contents of segments that are of one request only begin here; those that a file names come before.
constexpr std::uint64_t kOwnContents = std::uint64_t{1} << 62;

std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
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
  QUIRE_TRY(const load::Dataset dataset,
            load::MakeDataset({.kind = load::DatasetKind::kTrace, .path = path, .num_prompts = 0}));
  RequestTrace trace{.description = path.filename().string(), .requests = {}};
  const double start_seconds = dataset.requests.front().arrival_seconds;
  for (const load::Request& read : dataset.requests) {
    TraceRequest request{
        .arrival_seconds = read.arrival_seconds - start_seconds, .segments = {}, .num_output_tokens = read.max_tokens};
    for (const load::PromptPart& part : read.parts) request.segments.push_back({part.stream, part.num_tokens});
    trace.requests.push_back(std::move(request));
  }
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
  if (request.beam_width > 0) made.sampling.beam = {.width = request.beam_width};
  made.sampling.seed = index;
  made.stop = {.max_tokens = request.num_output_tokens, .ignore_eos = true};
  return made;
}

}  // namespace quire::bench
