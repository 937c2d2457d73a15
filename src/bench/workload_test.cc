#include "bench/workload.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/json.h"
#include "wire/testing/fake_engine.h"

namespace quire::bench {
namespace {

TEST(Summary, UsesNearestRanks) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1.0);  // 1 … 100, in the wrong order
  const Summary summary = Summary::Of(values);
  EXPECT_EQ(summary.mean, 50.5);
  EXPECT_EQ(summary.p50, 50);
  EXPECT_EQ(summary.p90, 90);
  EXPECT_EQ(summary.p99, 99);
  EXPECT_EQ(summary.max, 100);
  EXPECT_EQ(Summary::Of({7}).p99, 7);
  EXPECT_EQ(Summary::Of({}).max, 0);
}

TEST(Workload, CountsWhatWasGenerated) {
  wire::testing::FakeEngine engine;
  const SteadyClock clock;
  const WorkloadConfig config{
      .input_len = 20, .output_len = 7, .num_prompts = 11, .num_warmup = 3, .max_concurrency = 4};
  const Result<WorkloadReport> report = RunWorkload(&engine, config, clock);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->num_input_tokens, 220);
  EXPECT_EQ(report->num_output_tokens, 77);
  EXPECT_GT(report->output_tokens_per_second(), 0);
  EXPECT_LE(report->ttft.max, report->latency.max);
  const Result<json::value> json = ParseJson(report->ToJson(), "report");
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->at("output_tokens").as_int64(), 77);
  EXPECT_TRUE(json->at("ttft_seconds").as_object().contains("p99"));
  EXPECT_NE(report->ToTable().find("11 requests of 20 + 7 tokens, 4 at a time"), std::string::npos);
}

TEST(Workload, RefusesSizesThatDoNotFit) {
  wire::testing::FakeEngine engine;
  const SteadyClock clock;
  const auto blames = [&](const WorkloadConfig& config) {
    const Result<WorkloadReport> report = RunWorkload(&engine, config, clock);
    return report ? std::string() : report.error().param;
  };
  EXPECT_EQ(blames({.input_len = 0}), "input-len");
  EXPECT_EQ(blames({.input_len = 4000, .output_len = 1000}), "input-len");
  EXPECT_EQ(blames({.output_len = 0}), "output-len");
  EXPECT_EQ(blames({.input_len = 10, .prefix_len = 11}), "prefix-len");
  EXPECT_EQ(blames({.num_prompts = 0}), "num-prompts");
  EXPECT_EQ(blames({.max_concurrency = 0}), "max-concurrency");
}

TEST(Workload, AFailingEngineIsReported) {
  wire::testing::FakeEngine engine;
  engine.Die();
  const SteadyClock clock;
  EXPECT_FALSE(RunWorkload(&engine, {.input_len = 4}, clock).has_value());
}

}  // namespace
}  // namespace quire::bench
