#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/kernels_test_util.h"
#include "nn/exec_context.h"
#include "nn/kv_pool.h"
#include "nn/linear.h"
#include "nn/rope.h"

namespace quire::nn {
namespace {

using kernels::WeightFormat;

TEST(WorkspaceTest, ScopesGiveBackWhatWasTaken) {
  Workspace workspace = *Workspace::Create(256);
  float* first = workspace.Take<float>(3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  void* second = nullptr;
  {
    const Workspace::Scope scope(&workspace);
    second = workspace.Take<std::byte>(100);
    EXPECT_EQ(static_cast<std::byte*>(second) - reinterpret_cast<std::byte*>(first), 64);
  }
  EXPECT_EQ(workspace.Take<std::byte>(192), second);
  EXPECT_DEATH(workspace.Take<std::byte>(1), "CHECK");
}

TEST(KvPoolTest, StartsZeroedAndCopiesWholeBlocks) {
  const kernels::KvLayout layout{.num_layers = 3, .num_kv_heads = 2, .head_dim = 8};
  KvPool pool = *KvPool::Create(layout, 4);
  const std::size_t bytes = layout.block_bytes();
  for (std::size_t i = 0; i < 4 * bytes; ++i) ASSERT_EQ(pool.data()[i], std::byte{0});
  for (std::size_t i = 0; i < bytes; ++i) pool.data()[bytes + i] = static_cast<std::byte>(i * 7);
  pool.CopyBlock(BlockId(1), BlockId(3));
  EXPECT_EQ(std::memcmp(pool.data() + bytes, pool.data() + 3 * bytes, bytes), 0);
  EXPECT_EQ(pool.data()[2 * bytes], std::byte{0});
  EXPECT_DEATH(pool.CopyBlock(BlockId(1), BlockId(4)), "CHECK");
}

// A matrix of a format with random weights, and the same as floats.
struct TestMatrix {
  PackedWeights packed;
  std::vector<float> floats;  // [n, k]
};

TestMatrix MakeMatrix(WeightFormat format, std::int64_t n, std::int64_t k, std::mt19937* random) {
  const kernels::FormatTraits& traits = kernels::Traits(format);
  TestMatrix matrix{*PackedWeights::Create(format, n, k), std::vector<float>(static_cast<std::size_t>(n * k))};
  std::normal_distribution<float> normal;
  for (std::int64_t panel = 0; panel < kernels::NumPanels(n); ++panel) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(16, n - panel * 16));
    std::vector<std::vector<float>> values(count), scales(count), mins(count);
    std::vector<std::vector<std::uint8_t>> codes(count);
    std::vector<std::vector<std::int8_t>> fine(count);
    std::vector<kernels::WeightRow> rows(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < k; ++j) {
        values[i].push_back(normal(*random));
        codes[i].push_back(static_cast<std::uint8_t>((*random)() % static_cast<unsigned>(traits.code_max + 1)));
      }
      for (std::int64_t g = 0; g < k / traits.group; ++g) {
        scales[i].push_back(0.01f * std::abs(normal(*random)));
        mins[i].push_back(0.1f * normal(*random));
        fine[i].push_back(static_cast<std::int8_t>((*random)() % 4));
      }
      rows[i] = {.values = values[i].data(),
                 .codes = codes[i].data(),
                 .scales = scales[i].data(),
                 .mins = mins[i].data(),
                 .scale_codes = fine[i].data(),
                 .min_codes = fine[i].data()};
    }
    kernels::PackPanel(format, k, rows, matrix.packed.panel(panel));
  }
  for (std::int64_t row = 0; row < n; ++row) {
    kernels::UnpackRow(matrix.packed.matrix(), row, matrix.floats.data() + row * k);
  }
  return matrix;
}

class LinearTest : public kernels::TierTest {};

INSTANTIATE_TEST_SUITE_P(Tiers, LinearTest, kernels::EveryTier(), kernels::TierName);

// Segments of different formats and sizes that do not fill panels, a bias, strides wider than the rows; against a
// plain product. Rows and threads must not change a bit.
TEST_P(LinearTest, StackedSegmentsEqualThePlainProduct) {
  constexpr std::int64_t kInputs = 256, kRows = 600;  // more rows than one task takes
  std::mt19937 random(3);
  std::vector<TestMatrix> matrices;
  matrices.push_back(MakeMatrix(WeightFormat::kInt8Group32Min, 40, kInputs, &random));
  matrices.push_back(MakeMatrix(WeightFormat::kBf16, 3, kInputs, &random));
  matrices.push_back(MakeMatrix(WeightFormat::kInt6Super, 17, kInputs, &random));
  matrices.push_back(MakeMatrix(WeightFormat::kInt4Super, 33, kInputs, &random));
  matrices.push_back(MakeMatrix(WeightFormat::kF32, 97, kInputs, &random));
  matrices.push_back(MakeMatrix(WeightFormat::kInt8Group32, 16, kInputs, &random));
  matrices.push_back(MakeMatrix(WeightFormat::kF16, 1, kInputs, &random));
  std::vector<kernels::PackedMatrix> segments;
  std::vector<float> floats;
  for (const TestMatrix& matrix : matrices) {
    segments.push_back(matrix.packed.matrix());
    floats.insert(floats.end(), matrix.floats.begin(), matrix.floats.end());
  }
  std::normal_distribution<float> normal;
  std::vector<float> bias(207), x(static_cast<std::size_t>(kRows * (kInputs + 5)));
  for (float& value : bias) value = normal(random);
  for (float& value : x) value = normal(random);
  const Linear linear(segments, bias);
  ASSERT_EQ(linear.num_outputs(), 207);

  const auto run = [&](int num_threads, std::int64_t rows_at_a_time) {
    ThreadPool pool(num_threads);
    Workspace workspace =
        *Workspace::Create(linear.PreparedRowBytes(*GetParam()) * static_cast<std::size_t>(rows_at_a_time) + 64);
    const ExecContext context{&pool, GetParam(), &workspace};
    std::vector<float> y(static_cast<std::size_t>(kRows * 210), -7.0f);
    for (std::int64_t row = 0; row < kRows; row += rows_at_a_time) {
      linear.Forward(context, x.data() + row * (kInputs + 5), kInputs + 5, std::min(rows_at_a_time, kRows - row),
                     y.data() + row * 210, 210);
    }
    return y;
  };
  const std::vector<float> y = run(1, kRows);
  for (std::int64_t row = 0; row < kRows; row += 37) {
    for (std::int64_t column = 0; column < 207; ++column) {
      double sum = bias[static_cast<std::size_t>(column)], size = 0;
      for (std::int64_t i = 0; i < kInputs; ++i) {
        const double product = double{x[static_cast<std::size_t>(row * (kInputs + 5) + i)]} *
                               double{floats[static_cast<std::size_t>(column * kInputs + i)]};
        sum += product;
        size += product * product;
      }
      // 8-bit activations are the coarsest: each is off by at most 1/254 of the row's largest value (about 4 here).
      ASSERT_NEAR(y[static_cast<std::size_t>(row * 210 + column)], sum, 0.05 * std::sqrt(size) + 1e-4)
          << "row " << row << " column " << column;
    }
    for (std::int64_t column = 207; column < 210; ++column) {
      ASSERT_EQ(y[static_cast<std::size_t>(row * 210 + column)], -7.0f);  // padding stays as it was
    }
  }
  EXPECT_EQ(run(2, kRows), y);
  EXPECT_EQ(run(5, 7), y);
  EXPECT_EQ(run(1, 1), y);
}

// With an order of the inputs the same bits come out as from inputs that somebody else put in that order.
TEST_P(LinearTest, InputsMeetTheColumnsInTheGivenOrder) {
  constexpr std::int64_t kInputs = 96, kRows = 40;
  std::mt19937 random(5);
  const TestMatrix codes = MakeMatrix(WeightFormat::kInt8Group32Min, 48, kInputs, &random);
  const TestMatrix floats = MakeMatrix(WeightFormat::kF32, 5, kInputs, &random);
  std::vector<std::int32_t> order(kInputs);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * (kInputs + 3)), ordered(kRows * kInputs);
  for (float& value : x) value = normal(random);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t i = 0; i < kInputs; ++i) {
      ordered[static_cast<std::size_t>(row * kInputs + i)] =
          x[static_cast<std::size_t>(row * (kInputs + 3) + order[static_cast<std::size_t>(i)])];
    }
  }
  const auto run = [&](const Linear& linear, int num_threads, const std::vector<float>& in, std::int64_t ld_in) {
    ThreadPool pool(num_threads);
    Workspace workspace = *Workspace::Create(linear.PreparedRowBytes(*GetParam()) * kRows);
    std::vector<float> y(kRows * 53);
    linear.Forward({&pool, GetParam(), &workspace}, in.data(), ld_in, kRows, y.data(), 53);
    return y;
  };
  const std::vector<kernels::PackedMatrix> segments{codes.packed.matrix(), floats.packed.matrix()};
  const std::vector<float> expected = run(Linear(segments, {}), 1, ordered, kInputs);
  EXPECT_EQ(run(Linear(segments, {}, order), 1, x, kInputs + 3), expected);
  EXPECT_EQ(run(Linear(segments, {}, order), 3, x, kInputs + 3), expected);
}

// Columns kept apart: what the matrices hold in them does not count, and neither do those inputs in the scales of
// 8-bit activations. The same bits whoever computes a row with whom.
TEST_P(LinearTest, OutlierColumnsAreMultipliedApart) {
  constexpr std::int64_t kInputs = 256, kRows = 530, kOutputs = 40 + 3 + 97;
  std::mt19937 random(6);
  for (const std::vector<std::int32_t>& columns :
       {std::vector<std::int32_t>{255}, std::vector<std::int32_t>{0, 1, 77}, std::vector<std::int32_t>{2, 3, 5, 200}}) {
    std::vector<TestMatrix> matrices, kept;
    for (const auto& [format, n] : {std::pair(WeightFormat::kInt4Super, 40), std::pair(WeightFormat::kF32, 3),
                                    std::pair(WeightFormat::kInt8Group32, 97)}) {
      matrices.push_back(MakeMatrix(format, n, kInputs, &random));
      kept.push_back(MakeMatrix(WeightFormat::kBf16, n, static_cast<std::int64_t>(columns.size()), &random));
    }
    std::vector<kernels::PackedMatrix> segments;
    OutlierColumns outliers{.columns = columns, .weights = {}};
    std::vector<float> floats, kept_floats;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      segments.push_back(matrices[i].packed.matrix());
      outliers.weights.push_back(kept[i].packed.matrix());
      floats.insert(floats.end(), matrices[i].floats.begin(), matrices[i].floats.end());
      kept_floats.insert(kept_floats.end(), kept[i].floats.begin(), kept[i].floats.end());
    }
    std::normal_distribution<float> normal;
    std::vector<float> bias(kOutputs), x(kRows * (kInputs + 3));
    for (float& value : bias) value = normal(random);
    for (float& value : x) value = normal(random);
    for (std::int64_t row = 0; row < kRows; ++row) {  // would leave the others two bits of their codes
      for (const std::int32_t column : columns) x[static_cast<std::size_t>(row * (kInputs + 3) + column)] *= 50;
    }
    const Linear linear(segments, bias, {}, outliers);
    const auto run = [&](const Linear& tested, int num_threads, std::int64_t rows_at_a_time) {
      ThreadPool pool(num_threads);
      Workspace workspace =
          *Workspace::Create(tested.PreparedRowBytes(*GetParam()) * static_cast<std::size_t>(rows_at_a_time) + 64);
      std::vector<float> y(kRows * kOutputs);
      for (std::int64_t row = 0; row < kRows; row += rows_at_a_time) {
        tested.Forward({&pool, GetParam(), &workspace}, x.data() + row * (kInputs + 3), kInputs + 3,
                       std::min(rows_at_a_time, kRows - row), y.data() + row * kOutputs, kOutputs);
      }
      return y;
    };
    const std::vector<float> y = run(linear, 1, kRows);
    for (std::int64_t row = 0; row < kRows; row += 23) {
      const float* in = x.data() + row * (kInputs + 3);
      for (std::int64_t output = 0; output < kOutputs; ++output) {
        double sum = bias[static_cast<std::size_t>(output)], size = 0, kept_size = 0;
        for (std::int64_t i = 0; i < kInputs; ++i) {
          if (std::ranges::binary_search(columns, i)) continue;
          const double product = double{in[i]} * double{floats[static_cast<std::size_t>(output * kInputs + i)]};
          sum += product;
          size += product * product;
        }
        for (std::size_t i = 0; i < columns.size(); ++i) {
          const double product =
              double{in[columns[i]]} * double{kept_floats[static_cast<std::size_t>(output) * columns.size() + i]};
          sum += product;
          kept_size += std::abs(product);
        }
        // 8-bit activations as above; BF16 rounds each outlier's by 2^-9 at most.
        ASSERT_NEAR(y[static_cast<std::size_t>(row * kOutputs + output)], sum,
                    0.05 * std::sqrt(size) + kept_size * 0x1p-8 + 1e-4)
            << "row " << row << " output " << output;
      }
    }
    EXPECT_EQ(run(linear, 2, kRows), y);
    EXPECT_EQ(run(linear, 5, 7), y);
    EXPECT_EQ(run(linear, 1, 1), y);

    // To the bit: the sum of two Linears, one of which sees zeros, the other the outliers only.
    std::vector<float> without = x, outlier_inputs;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (const std::int32_t column : columns) {
        outlier_inputs.push_back(std::exchange(without[static_cast<std::size_t>(row * (kInputs + 3) + column)], 0.0f));
      }
    }
    const auto forward = [&](const Linear& tested, const std::vector<float>& in, std::int64_t ld_in) {
      ThreadPool pool(1);
      Workspace workspace = *Workspace::Create(tested.PreparedRowBytes(*GetParam()) * kRows);
      std::vector<float> out(kRows * kOutputs);
      tested.Forward({&pool, GetParam(), &workspace}, in.data(), ld_in, kRows, out.data(), kOutputs);
      return out;
    };
    std::vector<float> expected = forward(Linear(segments, {}), without, kInputs + 3);
    const std::vector<float> added =
        forward(Linear(outliers.weights, {}), outlier_inputs, static_cast<std::int64_t>(columns.size()));
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = (expected[i] + added[i]) + bias[i % kOutputs];
    EXPECT_EQ(y, expected);

    // An outlier that is no number spoils its own row.
    x[static_cast<std::size_t>(columns.front())] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> spoilt = run(linear, 1, kRows);
    for (std::size_t i = 0; i < spoilt.size(); ++i) {
      if (i < kOutputs) {
        ASSERT_TRUE(std::isnan(spoilt[i]));
      } else {
        ASSERT_EQ(spoilt[i], y[i]);
      }
    }
  }
}

// Together with an order: outliers are columns of the matrices, which are other inputs then.
TEST_P(LinearTest, OutlierColumnsOfInputsInAnotherOrder) {
  constexpr std::int64_t kInputs = 64, kRows = 9;
  std::mt19937 random(8);
  const TestMatrix codes = MakeMatrix(WeightFormat::kInt8Group32, 20, kInputs, &random);
  const TestMatrix kept = MakeMatrix(WeightFormat::kBf16, 20, 2, &random);
  std::vector<std::int32_t> order(kInputs);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kInputs), ordered(kRows * kInputs);
  for (float& value : x) value = normal(random);
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    ordered[i] = x[i / kInputs * kInputs + static_cast<std::size_t>(order[i % kInputs])];
  }
  const auto run = [&](const Linear& linear, const std::vector<float>& in) {
    ThreadPool pool(1);
    Workspace workspace = *Workspace::Create(linear.PreparedRowBytes(*GetParam()) * kRows);
    std::vector<float> y(kRows * 20);
    linear.Forward({&pool, GetParam(), &workspace}, in.data(), kInputs, kRows, y.data(), 20);
    return y;
  };
  const std::vector<kernels::PackedMatrix> segments{codes.packed.matrix()};
  const OutlierColumns outliers{.columns = {11, 40}, .weights = {kept.packed.matrix()}};
  EXPECT_EQ(run(Linear(segments, {}, order, outliers), x), run(Linear(segments, {}, {}, outliers), ordered));
}

TEST(EmbedTest, RowsOfThePackedTable) {
  std::mt19937 random(4);
  ThreadPool pool(2);
  const ExecContext context{&pool, &kernels::ReferenceKernels(), nullptr};
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt5Group32, WeightFormat::kF16}) {
    const TestMatrix table = MakeMatrix(format, 50, 64, &random);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 600; ++i) tokens.push_back(TokenId(i * 7 % 50));
    std::vector<float> out(600 * 64);
    Embed(context, {.matrix = table.packed.matrix(), .outliers = {}}, tokens, out.data());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(std::memcmp(out.data() + i * 64, table.floats.data() + tokens[i].value() * 64, 256), 0);
    }
    const TestMatrix kept = MakeMatrix(WeightFormat::kBf16, 50, 3, &random);
    const std::vector<std::int32_t> columns{0, 31, 63};
    Embed(context,
          {.matrix = table.packed.matrix(), .outliers = {.columns = columns, .weights = {kept.packed.matrix()}}},
          tokens, out.data());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto token = static_cast<std::size_t>(tokens[i].value());
      for (std::int32_t column = 0, next = 0; column < 64; ++column) {
        const bool is_kept = std::ranges::binary_search(columns, column);
        ASSERT_EQ(out[i * 64 + static_cast<std::size_t>(column)],
                  is_kept ? kept.floats[token * 3 + static_cast<std::size_t>(next++)]
                          : table.floats[token * 64 + static_cast<std::size_t>(column)]);
      }
    }
  }
}

TEST(RopeTest, AnglesStayExactAtLargePositions) {
  const Rope rope({1.0, 0.1}, 1.25);
  std::array<float, 2> cos{}, sin{};
  rope.Fill(100000, cos.data(), sin.data());
  EXPECT_FLOAT_EQ(cos[0], static_cast<float>(1.25 * std::cos(100000.0)));
  EXPECT_FLOAT_EQ(sin[1], static_cast<float>(1.25 * std::sin(10000.0)));
}

}  // namespace
}  // namespace quire::nn
