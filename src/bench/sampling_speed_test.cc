// What is measured, on the demo model; speeds are not judged.
#include "bench/sampling_speed.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "engine/loader.h"

namespace quire::bench {
namespace {

TEST(SamplingSpeed, EachWayToSampleHasItsShareOfAStep) {
  const auto loaded =
      engine::LoadModel({.model = std::string(QUIRE_SOURCE_DIR) + "/models/demo", .num_threads = 2}, {});
  ASSERT_TRUE(loaded) << loaded.error().message;
  const SamplingSpeedOptions options{.num_sequences = 5, .num_steps = 20, .repeats = 2};
  const auto report = MeasureSamplingSpeed(*loaded->model, loaded->kernels, loaded->pool.get(), options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->num_sequences, 5);
  EXPECT_EQ(report->vocab_size, 4096);
  ASSERT_GE(report->rows.size(), 3u);
  for (const SamplingSpeedRow& row : report->rows) {
    EXPECT_GT(row.sampling_seconds, 0) << row.params;
    EXPECT_LT(row.sampling_seconds, row.step_seconds) << row.params;
    EXPECT_LE(row.share_min, row.share);
    EXPECT_LE(row.share, row.share_max);
    EXPECT_NE(report->ToText().find(row.params), std::string::npos);
  }
  EXPECT_EQ(ParseJson(report->ToJson(), "report").value().at("rows").as_array().size(), report->rows.size());
}

TEST(SamplingSpeed, OptionsAreChecked) {
  EXPECT_TRUE(SamplingSpeedOptions{}.Validate());
  EXPECT_EQ(SamplingSpeedOptions{.num_sequences = 0}.Validate().error().param, "num-seqs");
  EXPECT_EQ(SamplingSpeedOptions{.num_steps = 0}.Validate().error().param, "steps");
  EXPECT_EQ(SamplingSpeedOptions{.repeats = 0}.Validate().error().param, "repeats");
}

}  // namespace
}  // namespace quire::bench
