#include "bench/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/counter_rng.h"
#include "base/json.h"

namespace quire::bench {
namespace {

constexpr std::chrono::seconds kSilenceMax{600};
constexpr std::uint64_t kPrefixStream = 0;  // prompt i draws from the stream i + 1

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

TokenId DrawToken(std::uint64_t seed, std::uint64_t stream, int position, int vocab_size) {
  const double draw = UniformDouble(seed * 0x9E3779B97F4A7C15u + stream, static_cast<std::uint64_t>(position));
  return TokenId(std::min(static_cast<std::int32_t>(draw * vocab_size), vocab_size - 1));
}

GenerateRequest MakeRequest(const WorkloadConfig& config, std::uint64_t index, int vocab_size) {
  GenerateRequest request;
  request.id = RequestId(index + 1);
  // Nothing is shared with what ran before, but for the prefix that this run shares within itself.
  request.cache_salt = fmt::format("workload {} {}", config.seed, config.prefix_len > 0 ? 0 : index);
  request.prompt.reserve(static_cast<std::size_t>(config.input_len));
  for (int i = 0; i < config.input_len; ++i) {
    const std::uint64_t stream = i < config.prefix_len ? kPrefixStream : index + 1;
    request.prompt.push_back(DrawToken(static_cast<std::uint64_t>(config.seed), stream, i, vocab_size));
  }
  request.sampling.temperature = 0;
  request.stop = {.max_tokens = config.output_len, .ignore_eos = true};
  return request;
}

// Requests in flight and the samples of those that have ended.
class Meter {
 public:
  explicit Meter(const Clock* clock) : clock_(clock) {}

  void Started(RequestId id) { running_[id] = {.submitted = clock_->Now()}; }
  std::size_t num_running() const { return running_.size(); }
  const std::vector<RequestSample>& samples() const { return samples_; }

  Result<> Take(const EngineEvent& event) {
    const auto found = running_.find(event.request);
    if (found == running_.end()) return {};
    Running& running = found->second;
    const TimePoint now = clock_->Now();
    if (!event.tokens.empty()) {
      if (running.sample.num_output_tokens == 0) {
        running.sample.ttft_seconds = Seconds(now - running.submitted);
      } else {
        running.sample.itl_seconds.push_back(Seconds(now - running.last_token));
      }
      running.last_token = now;
      running.sample.num_output_tokens += static_cast<int>(event.tokens.size());
    }
    running.sample.num_cached_tokens = std::max(running.sample.num_cached_tokens, event.num_cached_tokens);
    if (event.finish_reason == FinishReason::kNone) return {};
    if (HasFailed(event.finish_reason)) {
      return Fail(ErrorCode::kInternal, "request {} failed: {}", event.request, event.error);
    }
    running.sample.latency_seconds = Seconds(now - running.submitted);
    samples_.push_back(std::move(running.sample));
    running_.erase(found);
    return {};
  }

 private:
  struct Running {
    TimePoint submitted{}, last_token{};
    RequestSample sample;
  };

  const Clock* clock_;
  std::unordered_map<RequestId, Running> running_;
  std::vector<RequestSample> samples_;
};

// Runs the requests of [begin, end) and returns their samples.
Result<std::vector<RequestSample>> RunRequests(EngineClient* engine, const WorkloadConfig& config, std::uint64_t begin,
                                               std::uint64_t end, int vocab_size, const Clock& clock) {
  Meter meter(&clock);
  for (std::uint64_t next = begin; next < end || meter.num_running() > 0;) {
    while (next < end && std::cmp_less(meter.num_running(), config.max_concurrency)) {
      GenerateRequest request = MakeRequest(config, next, vocab_size);
      const RequestId id = request.id;
      meter.Started(id);
      QUIRE_TRY_VOID(engine->Submit(std::move(request)));
      ++next;
    }
    const auto events = engine->Next(kSilenceMax);
    if (!events) return Fail(ErrorCode::kUnavailable, "the engine is gone");
    if (events->empty()) {
      return Fail(ErrorCode::kUnavailable, "the engine said nothing for {} seconds", kSilenceMax.count());
    }
    for (const EngineEvent& event : *events) QUIRE_TRY_VOID(meter.Take(event));
  }
  return meter.samples();
}

void WriteSummary(JsonWriter* writer, std::string_view name, const Summary& summary) {
  writer->Key(fmt::format("{}_seconds", name)).BeginObject();
  writer->Key("mean").Double(summary.mean).Key("p50").Double(summary.p50).Key("p90").Double(summary.p90);
  writer->Key("p99").Double(summary.p99).Key("max").Double(summary.max).EndObject();
}

std::string SummaryRow(std::string_view name, const Summary& summary) {
  const auto ms = [](double seconds) { return fmt::format("{:10.2f}", seconds * 1e3); };
  return fmt::format("{:<28}{}{}{}{}{}\n", name, ms(summary.mean), ms(summary.p50), ms(summary.p90), ms(summary.p99),
                     ms(summary.max));
}

Result<> AtLeast(const char* field, int value, int least) {
  if (value >= least) return {};
  return FailParam(field, "{} is {}; it must be at least {}", field, value, least);
}

}  // namespace

Result<> WorkloadConfig::Validate(const EngineInfo& info) const {
  QUIRE_TRY_VOID(AtLeast("input-len", input_len, 1));
  QUIRE_TRY_VOID(AtLeast("output-len", output_len, 1));
  QUIRE_TRY_VOID(AtLeast("prefix-len", prefix_len, 0));
  QUIRE_TRY_VOID(AtLeast("num-prompts", num_prompts, 1));
  QUIRE_TRY_VOID(AtLeast("num-warmup", num_warmup, 0));
  QUIRE_TRY_VOID(AtLeast("max-concurrency", max_concurrency, 1));
  if (prefix_len > input_len) {
    return FailParam("prefix-len", "prefix-len is {}; a prompt has only {} tokens (input-len)", prefix_len, input_len);
  }
  if (std::int64_t{input_len} + output_len > info.max_model_len) {
    return FailParam("input-len", "input-len and output-len come to {} tokens; this model and memory allow {}",
                     std::int64_t{input_len} + output_len, info.max_model_len);
  }
  return {};
}

Summary Summary::Of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto percentile = [&](double p) {
    const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(values.size())));
    return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
  };
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.mean = sum / static_cast<double>(values.size()),
          .p50 = percentile(0.5),
          .p90 = percentile(0.9),
          .p99 = percentile(0.99),
          .max = values.back()};
}

Result<WorkloadReport> RunWorkload(EngineClient* engine, const WorkloadConfig& config, const Clock& clock) {
  QUIRE_TRY(const EngineInfo info, engine->Info());
  QUIRE_TRY_VOID(config.Validate(info));
  const auto num_warmup = static_cast<std::uint64_t>(config.num_warmup);
  const auto num_prompts = static_cast<std::uint64_t>(config.num_prompts);
  QUIRE_TRY_VOID(RunRequests(engine, config, 0, num_warmup, info.vocab_size, clock));

  WorkloadReport report{.config = config};
  const TimePoint start = clock.Now();
  QUIRE_TRY(const std::vector<RequestSample> samples,
            RunRequests(engine, config, num_warmup, num_warmup + num_prompts, info.vocab_size, clock));
  report.duration_seconds = Seconds(clock.Now() - start);

  std::vector<double> ttft, tpot, itl, latency;
  for (const RequestSample& sample : samples) {
    report.num_input_tokens += config.input_len;
    report.num_output_tokens += sample.num_output_tokens;
    report.num_cached_tokens += sample.num_cached_tokens;
    ttft.push_back(sample.ttft_seconds);
    latency.push_back(sample.latency_seconds);
    if (sample.num_output_tokens > 1) tpot.push_back(sample.tpot_seconds());
    itl.insert(itl.end(), sample.itl_seconds.begin(), sample.itl_seconds.end());
  }
  report.ttft = Summary::Of(std::move(ttft));
  report.tpot = Summary::Of(std::move(tpot));
  report.itl = Summary::Of(std::move(itl));
  report.latency = Summary::Of(std::move(latency));
  return report;
}

std::string WorkloadReport::ToJson() const {
  std::string text;
  JsonWriter writer(&text);
  writer.BeginObject();
  writer.Key("num_prompts").Int(config.num_prompts).Key("max_concurrency").Int(config.max_concurrency);
  writer.Key("input_len").Int(config.input_len).Key("output_len").Int(config.output_len);
  writer.Key("prefix_len").Int(config.prefix_len).Key("duration_seconds").Double(duration_seconds);
  writer.Key("input_tokens").Int(num_input_tokens).Key("output_tokens").Int(num_output_tokens);
  writer.Key("cached_tokens").Int(num_cached_tokens);
  writer.Key("requests_per_second").Double(requests_per_second());
  writer.Key("output_tokens_per_second").Double(output_tokens_per_second());
  writer.Key("total_tokens_per_second").Double(total_tokens_per_second());
  WriteSummary(&writer, "ttft", ttft);
  WriteSummary(&writer, "tpot", tpot);
  WriteSummary(&writer, "itl", itl);
  WriteSummary(&writer, "latency", latency);
  writer.EndObject();
  return text;
}

std::string WorkloadReport::ToTable() const {
  std::string text =
      fmt::format("{} requests of {} + {} tokens, {} at a time, in {:.2f} s\n", config.num_prompts, config.input_len,
                  config.output_len, std::min(config.max_concurrency, config.num_prompts), duration_seconds);
  text += fmt::format("  requests/s {:.2f}   output tokens/s {:.1f}   total tokens/s {:.1f}\n", requests_per_second(),
                      output_tokens_per_second(), total_tokens_per_second());
  if (num_cached_tokens > 0) {
    text += fmt::format("  prefix cache: {} of {} prompt tokens ({:.0f} %)\n", num_cached_tokens, num_input_tokens,
                        100.0 * static_cast<double>(num_cached_tokens) / static_cast<double>(num_input_tokens));
  }
  text += fmt::format("\n{:<28}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "mean", "p50", "p90", "p99", "max");
  text += SummaryRow("time to first token (TTFT)", ttft);
  text += SummaryRow("time per output token (TPOT)", tpot);
  text += SummaryRow("inter-token latency (ITL)", itl);
  text += SummaryRow("latency of a request", latency);
  return text;
}

}  // namespace quire::bench
