// GEMM: every tier against the reference within a derived bound, the integer formats exactly, and the promise
// that a row's result does not depend on the company it is computed in, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/activation_layout.h"
#include "kernels/kernel_cases.h"
#include "kernels/kernels_test_util.h"
#include "kernels/weight_layout.h"

namespace quire::kernels {
namespace {

constexpr float kCanary = -12345.5f;

std::vector<float> RandomFloats(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(rng);
  return values;
}

// Activations of one tier, prepared for one format.
struct Prepared {
  std::size_t row_bytes;
  GuardedBuffer memory;

  Prepared(const KernelTable& table, WeightFormat format, const float* x, std::int64_t m, std::int64_t k,
           std::int64_t ld_x)
      : row_bytes(table.activation_row_bytes(table.activation_kind(format), k)),
        memory(static_cast<std::size_t>(m) * row_bytes) {
    EXPECT_EQ(row_bytes % 64, 0u);
    table.prepare_activations(table.activation_kind(format), x, m, k, ld_x, memory.data());
  }
  const std::byte* row(std::int64_t r) const { return memory.data() + static_cast<std::size_t>(r) * row_bytes; }
};

std::vector<float> Multiply(const KernelTable& table, const PackedMatrix& weights, const Prepared& x, std::int64_t m) {
  std::vector<float> out(static_cast<std::size_t>(m * weights.n), kCanary);
  table.gemm({.activations = x.row(0),
              .num_rows = m,
              .weights = &weights,
              .panel_begin = 0,
              .panel_end = NumPanels(weights.n),
              .out = out.data(),
              .ld_out = weights.n});
  return out;
}

// memcmp, because NaN equals itself here and −0 does not equal 0.
bool SameBits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * 4) == 0;
}

std::vector<std::int64_t> InnerSizes(WeightFormat format) {
  if (format == WeightFormat::kBf16Sparse24) return {4, 8, 12, 64, 260, 516, 1100};
  if (!Traits(format).integer) return {1, 2, 3, 16, 31, 64, 257, 515, 1100};
  const std::int64_t group = InnerStep(format);
  if (group == 256) return {256, 512, 768, 1024, 1280, 2048};
  return {group, 2 * group, 256, 256 + group, 512 - group, 1024, 1024 + 256 + 3 * group};
}

// How far a tier may be from the exact product: γ_n = n·u / (1 − n·u) times Σ |a|·|w|, with u = 2⁻²⁴ and n
// the length of the longest chain of roundings that a term goes through (Higham, Accuracy and Stability, ch.
// 3).
//   float formats  k roundings of the chain (two for each pair), one of the reference's result
//   INT8           a Fma (and a Fnma) for each of at most 16 groups, one Fma for each block, one for the
//   weights' own
//                  scale · code in `magnitudes`, one of the reference
// BF16 activations have 8 significant bits, so they are off by up to 2⁻⁸, and subnormal partial sums may be
// lost: 2⁻¹²⁶ a step.
double RelativeBound(const KernelTable& table, WeightFormat format, std::int64_t k) {
  const double u = 0x1p-24;
  const bool integer = Traits(format).integer;
  const bool scaled = IsScaledFloat(Traits(format));  // a chain within a group, one over the groups, and the weight
  const double n = integer  ? 2.0 * 16 + static_cast<double>((k + 255) / 256) + 2
                   : scaled ? 128 + static_cast<double>((k + 63) / 64) + 2
                            : static_cast<double>(k) + 2;
  const double rounding = n * u / (1 - n * u);
  return table.activation_kind(format) == ActivationKind::kBf16 ? rounding + 0x1p-8 * (1 + rounding) : rounding;
}

// Σ |a|·|w| of every output, with the activations as the tier sees them where they are quantised.
std::vector<double> AbsoluteProducts(const RandomMatrix& matrix, const Prepared& x, const float* values,
                                     std::int64_t m) {
  const std::int64_t n = matrix.packed.n, k = matrix.packed.k;
  const bool integer = Traits(matrix.packed.format).integer;
  std::vector<double> sums;
  for (std::int64_t r = 0; r < m; ++r) {
    std::vector<double> a(static_cast<std::size_t>(k));
    for (std::int64_t i = 0; i < k; ++i) {
      double value = values[r * k + i];
      if (integer) {
        float scale;
        std::memcpy(&scale, x.row(r) + Int8RowLayout(k).scales + i / kActivationBlock * 4, 4);
        value = double{scale} * static_cast<double>(std::to_integer<std::int8_t>(x.row(r)[i]));
      }
      a[static_cast<std::size_t>(i)] = std::abs(value);
    }
    for (std::int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += a[static_cast<std::size_t>(i)] * double{matrix.magnitudes[static_cast<std::size_t>(c * k + i)]};
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

// The packed matrix in memory that ends where it ends.
struct GuardedMatrix {
  GuardedBuffer memory;
  PackedMatrix packed;

  explicit GuardedMatrix(const RandomMatrix& matrix) : memory(matrix.memory.size()), packed(matrix.packed) {
    std::memcpy(memory.data(), matrix.memory.data(), matrix.memory.size());
    packed.data = memory.data();
  }
};

// The awkward ones, and those that the benchmark runs: the inner sizes of real models.
std::vector<std::int64_t> InnerSizesAndRealOnes(WeightFormat format) {
  std::vector<std::int64_t> sizes = InnerSizes(format);
  for (const ProjectionShape& shape : RealProjections()) {
    if (shape.k % InnerStep(format) == 0) sizes.push_back(shape.k);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

class GemmTest : public testing::TestWithParam<WeightFormat> {};

// CPU-05.
TEST_P(GemmTest, StaysWithinTheDerivedBoundOfTheReference) {
  const WeightFormat format = GetParam();
  for (const std::int64_t k : InnerSizesAndRealOnes(format)) {
    for (const std::int64_t n : {1, 16, 50}) {
      const std::int64_t m = 7;
      const std::uint64_t seed = static_cast<std::uint64_t>(k * 100 + n);
      SCOPED_TRACE(testing::Message() << "k " << k << " n " << n << " seed " << seed);
      const RandomMatrix matrix = MakeRandomMatrix(format, n, k, seed, true).value();
      const GuardedMatrix weights(matrix);
      const std::vector<float> x = RandomFloats(m * k, seed + 1);
      const Prepared reference_x(ReferenceKernels(), format, x.data(), m, k, k);
      const std::vector<float> expected = Multiply(ReferenceKernels(), weights.packed, reference_x, m);
      const std::vector<double> products = AbsoluteProducts(matrix, reference_x, x.data(), m);
      for (const KernelTable* table : AvailableKernels()) {
        const Prepared prepared(*table, format, x.data(), m, k, k);
        const std::vector<float> out = Multiply(*table, weights.packed, prepared, m);
        const double bound = RelativeBound(*table, format, k);
        for (std::size_t i = 0; i < out.size(); ++i) {
          const double limit = bound * products[i] + static_cast<double>(k) * 0x1p-126;
          ASSERT_LE(std::abs(double{out[i]} - double{expected[i]}), limit) << table->isa << " output " << i;
        }
      }
    }
  }
}

// QNT-08.
TEST_P(GemmTest, ARowIsTheSameBitsAloneAndInAnyCompany) {
  const WeightFormat format = GetParam();
  const std::int64_t n = 16 * 13 + 5;  // every panel-group size and a partial panel
  for (const std::int64_t k : InnerSizes(format)) {
    const GuardedMatrix weights(MakeRandomMatrix(format, n, k, 5, false).value());
    const std::int64_t most = 37;
    const std::vector<float> x = RandomFloats(most * k, 6);
    for (const KernelTable* table : AvailableKernels()) {
      if (table == &ReferenceKernels() && k > 300) continue;  // slow, and has no shapes
      SCOPED_TRACE(testing::Message() << table->isa << " k " << k);
      std::vector<float> alone(static_cast<std::size_t>(most * n));
      for (std::int64_t r = 0; r < most; ++r) {
        const Prepared row(*table, format, x.data() + r * k, 1, k, k);
        const std::vector<float> out = Multiply(*table, weights.packed, row, 1);
        std::copy(out.begin(), out.end(), alone.begin() + r * n);
      }
      for (std::int64_t m = 2; m <= most; ++m) {
        const Prepared rows(*table, format, x.data(), m, k, k);
        const std::vector<float> out = Multiply(*table, weights.packed, rows, m);
        for (std::int64_t r = 0; r < m; ++r) {
          ASSERT_TRUE(SameBits(&out[static_cast<std::size_t>(r * n)], &alone[static_cast<std::size_t>(r * n)], n))
              << "row " << r << " of " << m;
        }
      }
    }
  }
}

// Tiers that take subnormals as zero somewhere do so in every shape.
TEST_P(GemmTest, RowsNearTheSmallestFloatAreTheSameBitsInAnyCompany) {
  const WeightFormat format = GetParam();
  const std::int64_t n = 16 * 3 + 5, k = InnerStep(format) == 256 ? 512 : 320, m = 19;
  const RandomMatrix matrix = MakeRandomMatrix(format, n, k, 31, false).value();
  std::vector<float> x = RandomFloats(m * k, 32);
  for (float& value : x) value *= 2e-38f;
  for (const KernelTable* table : AvailableKernels()) {
    const std::vector<float> out = Multiply(*table, matrix.packed, Prepared(*table, format, x.data(), m, k, k), m);
    for (std::int64_t r = 0; r < m; ++r) {
      const std::vector<float> alone =
          Multiply(*table, matrix.packed, Prepared(*table, format, x.data() + r * k, 1, k, k), 1);
      ASSERT_TRUE(SameBits(alone.data(), &out[static_cast<std::size_t>(r * n)], n)) << table->isa << ' ' << r;
    }
  }
}

TEST_P(GemmTest, PanelRangesAndStridesDoNotMatterAndNothingElseIsWritten) {
  const WeightFormat format = GetParam();
  const std::int64_t n = 16 * 9 + 3, k = InnerStep(format) == 256 ? 512 : 320, panels = NumPanels(n), ld_out = n + 11;
  const RandomMatrix matrix = MakeRandomMatrix(format, n, k, 9, false).value();
  std::mt19937 rng(10);
  for (const KernelTable* table : AvailableKernels()) {
    for (const std::int64_t m : {1, 2, 3, 4, 6, 7, 12, 13, 30}) {
      const std::vector<float> x = RandomFloats(m * (k + 3) + 1, 11);
      const Prepared rows(*table, format, x.data() + 1, m, k, k + 3);  // misaligned and strided input
      const std::vector<float> whole = Multiply(*table, matrix.packed, rows, m);
      for (int trial = 0; trial < 6; ++trial) {
        const auto begin = static_cast<std::int64_t>(rng() % static_cast<unsigned>(panels));
        const std::int64_t end = begin + 1 + static_cast<std::int64_t>(rng() % static_cast<unsigned>(panels - begin));
        std::vector<float> out(static_cast<std::size_t>(m * ld_out + 1), kCanary);
        float* y = out.data() + 1;  // misaligned output
        table->gemm({.activations = rows.row(0),
                     .num_rows = m,
                     .weights = &matrix.packed,
                     .panel_begin = begin,
                     .panel_end = end,
                     .out = y,
                     .ld_out = ld_out});
        for (std::int64_t r = 0; r < m; ++r) {
          for (std::int64_t c = 0; c < ld_out; ++c) {
            const bool inside = c >= begin * kPanelWidth && c < std::min(n, end * kPanelWidth);
            const float expected = inside ? whole[static_cast<std::size_t>(r * n + c)] : kCanary;
            ASSERT_TRUE(SameBits(&y[r * ld_out + c], &expected, 1)) << table->isa << ' ' << m << ' ' << r << ' ' << c;
          }
        }
      }
    }
  }
}

TEST_P(GemmTest, ManyRowsAreCutIntoPortionsWithoutATrace) {
  const WeightFormat format = GetParam();
  const std::int64_t k = 8192, n = 40, m = 205;  // a row is 11 to 32 KiB: portions of 48 to 96 rows
  const RandomMatrix matrix = MakeRandomMatrix(format, n, k, 12, false).value();
  const std::vector<float> x = RandomFloats(m * k, 13);
  for (const KernelTable* table : AvailableKernels().subspan(1)) {
    const Prepared rows(*table, format, x.data(), m, k, k);
    const std::vector<float> out = Multiply(*table, matrix.packed, rows, m);
    for (std::int64_t r = 0; r < m; r += 17) {
      const Prepared row(*table, format, x.data() + r * k, 1, k, k);
      const std::vector<float> alone = Multiply(*table, matrix.packed, row, 1);
      ASSERT_TRUE(SameBits(&out[static_cast<std::size_t>(r * n)], alone.data(), n)) << table->isa << ' ' << r;
    }
  }
}

TEST_P(GemmTest, TiersWithTheSameArithmeticGiveTheSameBits) {
  const WeightFormat format = GetParam();
  const std::int64_t k = InnerStep(format) == 256 ? 768 : 608, n = 70, m = 9;
  const RandomMatrix matrix = MakeRandomMatrix(format, n, k, 14, false).value();
  const std::vector<float> x = RandomFloats(m * k, 15);
  const KernelTable* first = nullptr;
  std::vector<float> expected;
  for (const KernelTable* table : AvailableKernels().subspan(1)) {
    if (table->activation_kind(format) == ActivationKind::kBf16) continue;  // the one that rounds differently
    const std::vector<float> out = Multiply(*table, matrix.packed, Prepared(*table, format, x.data(), m, k, k), m);
    if (first == nullptr) first = table, expected = out;
    EXPECT_TRUE(SameBits(out.data(), expected.data(), m * n)) << first->isa << " and " << table->isa;
  }
}

TEST_P(GemmTest, NotANumberStaysInItsRow) {
  const WeightFormat format = GetParam();
  const std::int64_t k = InnerStep(format) == 256 ? 512 : 288, n = 33, m = 8;
  const RandomMatrix matrix = MakeRandomMatrix(format, n, k, 16, false).value();
  const std::vector<float> x = RandomFloats(m * k, 17);
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> spoilt = x;
    spoilt[static_cast<std::size_t>(3 * k + 100)] = poison;
    for (const KernelTable* table : AvailableKernels()) {
      const std::vector<float> clean = Multiply(*table, matrix.packed, Prepared(*table, format, x.data(), m, k, k), m);
      const std::vector<float> out =
          Multiply(*table, matrix.packed, Prepared(*table, format, spoilt.data(), m, k, k), m);
      for (std::int64_t r = 0; r < m; ++r) {
        const float* row = &out[static_cast<std::size_t>(r * n)];
        if (r == 3) {
          EXPECT_TRUE(std::none_of(row, row + n, [](float v) { return std::isfinite(v); })) << table->isa;
        } else {
          EXPECT_TRUE(SameBits(row, &clean[static_cast<std::size_t>(r * n)], n)) << table->isa << ' ' << r;
        }
      }
    }
  }
}

TEST_P(GemmTest, AnEmptyInnerDimensionGivesZero) {
  const PackedMatrix weights{.format = GetParam(), .n = 20, .k = 0, .data = nullptr};
  for (const KernelTable* table : AvailableKernels()) {
    std::vector<float> out(60, kCanary);
    table->gemm({.activations = nullptr,
                 .num_rows = 3,
                 .weights = &weights,
                 .panel_begin = 0,
                 .panel_end = 2,
                 .out = out.data(),
                 .ld_out = 20});
    EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float v) { return v == 0; })) << table->isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GemmTest, testing::ValuesIn(kAllWeightFormats),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

// With scales of 1 and activations whose largest magnitude is 127, every product and every sum below 2²⁴ is
// an exact integer in F32, so nothing but the right integers passes. This is also what catches g++ 12, whose
// vectoriser mixes up the signs of scalar u8 × s8 loops when it may use VNNI: there are none in a VNNI
// region, and there must stay none.
TEST(GemmInt8, DotsAreExactOnEveryTierForExtremeCodes) {
  for (const WeightFormat format : kAllWeightFormats) {
    const FormatTraits& traits = Traits(format);
    if (!traits.integer) continue;
    const std::int64_t k = 768, n = 16, m = 9;  // more rows than a tile has
    const int highest = traits.code_max;
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      std::mt19937 rng(seed);
      // The first seeds take only the ends of the ranges, where 16-bit sums would saturate.
      const auto code = [&] {
        return static_cast<int>(seed < 8 ? rng() % 2 * static_cast<unsigned>(highest)
                                         : rng() % static_cast<unsigned>(highest + 1));
      };
      const auto activation = [&] {
        return seed < 8 ? (rng() % 2 != 0 ? 127 : -127) : static_cast<int>(rng() % 255) - 127;
      };
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k));
      for (auto& c : codes) c = static_cast<std::uint8_t>(seed == 0 ? highest : code());
      for (std::size_t i = 0; traits.sparse && i < codes.size(); i += 4) {
        codes[i + rng() % 2] = codes[i + 2 + rng() % 2] = 128;
      }
      const std::vector<float> ones(static_cast<std::size_t>(k / 16), 1.0f), zeros(ones.size(), 0.0f);
      const std::vector<std::int8_t> fine_ones(ones.size(), 1);
      std::vector<WeightRow> rows(static_cast<std::size_t>(n));
      for (std::int64_t r = 0; r < n; ++r) {
        rows[static_cast<std::size_t>(r)] = {.codes = codes.data() + r * k,
                                             .scales = ones.data(),
                                             .mins = zeros.data(),
                                             .scale_codes = fine_ones.data(),
                                             .min_codes = fine_ones.data()};
      }
      auto panel = AlignedBuffer::Allocate(PanelBytes(format, k)).value();
      PackPanel(format, k, rows, panel.data());
      const PackedMatrix weights{.format = format, .n = n, .k = k, .data = panel.data()};
      std::vector<float> x(static_cast<std::size_t>(m * k));
      for (auto& v : x) v = static_cast<float>(seed == 0 ? -127 : activation());
      for (std::size_t i = 0; i < x.size(); i += 256) x[i] = 127;  // every block has the scale 1
      for (const KernelTable* table : AvailableKernels()) {
        const std::vector<float> out = Multiply(*table, weights, Prepared(*table, format, x.data(), m, k, k), m);
        for (std::int64_t r = 0; r < m; ++r) {
          for (std::int64_t c = 0; c < n; ++c) {
            std::int64_t dot = 0;
            for (std::int64_t i = 0; i < k; ++i) {
              const std::uint8_t w = codes[static_cast<std::size_t>(c * k + i)];
              dot += std::int64_t{traits.table != nullptr ? traits.table[w] : w - traits.zero_point} *
                     static_cast<std::int64_t>(x[static_cast<std::size_t>(r * k + i)]);
            }
            ASSERT_EQ(out[static_cast<std::size_t>(r * n + c)], static_cast<float>(dot))
                << table->isa << ' ' << traits.name << " seed " << seed;
          }
        }
      }
    }
  }
}

TEST(GemmInt8, PreparedRowsAreTheSameBytesOnEveryTier) {
  for (const std::int64_t k : {32, 64, 96, 256, 288, 1056}) {
    const std::int64_t m = 5;
    std::vector<float> x = RandomFloats(m * k, 20);
    x[0] = 0.0f;
    for (std::int64_t i = 0; i < k; ++i) x[static_cast<std::size_t>(2 * k + i)] *= 1e-20f;
    const Prepared expected(ReferenceKernels(), WeightFormat::kInt8Group32, x.data(), m, k, k);
    for (const KernelTable* table : AvailableKernels()) {
      const Prepared got(*table, WeightFormat::kInt8Group32, x.data(), m, k, k);
      EXPECT_EQ(std::memcmp(got.row(0), expected.row(0), static_cast<std::size_t>(m) * got.row_bytes), 0)
          << table->isa << ' ' << k;
    }
  }
}

}  // namespace
}  // namespace quire::kernels
