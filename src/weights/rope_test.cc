// Values that can be worked out by hand; tests/weights compares every type with the formulas in numpy.
#include "weights/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire::weights {
namespace {

TEST(Rope, PlainLinearAndDynamicFrequencies) {  // ROPE-03
  RopeConfig rope;
  EXPECT_EQ(InverseFrequencies(rope, 4, 100), (std::vector<double>{1.0, 0.01}));
  rope.type = RopeType::kLinear;
  rope.factor = 4;
  EXPECT_EQ(InverseFrequencies(rope, 4, 100), (std::vector<double>{0.25, 0.0025}));
  rope.type = RopeType::kDynamic;
  rope.original_max_position_embeddings = 8;
  EXPECT_EQ(InverseFrequencies(rope, 4, 8), (std::vector<double>{1.0, 0.01}));
  // Twice the length: the base times (4 · 2 − 3)^(4/2) = 25.
  EXPECT_NEAR(InverseFrequencies(rope, 4, 16)[1], 1 / std::sqrt(250000.0), 1e-15);
  EXPECT_EQ(AttentionScaling(rope), 1.0);
}

TEST(Rope, Llama3SlowsLongWavesOnly) {  // ROPE-01
  RopeConfig rope{.type = RopeType::kLlama3, .theta = 500000, .factor = 8, .original_max_position_embeddings = 8192};
  RopeConfig plain = rope;
  plain.type = RopeType::kDefault;
  const auto scaled = InverseFrequencies(rope, 128, 0), base = InverseFrequencies(plain, 128, 0);
  EXPECT_EQ(scaled.front(), base.front());
  EXPECT_DOUBLE_EQ(scaled.back(), base.back() / 8);
  bool blended = false;
  for (std::size_t i = 0; i < base.size(); ++i) {
    EXPECT_LE(scaled[i], base[i]);
    EXPECT_GE(scaled[i], base[i] / 8 * (1 - 1e-12));
    blended |= scaled[i] < base[i] * 0.99 && scaled[i] > base[i] / 8 * 1.01;
  }
  EXPECT_TRUE(blended);
}

TEST(Rope, YarnScalesCosAndSinOnce) {  // ROPE-04
  RopeConfig rope{.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 4096};
  EXPECT_DOUBLE_EQ(AttentionScaling(rope), 0.1 * std::log(4.0) + 1);
  rope.mscale = 0.707;
  EXPECT_DOUBLE_EQ(AttentionScaling(rope), 0.1 * std::log(4.0) + 1);  // both are needed
  rope.mscale_all_dim = 0.707;
  EXPECT_DOUBLE_EQ(AttentionScaling(rope), 1.0);
  rope.attention_factor = 1.5;
  EXPECT_EQ(AttentionScaling(rope), 1.5);
}

TEST(Rope, DivisorsOfGgufDivideEachPair) {
  RopeConfig rope{.frequency_divisors = {1, 8}};
  EXPECT_EQ(InverseFrequencies(rope, 4, 0), (std::vector<double>{1.0, 0.01 / 8}));
}

}  // namespace
}  // namespace quire::weights
