// Norms, rotation, activations and reductions: every count around the vector width, misaligned, against the
// reference within bounds in units of the last place, and the same bits wherever an element stands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"

namespace quire::kernels {
namespace {

constexpr double kUnit = 0x1p-24;  // half a unit in the last place of a float
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::int64_t> Counts() {
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 0; n <= 2 * 16 + 1; ++n) counts.push_back(n);
  for (const std::int64_t n : {47, 63, 64, 65, 79, 80, 127, 128, 129, 200, 896}) counts.push_back(n);
  return counts;
}

class Random {
 public:
  explicit Random(std::uint32_t seed) : rng_(seed) {}
  std::vector<float> Floats(std::int64_t n, float spread = 1) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& v : values) v = normal(rng_);
    return values;
  }

 private:
  std::mt19937 rng_;
};

bool SameBits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * 4) == 0;
}

void ExpectClose(const char* isa, const std::vector<float>& got, const std::vector<float>& expected, double units) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(double{got[i]} - double{expected[i]}), units * kUnit * std::abs(double{expected[i]}))
        << isa << ' ' << i << " of " << got.size() << ": " << got[i] << " for " << expected[i];
  }
}

TEST(RmsNorm, EveryCountAndAlignment) {
  for (const std::int64_t n : Counts()) {
    if (n == 0) continue;
    for (const std::int64_t offset : {0, 1, 3}) {
      const std::int64_t rows = 3, ld = n + 2;
      Random random(static_cast<std::uint32_t>(n));
      const auto x = random.Floats(rows * ld + offset), weight = random.Floats(n + offset);
      std::vector<float> expected(static_cast<std::size_t>(rows * n));
      ReferenceKernels().rms_norm(x.data() + offset, weight.data() + offset, 1e-6f, rows, n, ld, n, expected.data());
      for (const KernelTable* table : AvailableKernels()) {
        std::vector<float> y(static_cast<std::size_t>(rows * n + offset), 0.0f);
        table->rms_norm(x.data() + offset, weight.data() + offset, 1e-6f, rows, n, ld, n, y.data() + offset);
        y.erase(y.begin(), y.begin() + offset);
        // A sum of n squares in 64 lanes (n / 64 + 7 roundings, halved by the root), then six single
        // operations.
        ExpectClose(table->isa, y, expected, static_cast<double>(n) / 128 + 12);
        std::vector<float> in_place(x.begin() + offset, x.end());
        table->rms_norm(in_place.data(), weight.data() + offset, 1e-6f, 1, n, ld, ld, in_place.data());
        EXPECT_TRUE(SameBits(in_place.data(), y.data(), n)) << table->isa << " in place";
      }
    }
  }
}

TEST(AddRmsNorm, IsAnAdditionAndThenANorm) {
  for (const std::int64_t n : {1, 17, 64, 100, 896}) {
    Random random(static_cast<std::uint32_t>(n));
    const auto x = random.Floats(2 * n), delta = random.Floats(2 * n), weight = random.Floats(n);
    for (const KernelTable* table : AvailableKernels()) {
      std::vector<float> sum = x, expected(x.size()), y(x.size());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += delta[i];
      table->rms_norm(sum.data(), weight.data(), 1e-5f, 2, n, n, n, expected.data());
      std::vector<float> in = x;
      table->add_rms_norm(in.data(), delta.data(), weight.data(), 1e-5f, 2, n, y.data());
      EXPECT_EQ(in, sum) << table->isa;
      EXPECT_TRUE(SameBits(y.data(), expected.data(), 2 * n)) << table->isa;
    }
  }
}

TEST(Rope, RotatesPairsAndLeavesTheRestAlone) {
  for (const std::int64_t rotary : {2, 8, 30, 32, 64, 128}) {
    const std::int64_t head_dim = rotary + 6, heads = 2, tokens = 3, stride = heads * head_dim + 5;
    Random random(static_cast<std::uint32_t>(rotary));
    const auto x = random.Floats(tokens * stride);
    std::vector<float> cos, sin;
    for (const float angle : random.Floats(tokens * rotary / 2, 3)) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
    std::vector<float> expected = x;
    ReferenceKernels().rope(expected.data(), tokens, heads, head_dim, rotary, stride, cos.data(), sin.data());
    for (const KernelTable* table : AvailableKernels()) {
      std::vector<float> y = x;
      table->rope(y.data(), tokens, heads, head_dim, rotary, stride, cos.data(), sin.data());
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::int64_t column = static_cast<std::int64_t>(i) % stride;
        const bool rotated = column < heads * head_dim && column % head_dim < rotary;
        // Two roundings of a and b, whose magnitudes are below 8 here.
        EXPECT_NEAR(y[i], expected[i], rotated ? 3 * kUnit * 16 : 0) << table->isa << ' ' << i;
      }
    }
  }
}

TEST(SiluMul, EveryCountAndExtremeGates) {
  for (const std::int64_t n : Counts()) {
    Random random(static_cast<std::uint32_t>(n) + 7);
    const std::int64_t rows = 2;
    const auto gate_up = random.Floats(rows * 2 * n, 4);
    std::vector<float> expected(static_cast<std::size_t>(rows * n));
    ReferenceKernels().silu_mul(gate_up.data(), rows, n, expected.data());
    for (const KernelTable* table : AvailableKernels()) {
      std::vector<float> out(static_cast<std::size_t>(rows * n + 1));
      table->silu_mul(gate_up.data(), rows, n, out.data() + 1);
      out.erase(out.begin());
      ExpectClose(table->isa, out, expected,
                  8);  // e^−x: 2.2; 1 + e, the division, the product: 1 each; reference
    }
  }
  const float gates[] = {0.0f, -0.0f, 100.0f, -100.0f, 88.7f, -88.7f, 1e30f, -1e30f, 1e-40f, kNan};
  for (const float gate : gates) {
    for (const KernelTable* table : AvailableKernels()) {
      const float gate_up[] = {gate, 2.0f};
      float out = 0, expected = 0;
      ReferenceKernels().silu_mul(gate_up, 1, 1, &expected);
      table->silu_mul(gate_up, 1, 1, &out);
      if (std::isnan(gate)) {
        EXPECT_TRUE(std::isnan(out));
      } else {
        EXPECT_NEAR(out, expected, 8 * kUnit * std::abs(expected) + 0x1p-126) << table->isa << ' ' << gate;
      }
    }
  }
}

TEST(SiluMul, AnElementIsTheSameBitsWhereverItStands) {
  for (const KernelTable* table : AvailableKernels()) {
    Random random(70);
    const auto gate = random.Floats(100, 5), up = random.Floats(100);
    for (std::int64_t n = 1; n <= 100; n += n < 40 ? 1 : 13) {
      std::vector<float> gate_up(gate.begin(), gate.begin() + n);
      gate_up.insert(gate_up.end(), up.begin(), up.begin() + n);
      std::vector<float> out(static_cast<std::size_t>(n));
      table->silu_mul(gate_up.data(), 1, n, out.data());
      const float last[] = {gate[static_cast<std::size_t>(n - 1)], up[static_cast<std::size_t>(n - 1)]};
      float alone = 0;
      table->silu_mul(last, 1, 1, &alone);
      ASSERT_TRUE(SameBits(&alone, &out.back(), 1)) << table->isa << ' ' << n;
    }
  }
}

TEST(Add, EveryCountIsExactAndNothingElseIsWritten) {
  for (const std::int64_t n : Counts()) {
    Random random(static_cast<std::uint32_t>(n) + 90);
    const auto x = random.Floats(3 * (n + 4)), y = random.Floats(n + 1);
    for (const KernelTable* table : AvailableKernels()) {
      std::vector<float> expected = x, got = x;
      for (std::int64_t r = 0; r < 3; ++r) {
        for (std::int64_t i = 0; i < n; ++i) {
          expected[static_cast<std::size_t>(r * (n + 3) + 1 + i)] += y[static_cast<std::size_t>(i + 1)];
        }
      }
      table->add_bias(got.data() + 1, y.data() + 1, 3, n, n + 3);
      EXPECT_EQ(got, expected) << table->isa << ' ' << n;
      got = x;
      table->add(got.data() + 1, y.data() + 1, n);
      expected.assign(x.begin(), x.end());
      for (std::int64_t i = 0; i < n; ++i) {
        expected[static_cast<std::size_t>(i + 1)] += y[static_cast<std::size_t>(i + 1)];
      }
      EXPECT_EQ(got, expected) << table->isa << ' ' << n;
    }
  }
}

TEST(MaxValue, FirstOfTheLargestAndNeverNan) {
  for (const std::int64_t n : Counts()) {
    if (n == 0) continue;
    Random random(static_cast<std::uint32_t>(n) + 40);
    auto x = random.Floats(n + 1);
    for (float& v : x) v = std::round(v * 4) / 4;  // plenty of ties
    for (const bool poison : {false, true}) {
      if (poison) x[static_cast<std::size_t>(n / 2 + 1)] = kNan, x[1] = n > 1 ? kNan : x[1];
      std::int64_t expected_index = -1;
      const float expected = ReferenceKernels().max_value(x.data() + 1, n, &expected_index);
      for (const KernelTable* table : AvailableKernels()) {
        std::int64_t index = -1;
        const float value = table->max_value(x.data() + 1, n, &index);
        EXPECT_EQ(index, expected_index) << table->isa << ' ' << n;
        EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << table->isa << ' ' << n;
      }
    }
  }
  for (const KernelTable* table : AvailableKernels()) {
    std::int64_t index = -1;
    const float nothing[] = {kNan, kNan, kNan};
    EXPECT_TRUE(std::isnan(table->max_value(nothing, 3, &index)));
    EXPECT_EQ(index, 0);
    const float lowest[] = {kNan, -kInfinity, -kInfinity};
    EXPECT_EQ(table->max_value(lowest, 3, &index), -kInfinity);
    EXPECT_EQ(index, 1);
  }
}

// n = 1 shows the exponential itself: within 1.3e-7 wherever the result is a normal float, and right at the
// edges.
TEST(SumExp, TheExponentialIsAccurateOverItsWholeRange) {
  for (const KernelTable* table : AvailableKernels()) {
    double worst = 0;
    for (float x = -87.33f; x < 88.72f; x += 0.00317f) {
      const double expected = std::exp(double{x});
      worst = std::max(worst, std::abs(table->sum_exp(&x, 1, 0, 1) - expected) / expected);
    }
    EXPECT_LE(worst, 1.3e-7) << table->isa;
    const auto of = [&](float x) { return table->sum_exp(&x, 1, 0, 1); };
    EXPECT_EQ(of(0), 1);
    EXPECT_EQ(of(-0.0f), 1);
    EXPECT_LT(of(-200), 1e-44);
    EXPECT_EQ(of(-kInfinity), 0);
    EXPECT_GT(of(kInfinity), 3e38);
    EXPECT_TRUE(std::isnan(of(kNan)));
  }
}

TEST(SumExp, EveryCountAndTheSameBitsOnAllVectorTiers) {
  for (const std::int64_t n : Counts()) {
    Random random(static_cast<std::uint32_t>(n) + 60);
    const auto x = random.Floats(n + 1, 6);
    const double expected = ReferenceKernels().sum_exp(x.data() + 1, n, 9.5f, 0.7f);
    double first = -1;
    for (const KernelTable* table : AvailableKernels()) {
      const double got = table->sum_exp(x.data() + 1, n, 9.5f, 0.7f);
      // Arguments up to 40 in size carry two roundings: 80 · 2⁻²⁴ relative in the result.
      EXPECT_NEAR(got, expected, (1.3e-7 + 80 * kUnit) * expected) << table->isa << ' ' << n;
      if (table == &ReferenceKernels()) continue;
      if (first < 0) first = got;
      EXPECT_EQ(got, first) << table->isa;
    }
  }
}

TEST(Elementwise, AllVectorTiersGiveTheSameBits) {
  Random random(99);
  const std::int64_t n = 301;
  const auto x = random.Floats(2 * n, 3), weight = random.Floats(n);
  std::vector<float> norm, silu;
  for (const KernelTable* table : AvailableKernels().subspan(1)) {
    std::vector<float> y(static_cast<std::size_t>(n)), s(static_cast<std::size_t>(n));
    table->rms_norm(x.data(), weight.data(), 1e-6f, 1, n, n, n, y.data());
    table->silu_mul(x.data(), 1, n, s.data());
    if (norm.empty()) norm = y, silu = s;
    EXPECT_EQ(y, norm) << table->isa;
    EXPECT_EQ(s, silu) << table->isa;
  }
}

}  // namespace
}  // namespace quire::kernels
