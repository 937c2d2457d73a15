// Kwon et al. (SOSP 2023), section 6.3: the sequences of one request share the blocks of what they have in common. The part
// of all blocks that is saved so, averaged over time, on instructions of Alpaca's lengths.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bench/papers/paper.h"

namespace quire::bench {
namespace {

constexpr int kRequests = 96, kConcurrency = 16;
constexpr int kCounts[] = {2, 4, 6};  // choices, or beams

// What the paper found, as parts of one: the least that counts as the same.
struct Decoding {
  const char* name;
  bool has_beams;
  double least_saved;
};
constexpr Decoding kDecodings[] = {{"parallel sampling", false, 0.06}, {"beam search", true, 0.37}};

double Saved(const ReplaySamples& samples) {
  return 1 - samples.steps.distinct_blocks / samples.steps.blocks;
}

Result<double> Measure(PaperRig* rig, const Decoding& decoding, int count, std::vector<PaperRow>* rows) {
  sched::SchedulerConfig config = rig->BaseConfig();
  config.max_model_len = std::min(config.max_model_len, 2048);
  config.max_num_seqs = kConcurrency * count;  // choices that found no place would compute the prompt again
  config.enable_prefix_caching = false;        // requests share nothing with each other
  config.num_blocks = BlocksForAll(config) / 4;
  RequestTrace trace = InstructionTrace(kRequests, config.max_model_len / 4);
  for (TraceRequest& request : trace.requests) (decoding.has_beams ? request.beam_width : request.num_choices) = count;
  QUIRE_TRY(const ReplaySamples samples,
            rig->Run(config, trace, {.replay = {.max_concurrency = kConcurrency, .counts_distinct_blocks = true}}));
  PaperRow row;
  row.Set("decoding", decoding.name).Set("sequences_per_request", static_cast<double>(count));
  row.Set("blocks_mean_unshared", samples.steps.blocks / samples.steps.seconds);
  row.Set("blocks_mean", samples.steps.distinct_blocks / samples.steps.seconds);
  row.Set("saved_percent", Percent(Saved(samples)));
  rows->push_back(std::move(row));
  return Saved(samples);
}

}  // namespace

Result<PaperReport> RunSharing(PaperRig* rig) {
  PaperReport report;
  report.claim_met = true;
  for (const Decoding& decoding : kDecodings) {
    double least = 1, most = 0;
    for (const int count : kCounts) {
      QUIRE_TRY(const double saved, Measure(rig, decoding, count, &report.rows));
      least = std::min(least, saved);
      most = std::max(most, saved);
    }
    report.figure += fmt::format("{}{} saves {:.1f} to {:.1f} %", report.figure.empty() ? "" : ", ", decoding.name,
                                 Percent(least), Percent(most));
    report.claim_met &= most >= decoding.least_saved;
  }
  return report;
}

}  // namespace quire::bench
