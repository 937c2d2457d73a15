// Kwon et al. (SOSP 2023), section 6.3: the choices of one request share the blocks of what they have in common. The part of
// all blocks that is saved so, averaged over time, on instructions of Alpaca's lengths.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bench/papers/paper.h"

namespace quire::bench {
namespace {

constexpr int kRequests = 48;
constexpr int kCounts[] = {2, 4, 6};  // choices, or beams

double Saved(const ReplaySamples& samples) {
  return 1 - samples.steps.distinct_blocks / samples.steps.blocks;
}

Result<double> Measure(PaperRig* rig, int count, std::vector<PaperRow>* rows) {
  sched::SchedulerConfig config = rig->BaseConfig();
  config.max_model_len = std::min(config.max_model_len, 2048);
  config.max_num_seqs = 64;
  config.enable_prefix_caching = false;  // requests share nothing with each other
  config.num_blocks = BlocksForAll(config) / 4;
  RequestTrace trace = InstructionTrace(kRequests, config.max_model_len / 4);
  for (TraceRequest& request : trace.requests) request.num_choices = count;
  QUIRE_TRY(const ReplaySamples samples, rig->Run(config, trace, {.counts_distinct_blocks = true}));
  PaperRow row;
  row.Set("decoding", "parallel sampling").Set("sequences_per_request", static_cast<double>(count));
  row.Set("blocks_mean_unshared", samples.steps.blocks / samples.steps.seconds);
  row.Set("blocks_mean", samples.steps.distinct_blocks / samples.steps.seconds);
  row.Set("saved_percent", Percent(Saved(samples)));
  rows->push_back(std::move(row));
  return Saved(samples);
}

}  // namespace

Result<PaperReport> RunSharing(PaperRig* rig) {
  PaperReport report;
  double least = 1, most = 0;
  for (const int count : kCounts) {
    QUIRE_TRY(const double saved, Measure(rig, count, &report.rows));
    least = std::min(least, saved);
    most = std::max(most, saved);
  }
  report.figure = fmt::format("parallel sampling saves {:.1f} to {:.1f} %; beam search is not measured yet",
                              Percent(least), Percent(most));
  report.claim_met = false;  // half of it is missing
  return report;
}

}  // namespace quire::bench
