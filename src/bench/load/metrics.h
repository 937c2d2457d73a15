// The figures of a run, defined as vLLM's `bench serve` defines them:
//   TTFT   from sending a request to its first chunk
//   ITL    between the chunks of an answer; all answers together
//   TPOT   (latency − TTFT) / (output tokens − 1), of answers with more than one token
//   E2EL   from sending a request to its last chunk
//   goodput   requests a second that keep all given limits; a single token has a TPOT of 0
// Percentiles interpolate linearly between ranks (numpy's default), std is that of the population. Failed requests
// count as failed and in no time.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/load/answer_meter.h"
#include "bench/load/config.h"

namespace quire::bench::load {

struct Distribution {
  double mean = 0, std = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
  static Distribution Of(std::vector<double> values);
};

// The value at `percent` of sorted values that are not empty.
double Percentile(std::span<const double> sorted, double percent);

// What happened in one second of the run, counted from the first request that succeeded.
struct Second {
  int num_tokens = 0;    // chunks that came
  int num_requests = 0;  // that ran in it
};

struct Metrics {
  int num_completed = 0, num_failed = 0, num_good = 0;
  double duration_seconds = 0;
  std::int64_t num_input_tokens = 0, num_output_tokens = 0, num_cached_tokens = 0;
  int num_uncounted = 0;  // completed answers whose tokens the server did not count
  Distribution ttft_ms, tpot_ms, itl_ms, e2el_ms;
  double late_ms_p99 = 0, late_ms_max = 0;  // of sending: the generator's own lateness
  std::vector<Second> seconds;
  std::map<std::string, int> errors;  // how often each

  double PerSecond(std::int64_t count) const {
    return duration_seconds > 0 ? static_cast<double>(count) / duration_seconds : 0;
  }
  double request_throughput() const { return PerSecond(num_completed); }
  double request_goodput() const { return PerSecond(num_good); }
  double output_throughput() const { return PerSecond(num_output_tokens); }
  double total_token_throughput() const { return PerSecond(num_input_tokens + num_output_tokens); }
  int max_output_tokens_per_second() const;
  int max_concurrent_requests() const;
};

bool IsGood(const Outcome& outcome, const GoodputConfig& goodput);
Metrics ComputeMetrics(std::span<const Outcome> outcomes, double duration_seconds, const GoodputConfig& goodput);

}  // namespace quire::bench::load
