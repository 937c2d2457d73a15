// Kwon et al., "Efficient memory management for large language model serving with PagedAttention", SOSP 2023: blocks that are
// taken when they are needed, against one contiguous reservation of the longest length for each sequence.
#include <fmt/format.h>

#include <algorithm>

#include "bench/papers/paper.h"

namespace quire::bench {
namespace {

constexpr int kLength = 2048;     // of a reservation, as the paper's largest
constexpr int kReservations = 2;  // that the memory holds: few, as larger batches gain little on a CPU
constexpr int kRequests = 32;

// Of the tokens that there is memory for, those that no token stands in, averaged over time.
double Waste(const ReplaySamples& samples, int block_size) {
  return 1 - samples.steps.tokens / (samples.steps.blocks * block_size);
}

PaperRow RowOf(const char* memory, const ReplaySamples& samples, int block_size) {
  PaperRow row;
  row.Set("memory", memory).Set("waste_percent", Percent(Waste(samples, block_size)));
  row.Set("sequences_mean", samples.steps.sequences / samples.steps.seconds);
  row.Set("sequences_max", static_cast<double>(samples.steps.max_sequences));
  row.Set("output_tokens_per_second", samples.output_tokens_per_second());
  row.Set("latency_p50_seconds", Summary::Of(samples.latency).p50);
  row.Set("preemptions", static_cast<double>(samples.num_preemptions));
  return row;
}

}  // namespace

Result<PaperReport> RunPagedKv(PaperRig* rig) {
  sched::SchedulerConfig config = rig->BaseConfig();
  config.max_model_len = std::min(config.max_model_len, kLength);
  config.enable_prefix_caching = false;  // not what this is about
  config.num_blocks = kReservations * ((config.max_model_len + config.block_size - 1) / config.block_size);
  const RequestTrace trace = ChatTrace(kRequests, config.max_model_len);
  QUIRE_TRY(const ReplaySamples paged, rig->Run(config, trace, {}));
  config.ablations.reserve_max_model_len = true;
  QUIRE_TRY(const ReplaySamples reserved, rig->Run(config, trace, {}));

  const double waste = Waste(paged, config.block_size), waste_before = Waste(reserved, config.block_size);
  const double sequences =
      (paged.steps.sequences / paged.steps.seconds) / (reserved.steps.sequences / reserved.steps.seconds);
  const double throughput = paged.output_tokens_per_second() / reserved.output_tokens_per_second();
  PaperReport report;
  report.rows = {RowOf("reserved max length", reserved, config.block_size), RowOf("paged", paged, config.block_size)};
  report.figure = fmt::format("waste {:.1f} % against {:.1f} %; {:.1f} x the sequences, {:.1f} x the throughput",
                              Percent(waste), Percent(waste_before), sequences, throughput);
  report.claim_met = waste < 0.04 && waste_before >= 0.6 && sequences >= 2 && throughput >= 2;
  return report;
}

}  // namespace quire::bench
