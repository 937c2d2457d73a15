#include "bench/load/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire::bench::load {
namespace {

TEST(Percentile, InterpolatesBetweenRanks) {
  const std::vector<double> values = {10, 20, 30, 40};  // ranks 0 … 3
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 10);
  EXPECT_DOUBLE_EQ(Percentile(values, 50), 25);    // rank 1.5
  EXPECT_DOUBLE_EQ(Percentile(values, 90), 37);    // rank 2.7
  EXPECT_DOUBLE_EQ(Percentile(values, 99), 39.7);  // rank 2.97
  EXPECT_DOUBLE_EQ(Percentile(values, 100), 40);
  EXPECT_DOUBLE_EQ(Percentile(std::vector<double>{7}, 99), 7);
}

TEST(Distribution, IsThatOfThePopulation) {
  const Distribution d = Distribution::Of({40, 10, 30, 20});
  EXPECT_DOUBLE_EQ(d.mean, 25);
  EXPECT_DOUBLE_EQ(d.std, std::sqrt(125));  // (225 + 25 + 25 + 225) / 4
  EXPECT_DOUBLE_EQ(d.p50, 25);
  EXPECT_DOUBLE_EQ(d.p95, 38.5);
  EXPECT_DOUBLE_EQ(d.max, 40);
  EXPECT_EQ(Distribution::Of({}).p99, 0);
}

// Three answers and a failure, each figure worked out by hand.
std::vector<Outcome> Outcomes() {
  return {
      // 4 tokens: 100 ms, then gaps of 10, 20 and 60 ms. TPOT 90 / 3 = 30.
      {.start_seconds = 0,
       .ttft_seconds = 0.100,
       .latency_seconds = 0.190,
       .itl_seconds = {0.010, 0.020, 0.060},
       .num_prompt_tokens = 10,
       .num_cached_tokens = 4,
       .num_output_tokens = 4,
       .has_usage = true},
      // 5 tokens in 3 chunks: TPOT 40 / 4 = 10, while its gaps are 30 and 10.
      {.start_seconds = 0.5,
       .ttft_seconds = 0.200,
       .latency_seconds = 0.240,
       .itl_seconds = {0.030, 0.010},
       .num_prompt_tokens = 20,
       .num_output_tokens = 5,
       .has_usage = true},
      // One token: no TPOT, no gap.
      {.start_seconds = 1.7,
       .late_seconds = 0.004,
       .ttft_seconds = 0.400,
       .latency_seconds = 0.400,
       .num_prompt_tokens = 30,
       .num_output_tokens = 1},
      {.start_seconds = 1.8,
       .ttft_seconds = 0.001,
       .latency_seconds = 9,
       .itl_seconds = {8.999},
       .num_prompt_tokens = 40,
       .num_output_tokens = 2,
       .error = "HTTP 503"},
  };
}

TEST(Metrics, AreThoseOfTheDefinitions) {
  const Metrics m = ComputeMetrics(Outcomes(), 2.5, {});
  EXPECT_EQ(m.num_completed, 3);
  EXPECT_EQ(m.num_failed, 1);
  EXPECT_EQ(m.num_uncounted, 1);
  EXPECT_EQ(m.num_input_tokens, 60);
  EXPECT_EQ(m.num_output_tokens, 10);
  EXPECT_EQ(m.num_cached_tokens, 4);
  EXPECT_DOUBLE_EQ(m.request_throughput(), 1.2);
  EXPECT_DOUBLE_EQ(m.output_throughput(), 4);
  EXPECT_DOUBLE_EQ(m.total_token_throughput(), 28);
  EXPECT_DOUBLE_EQ(m.ttft_ms.mean, 700.0 / 3);
  EXPECT_DOUBLE_EQ(m.ttft_ms.p50, 200);
  EXPECT_DOUBLE_EQ(m.ttft_ms.p99, 396);  // rank 1.98 of 100, 200, 400
  EXPECT_DOUBLE_EQ(m.tpot_ms.mean, 20);  // of 30 and 10
  EXPECT_DOUBLE_EQ(m.tpot_ms.p90, 28);
  EXPECT_NEAR(m.itl_ms.mean, 26, 1e-9);  // 10, 10, 20, 30, 60
  EXPECT_NEAR(m.itl_ms.p50, 20, 1e-9);
  EXPECT_NEAR(m.itl_ms.max, 60, 1e-9);
  EXPECT_DOUBLE_EQ(m.e2el_ms.p50, 240);
  EXPECT_DOUBLE_EQ(m.e2el_ms.max, 400);
  EXPECT_DOUBLE_EQ(m.late_ms_max, 4);
  EXPECT_EQ(m.errors, (std::map<std::string, int>{{"HTTP 503", 1}}));
}

TEST(Metrics, CountWhatEachSecondSaw) {
  const Metrics m = ComputeMetrics(Outcomes(), 2.5, {});
  // From 0 to 2.1: three seconds. Tokens at 0.10, 0.11, 0.13, 0.19, 0.70, 0.73, 0.74 and 2.10.
  ASSERT_EQ(m.seconds.size(), 3);
  EXPECT_EQ(m.seconds[0].num_tokens, 7);
  EXPECT_EQ(m.seconds[1].num_tokens, 0);
  EXPECT_EQ(m.seconds[2].num_tokens, 1);
  EXPECT_EQ(m.seconds[0].num_requests, 2);
  EXPECT_EQ(m.seconds[1].num_requests, 1);
  EXPECT_EQ(m.max_output_tokens_per_second(), 7);
  EXPECT_EQ(m.max_concurrent_requests(), 2);
}

TEST(Metrics, GoodputCountsWhoKeepsAllLimits) {
  const auto good = [](GoodputConfig goodput) { return ComputeMetrics(Outcomes(), 2.5, goodput).num_good; };
  EXPECT_EQ(good({.ttft_ms = 200}), 2);  // the limit itself is kept
  EXPECT_EQ(good({.ttft_ms = 199.9}), 1);
  EXPECT_EQ(good({.tpot_ms = 15}), 2);  // a single token has a TPOT of 0
  EXPECT_EQ(good({.ttft_ms = 250, .tpot_ms = 15}), 1);
  EXPECT_EQ(good({.e2el_ms = 300}), 2);
  EXPECT_EQ(good({.ttft_ms = 1e9, .tpot_ms = 1e9, .e2el_ms = 1e9}), 3);  // never one that failed
  EXPECT_DOUBLE_EQ(ComputeMetrics(Outcomes(), 2.5, {.ttft_ms = 200}).request_goodput(), 0.8);
}

TEST(Metrics, OfNothingAreZero) {
  const Metrics m = ComputeMetrics({}, 0, {});
  EXPECT_EQ(m.request_throughput(), 0);
  EXPECT_EQ(m.ttft_ms.p99, 0);
  EXPECT_EQ(m.max_concurrent_requests(), 0);
}

TEST(Metrics, KeepAFewKindsOfErrors) {
  std::vector<Outcome> outcomes(100);
  for (std::size_t i = 0; i < outcomes.size(); ++i) outcomes[i].error = "error " + std::to_string(i);
  const Metrics m = ComputeMetrics(outcomes, 1, {});
  EXPECT_EQ(m.errors.size(), 21);
  EXPECT_EQ(m.errors.at("others"), 80);
}

TEST(GoodputConfig, ReadsPairs) {
  const Result<GoodputConfig> config = GoodputConfig::Parse({"ttft:500", "tpot:50.5"});
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->ttft_ms, 500);
  EXPECT_EQ(config->tpot_ms, 50.5);
  EXPECT_FALSE(config->e2el_ms.has_value());
  for (const char* bad : {"", "ttft", "ttft:", "ttft:x", "ttft:5ms", "ttft:0", "ttft:-1", "ttft:nan", "itl:5", ":5"}) {
    EXPECT_FALSE(GoodputConfig::Parse({bad}).has_value()) << bad;
  }
}

}  // namespace
}  // namespace quire::bench::load
