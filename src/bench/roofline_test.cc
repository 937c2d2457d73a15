// The benchmarks' own arithmetic and output, on the smallest runs that exercise them; speeds are not judged.
#include "bench/roofline.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

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
  const bool tiles = cpu.amx && kernels::RequestTileRegisters();
  EXPECT_EQ(result.int8_tiles_gop_per_second > 0, tiles);
  EXPECT_EQ(result.bf16_tiles_gflop_per_second > 0, tiles);
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

// Bytes of one call, from the figures of a row.
double Bytes(const KernelSpeedRow& row) {
  return row.gb_per_second * row.microseconds * 1e3;
}
double Operations(const KernelSpeedRow& row) {
  return row.gop_per_second * row.microseconds * 1e3;
}

TEST(KernelSpeed, EveryKernelCountsWhatItMustMoveAndCompute) {
  ThreadPool pool(2);
  const KernelSpeedOptions options{
      .kernel_names = {MeasuredKernels().begin(), MeasuredKernels().end()},
      .formats = {kernels::WeightFormat::kInt8Group32},
      .row_counts = {3},
      .model = "qwen2.5-0.5b",
      .projection = "o_proj",
      .kv_dtypes = {kernels::KvDtype::kBf16},
      .contexts = {64},
      .repeats = 1,
      .working_set_bytes = 0,
  };
  std::map<std::string, std::pair<double, double>> found;  // of an element; the last row of a kernel
  for (const KernelSpeedRow& row : RunKernelSpeed(&pool, options).value()) {
    const auto elements = static_cast<double>(row.m * row.n);
    found[row.kernel] = {Bytes(row) / elements, Operations(row) / elements};
    EXPECT_GT(row.limit_fraction, 0) << row.kernel;
    EXPECT_EQ(row.num_threads, 2);
  }
  const auto expect = [&](const std::string& kernel, double bytes, double operations) {
    EXPECT_NEAR(found[kernel].first, bytes, 1e-9) << kernel;
    EXPECT_NEAR(found[kernel].second, operations, 1e-9) << kernel;
  };
  EXPECT_EQ(found.size(), MeasuredKernels().size());
  expect("rms_norm", 8, 4);
  expect("add_rms_norm", 16, 5);
  expect("rope", 8, 3);
  expect("silu_mul", 12, 5);
  expect("add_bias", 8, 1);
  expect("add", 12, 1);
  expect("max_value", 4, 1);
  expect("sum_exp", 4, 4);
  expect("store_kv", 4 + 2, 0);
}

TEST(KernelSpeed, SharedPrefixesAreCountedOnceAndMeasuredInBothWays) {
  ThreadPool pool(2);
  const KernelSpeedOptions options{.kernel_names = {"attention"},
                                   .model = "qwen2.5-0.5b",
                                   .kv_dtypes = {kernels::KvDtype::kBf16},
                                   .sequence_counts = {1, 4},
                                   .contexts = {300},
                                   .query_counts = {1, 3},
                                   .prefixes = {0, 256},
                                   .repeats = 2,
                                   .working_set_bytes = 4 << 20};
  const std::vector<KernelSpeedRow> rows = RunKernelSpeed(&pool, options).value();
  ASSERT_EQ(rows.size(), 8u);  // for 1 and 3 queries: one sequence, four, and four with a prefix in two ways
  for (const KernelSpeedRow& row : rows) {
    const auto sequences = static_cast<double>(row.num_sequences);
    const double blocks = row.prefix == 0 ? sequences * 19 : 16 + sequences * 3;
    EXPECT_NEAR(Bytes(row), blocks * 16 * 2 * 64 * 2 * 2, 1);
    const double keys = row.m == row.num_sequences ? 300 : 298 + 299 + 300;
    EXPECT_NEAR(Operations(row), 4.0 * 64 * 14 * keys * sequences, 1);
    EXPECT_EQ(row.speedup > 0, row.grouped);
    EXPECT_LE(row.grouped, row.prefix > 0);
  }
  EXPECT_NE(KernelSpeedText(rows).find("256 shared, grouped"), std::string::npos);
  EXPECT_NE(KernelSpeedText(rows).find("256 shared, alone"), std::string::npos);
  EXPECT_EQ(ParseJson(KernelSpeedJson(rows), "rows").value().as_array()[3].at("prefix").as_int64(), 256);
}

TEST(KernelSpeed, FormatsThatAShapeCannotHaveAreLeftOutOrAnError) {
  ThreadPool pool(1);
  KernelSpeedOptions options{.isas = {"reference"},
                             .row_counts = {1},
                             .model = "qwen2.5-0.5b",
                             .projection = "o_proj",  // 896 inputs, not a multiple of 256
                             .repeats = 1,
                             .working_set_bytes = 0};
  EXPECT_FALSE(RunKernelSpeed(&pool, options).value().empty());
  options.formats = {kernels::WeightFormat::kInt4Super};
  EXPECT_EQ(RunKernelSpeed(&pool, options).error().message,
            "qwen2.5-0.5b has no int4k: its 896 inputs are not a multiple of 256");
}
TEST(KernelSpeed, AnUnknownTierIsAnError) {
  ThreadPool pool(1);
  EXPECT_FALSE(RunKernelSpeed(&pool, {.isas = {"sse9"}}).has_value());
}

}  // namespace
}  // namespace quire::bench
