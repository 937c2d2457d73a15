// Yu et al., "Orca: a distributed serving system for transformer-based generative models", OSDI 2022: who has finished leaves
// the batch after each step and the next one comes, against batches that are fixed until their longest answer ends.
#include <fmt/format.h>

#include <algorithm>

#include "bench/papers/paper.h"

namespace quire::bench {
namespace {

constexpr int kBatch = 32;
constexpr int kRequests = 128;  // four batches

// A batch that is computed as one tensor goes on for all of its members until the longest has ended; what it generates for
// those that had ended before is thrown away.
RequestTrace PaddedToBatches(RequestTrace trace, int max_model_len) {
  for (std::size_t begin = 0; begin < trace.requests.size(); begin += kBatch) {
    const std::size_t end = std::min(begin + kBatch, trace.requests.size());
    const auto batch = std::span(trace.requests).subspan(begin, end - begin);
    const int longest = std::ranges::max_element(batch, {}, &TraceRequest::num_output_tokens)->num_output_tokens;
    for (TraceRequest& request : batch) {
      request.num_output_tokens = std::min(longest, max_model_len - request.num_prompt_tokens());
    }
  }
  return trace;
}

}  // namespace

Result<PaperReport> RunContinuousBatching(PaperRig* rig) {
  sched::SchedulerConfig config = rig->BaseConfig();
  config.max_num_seqs = kBatch;
  config.policy = sched::PolicyKind::kFcfs;
  config.enable_prefix_caching = false;
  config.max_model_len = std::min(config.max_model_len, 2048);
  config.num_blocks = BlocksForAll(config);
  const RequestTrace trace = ChatTrace(kRequests, config.max_model_len);
  double useful_tokens = 0;
  for (const TraceRequest& request : trace.requests) useful_tokens += request.num_output_tokens;

  QUIRE_TRY(const ReplaySamples continuous, rig->Run(config, trace, {}));
  config.ablations.static_batching = true;
  QUIRE_TRY(const ReplaySamples idle, rig->Run(config, trace, {}));
  QUIRE_TRY(const ReplaySamples padded, rig->Run(config, PaddedToBatches(trace, config.max_model_len), {}));

  PaperReport report;
  const double best = useful_tokens / continuous.duration_seconds;
  const auto row = [&](const char* batching, const ReplaySamples& samples) {
    const double rate = useful_tokens / samples.duration_seconds;
    PaperRow made;
    made.Set("batching", batching).Set("output_tokens_per_second", rate).Set("continuous_is_faster_by", best / rate);
    made.Set("sequences_mean", samples.steps.sequences / samples.steps.seconds);
    made.Set("latency_p50_seconds", Summary::Of(samples.latency).p50);
    made.Set("ttft_p50_seconds", Summary::Of(samples.ttft).p50);
    report.rows.push_back(std::move(made));
    return best / rate;
  };
  const double gain = row("static, ended places are computed", padded);
  const double gain_over_idle = row("static, ended places stay empty", idle);
  row("continuous", continuous);
  report.figure = fmt::format("{:.1f} x the throughput of static batching ({:.1f} x if ended places cost nothing)",
                              gain, gain_over_idle);
  report.claim_met = gain >= 3;
  return report;
}

}  // namespace quire::bench
