// Planning a step while the one before it is computed, as SGLang's overlapped scheduler and vLLM's asynchronous one do (both
// 2024): what that hides, and what it costs where computing has no core to give away.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/median.h"
#include "bench/papers/paper.h"

namespace quire::bench {
namespace {

constexpr int kBatches[] = {1, 16, 128};
constexpr int kPromptLen = 32, kOutputLen = 160;
constexpr int kNumModes = 3;
constexpr int kRounds = 5;  // of all modes in turn; an odd number, for the median

RequestTrace Streams(int count) {
  RequestTrace trace;
  for (int i = 0; i < count; ++i) {
    trace.requests.push_back(
        {.segments = {{static_cast<std::uint64_t>(i), kPromptLen}}, .num_output_tokens = kOutputLen});
  }
  return trace;
}

}  // namespace

Result<PaperReport> RunAsync(PaperRig* rig) {
  sched::SchedulerConfig config = rig->BaseConfig();
  config.policy = sched::PolicyKind::kFcfs;
  config.max_model_len = kPromptLen + kOutputLen + 1;
  PaperReport report;
  double most = 0, least = 1e9;
  for (const bool spares_a_core : {true, false}) {
    for (const int batch : kBatches) {
      config.max_num_seqs = batch;
      config.num_blocks = BlocksForAll(config);
      std::array<std::vector<double>, kNumModes> gains, rates;
      for (int round = 0; round < kRounds; ++round) {
        for (int mode = 0; mode < kNumModes; ++mode) {
          QUIRE_TRY(const ReplaySamples samples,
                    rig->Run(config, Streams(batch), {.async_scheduling = mode, .spares_a_core = spares_a_core}));
          const auto index = static_cast<std::size_t>(mode);
          rates[index].push_back(samples.output_tokens_per_second());
          gains[index].push_back(rates[index].back() / rates.front().back());
        }
      }
      for (std::size_t mode = 0; mode < kNumModes; ++mode) {
        const double gain = Median(gains[mode]);
        PaperRow row;
        row.Set("cores", spares_a_core ? "one is left" : "all compute").Set("sequences", static_cast<double>(batch));
        row.Set("async_scheduling", static_cast<double>(mode));
        row.Set("output_tokens_per_second", Median(rates[mode])).Set("of_0_percent", Percent(gain));
        report.rows.push_back(std::move(row));
        if (mode == 0) continue;
        most = std::max(most, gain);
        least = std::min(least, gain);
      }
    }
  }
  report.figure =
      fmt::format("{:.0f} % of the throughput of 0 at best, {:.0f} % at worst", Percent(most), Percent(least));
  report.claim_met = most > 1.02;
  return report;
}

}  // namespace quire::bench
