#include "weights/row_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace quire::weights {
namespace {

// Row 2 of three holds `value` once, else ones.
std::string ErrorOf(const TypeTraits& type, float value) {
  ThreadPool pool(2);
  const auto fill = [&](std::int64_t row, float* out) {
    std::fill_n(out, 256, 1.0f);
    if (row == 2) out[7] = value;
  };
  const auto result = EncodeRows(&pool, "w", type, 3, 256, fill, [](std::span<const std::byte>) { return Result<>(); });
  return result.has_value() ? "" : result.error().message;
}

TEST(EncodeRows, ValuesThatATypeCannotHoldAreErrors) {
  for (const TypeTraits& type : AllTypes()) {
    if (type.quantize_row == nullptr) continue;
    EXPECT_EQ(ErrorOf(type, 65000), "") << type.name;
    const bool has_wide_exponents = type.name == "F32" || type.name == "BF16" || type.name == "MXFP4";
    EXPECT_EQ(ErrorOf(type, -1e9f).empty(), has_wide_exponents) << type.name;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      EXPECT_THAT(ErrorOf(type, bad), testing::StartsWith("tensor w: row 2 holds a value that")) << type.name;
    }
  }
  EXPECT_EQ(ErrorOf(*FindTypeByName("Q8_0"), 1e6f), "");     // 1e6 / 127 is an F16
  EXPECT_NE(ErrorOf(*FindTypeByName("F16"), 65520.0f), "");  // rounds to infinity
}

}  // namespace
}  // namespace quire::weights
