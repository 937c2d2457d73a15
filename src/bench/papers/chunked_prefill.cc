// Agrawal et al., "Taming throughput-latency tradeoff in LLM inference with Sarathi-Serve", OSDI 2024, and Holmes et al.,
// "DeepSpeed-FastGen", 2024: prompts run in chunks beside those that generate, against steps that take a prompt whole.
#include <fmt/format.h>

#include <algorithm>

#include "bench/papers/paper.h"

namespace quire::bench {
namespace {

constexpr int kStreams = 8;
constexpr int kStreamPrompt = 16, kStreamTokens = 600;
constexpr int kPrompts = 12;
constexpr int kBudgets[] = {64, 128, 256, 512};

// Streams that generate from the start, and long prompts that arrive one after the other and want a single token, so that all
// gaps between tokens are those of the streams.
RequestTrace StreamsAndPrompts(int prompt_len, double interval_seconds, int num_prompts) {
  RequestTrace trace;
  for (std::uint64_t i = 0; i < kStreams; ++i) {
    trace.requests.push_back({.segments = {{i, kStreamPrompt}}, .num_output_tokens = kStreamTokens});
  }
  for (int i = 0; i < num_prompts; ++i) {
    trace.requests.push_back({.arrival_seconds = (i + 1) * interval_seconds,
                              .segments = {{kStreams + static_cast<std::uint64_t>(i), prompt_len}},
                              .num_output_tokens = 1});
  }
  return trace;
}

double TokensPerSecond(const ReplaySamples& samples) {
  return static_cast<double>(samples.num_input_tokens + samples.num_output_tokens) / samples.duration_seconds;
}

PaperRow RowOf(std::string prefill, const ReplaySamples& samples) {
  const Summary itl = Summary::Of(samples.itl);
  PaperRow row;
  row.Set("prefill", std::move(prefill));
  row.Set("itl_p50_ms", 1e3 * itl.p50).Set("itl_p99_ms", 1e3 * itl.p99).Set("itl_max_ms", 1e3 * itl.max);
  row.Set("ttft_max_ms", 1e3 * Summary::Of(samples.ttft).max).Set("tokens_per_second", TokensPerSecond(samples));
  return row;
}

}  // namespace

Result<PaperReport> RunChunkedPrefill(PaperRig* rig) {
  sched::SchedulerConfig config = rig->BaseConfig();
  config.max_num_seqs = 2 * kStreams;
  config.policy = sched::PolicyKind::kFcfs;
  config.enable_prefix_caching = false;
  config.max_model_len = std::min(config.max_model_len, 4096);
  config.num_blocks = BlocksForAll(config);
  const int prompt_len = std::min(4000, config.max_model_len * 3 / 4);
  config.max_num_batched_tokens = config.max_model_len + config.max_num_seqs;

  QUIRE_TRY(const ReplaySamples undisturbed, rig->Run(config, StreamsAndPrompts(prompt_len, 0, 0), {}));
  // The prompts come evenly over the time that the streams take alone.
  const RequestTrace trace = StreamsAndPrompts(prompt_len, undisturbed.duration_seconds / (kPrompts + 1), kPrompts);
  config.ablations.whole_prompts = true;
  QUIRE_TRY(const ReplaySamples whole, rig->Run(config, trace, {}));
  config.ablations.whole_prompts = false;

  PaperReport report;
  report.rows = {RowOf("no prompts arrive", undisturbed), RowOf("whole prompts", whole)};
  const double whole_p99 = Summary::Of(whole.itl).p99, undisturbed_p99 = Summary::Of(undisturbed.itl).p99;
  for (const int budget : kBudgets) {
    config.max_num_batched_tokens = budget;
    QUIRE_TRY(const ReplaySamples chunked, rig->Run(config, trace, {}));
    report.rows.push_back(RowOf(fmt::format("{} tokens a step", budget), chunked));
    const double p99 = Summary::Of(chunked.itl).p99;
    const double kept = TokensPerSecond(chunked) / TokensPerSecond(whole);
    // The smallest budget that keeps the throughput is the one to choose.
    if (kept < 0.9 || report.claim_met) continue;
    report.claim_met = p99 < whole_p99 / 2;
    report.figure = fmt::format(
        "with {} tokens a step, p99 {:.1f} ms against {:.1f} ms ({:.1f} ms without prompts), {:.0f} % of the "
        "throughput",
        budget, 1e3 * p99, 1e3 * whole_p99, 1e3 * undisturbed_p99, Percent(kept));
  }
  if (report.figure.empty()) report.figure = "no budget kept 90 % of the throughput";
  return report;
}

}  // namespace quire::bench
