#include "bench/load/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quire::bench::load {
namespace {

constexpr std::size_t kErrorsMax = 20;
constexpr double kSecondsMax = 86400;  // of the curves

std::vector<Second> CountSeconds(std::span<const Outcome> outcomes) {
  double first = HUGE_VAL, last = -HUGE_VAL;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.is_ok()) continue;
    first = std::min(first, outcome.start_seconds);
    last = std::max(last, outcome.start_seconds + outcome.latency_seconds);
  }
  if (first > last || last - first > kSecondsMax) return {};
  std::vector<Second> seconds(static_cast<std::size_t>(last - first) + 1);
  const auto second_of = [&](double at) { return std::min(static_cast<std::size_t>(at - first), seconds.size() - 1); };
  for (const Outcome& outcome : outcomes) {
    if (!outcome.is_ok()) continue;
    const std::size_t end = second_of(outcome.start_seconds + outcome.latency_seconds);
    for (std::size_t s = second_of(outcome.start_seconds); s <= end; ++s) ++seconds[s].num_requests;
    double at = outcome.start_seconds + outcome.ttft_seconds;
    ++seconds[second_of(at)].num_tokens;
    for (const double gap : outcome.itl_seconds) {
      at += gap;
      ++seconds[second_of(at)].num_tokens;
    }
  }
  return seconds;
}

}  // namespace

double Percentile(std::span<const double> sorted, double percent) {
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - static_cast<double>(below));
}

Distribution Distribution::Of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const double count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  const double squares = std::transform_reduce(values.begin(), values.end(), 0.0, std::plus<>(),
                                               [&](double value) { return (value - mean) * (value - mean); });
  return {.mean = mean,
          .std = std::sqrt(squares / count),
          .p50 = Percentile(values, 50),
          .p90 = Percentile(values, 90),
          .p95 = Percentile(values, 95),
          .p99 = Percentile(values, 99),
          .max = values.back()};
}

int Metrics::max_output_tokens_per_second() const {
  return seconds.empty() ? 0 : std::ranges::max_element(seconds, {}, &Second::num_tokens)->num_tokens;
}

int Metrics::max_concurrent_requests() const {
  return seconds.empty() ? 0 : std::ranges::max_element(seconds, {}, &Second::num_requests)->num_requests;
}

bool IsGood(const Outcome& outcome, const GoodputConfig& goodput) {
  return outcome.is_ok() && outcome.ttft_seconds * 1e3 <= goodput.ttft_ms.value_or(HUGE_VAL) &&
         outcome.tpot_seconds() * 1e3 <= goodput.tpot_ms.value_or(HUGE_VAL) &&
         outcome.latency_seconds * 1e3 <= goodput.e2el_ms.value_or(HUGE_VAL);
}

Metrics ComputeMetrics(std::span<const Outcome> outcomes, double duration_seconds, const GoodputConfig& goodput) {
  Metrics metrics{.duration_seconds = duration_seconds};
  std::vector<double> ttft, tpot, itl, e2el, late;
  for (const Outcome& outcome : outcomes) {
    late.push_back(outcome.late_seconds * 1e3);
    if (!outcome.is_ok()) {
      ++metrics.num_failed;
      const bool is_known = metrics.errors.size() < kErrorsMax || metrics.errors.contains(outcome.error);
      ++metrics.errors[is_known ? outcome.error : "others"];
      continue;
    }
    ++metrics.num_completed;
    metrics.num_input_tokens += outcome.num_prompt_tokens;
    metrics.num_output_tokens += outcome.num_output_tokens;
    metrics.num_cached_tokens += outcome.num_cached_tokens;
    metrics.num_uncounted += outcome.has_usage ? 0 : 1;
    metrics.num_good += IsGood(outcome, goodput) ? 1 : 0;
    ttft.push_back(outcome.ttft_seconds * 1e3);
    e2el.push_back(outcome.latency_seconds * 1e3);
    if (outcome.num_output_tokens > 1) tpot.push_back(outcome.tpot_seconds() * 1e3);
    for (const double gap : outcome.itl_seconds) itl.push_back(gap * 1e3);
  }
  metrics.ttft_ms = Distribution::Of(std::move(ttft));
  metrics.tpot_ms = Distribution::Of(std::move(tpot));
  metrics.itl_ms = Distribution::Of(std::move(itl));
  metrics.e2el_ms = Distribution::Of(std::move(e2el));
  const Distribution lateness = Distribution::Of(std::move(late));
  metrics.late_ms_p99 = lateness.p99;
  metrics.late_ms_max = lateness.max;
  metrics.seconds = CountSeconds(outcomes);
  return metrics;
}

}  // namespace quire::bench::load
