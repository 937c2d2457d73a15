// The benchmarks' own arithmetic and output, on the smallest runs that exercise them; speeds are not judged.
#include "bench/roofline.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "bench/kernel_speed.h"
#include "kernels/cpu_features.h"

namespace quire::bench {
namespace {

TEST(Roofline, EveryLimitOfThisCpuIsPositive) {
  ThreadPool pool(2);
  Roofline roofline = Roofline::Create(&pool, std::size_t{8} << 20).value();
  const RooflineResult result = MeasureRoofline(&roofline, pool.num_threads(), 1);
  const kernels::CpuFeatures cpu = kernels::DecodeCpuFeatures(kernels::ReadCpuid());
  EXPECT_EQ(result.read_gb_per_second > 0, cpu.avx2);
  EXPECT_EQ(result.int8_gop_per_second > 0, cpu.avx2);
  EXPECT_EQ(result.fma_gflop_per_second > 0, cpu.avx2);
  EXPECT_EQ(result.bf16_gflop_per_second > 0, cpu.avx512bf16);
  const json::value parsed = ParseJson(result.ToJson(), "roofline").value();
  EXPECT_EQ(parsed.at("num_threads").as_int64(), 2);
  EXPECT_NE(result.ToText().find("GB/s"), std::string::npos);
}

TEST(KernelSpeed, RowsCarryTheirCaseAndConsistentFigures) {
  ThreadPool pool(1);
  const KernelSpeedOptions options{.isas = {"", "reference"},
                                   .formats = {kernels::WeightFormat::kInt8Group32},
                                   .row_counts = {1},
                                   .model = "qwen2.5-0.5b",
                                   .projection = "o_proj",
                                   .repeats = 1,
                                   .working_set_bytes = 0};
  const std::vector<KernelSpeedRow> rows = RunKernelSpeed(&pool, options).value();
  ASSERT_EQ(rows.size(), 2u);
  for (const KernelSpeedRow& row : rows) {
    EXPECT_EQ(row.n, 896);
    EXPECT_EQ(row.format, "int8g32");
    EXPECT_NEAR(row.gop_per_second * row.microseconds * 1e3, 2.0 * 896 * 896, 1);
    EXPECT_NEAR(row.gb_per_second * row.microseconds * 1e3, 56.0 * 28 * 544, 1);
    EXPECT_GT(row.limit_fraction, 0);
  }
  EXPECT_EQ(ParseJson(KernelSpeedJson(rows), "rows").value().as_array().size(), 2u);
  EXPECT_NE(KernelSpeedText(rows).find("o_proj"), std::string::npos);
}

TEST(KernelSpeed, AnUnknownTierIsAnError) {
  ThreadPool pool(1);
  EXPECT_FALSE(RunKernelSpeed(&pool, {.isas = {"sse9"}}).has_value());
}

}  // namespace
}  // namespace quire::bench
