// Which columns are kept apart, and which are not.
#include "weights/outlier_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "base/float16.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Columns = std::vector<std::int32_t>;

// A matrix of floats; columns can be multiplied.
class Floats final : public MatrixSource {
 public:
  Floats(std::int64_t rows, std::int64_t columns, float size = 1, std::uint32_t seed = 5)
      : MatrixSource({.name = "m", .type_name = "F32", .rows = rows, .columns = columns}),
        values_(static_cast<std::size_t>(rows * columns)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, size);
    for (float& value : values_) value = normal(random);
  }
  Floats& Scale(const Columns& columns, float factor) {
    for (const std::int32_t column : columns) {
      for (std::int64_t row = 0; row < info().rows; ++row) At(row, column) *= factor;
    }
    return *this;
  }
  float& At(std::int64_t row, std::int64_t column) {
    return values_[static_cast<std::size_t>(row * info().columns + column)];
  }

  Result<> Decode(std::int64_t row, RowBuffer* out) const override { return Dequantize(row, out->values.data()); }
  Result<> Dequantize(std::int64_t row, float* out) const override {
    std::copy_n(values_.begin() + row * info().columns, info().columns, out);
    return {};
  }

 private:
  std::vector<float> values_;
};

Columns Find(std::vector<const MatrixSource*> matrices) {
  const auto found = FindOutlierColumns(matrices);
  if (!found) ADD_FAILURE() << found.error().message;
  return found ? *found : Columns{};
}

TEST(OutlierColumnsTest, OneInAHundredAtMost) {
  EXPECT_EQ(OutlierColumnsMax(32), 1);
  EXPECT_EQ(OutlierColumnsMax(100), 1);
  EXPECT_EQ(OutlierColumnsMax(4096), 41);
  EXPECT_EQ(OutlierColumnsMax(14336), 64);
}

TEST(OutlierColumnsTest, ColumnsThatAreAlikeAllStay) {
  const Floats normal(300, 512);
  EXPECT_THAT(Find({&normal}), IsEmpty());
  Floats loud(300, 512);  // a whole group: its scale serves it well
  Columns group(32);
  for (int i = 0; i < 32; ++i) group[static_cast<std::size_t>(i)] = 64 + i;
  loud.Scale(group, 50);
  EXPECT_THAT(Find({&loud}), IsEmpty());
  const Floats zeros(40, 512, 0);
  EXPECT_THAT(Find({&zeros}), IsEmpty());
}

TEST(OutlierColumnsTest, FindsWhatWasPlanted) {
  Floats matrix(500, 512);
  matrix.Scale({7, 130, 131, 511}, 30);  // one group holds two, of which one alone would gain nothing
  EXPECT_THAT(Find({&matrix}), ElementsAre(7, 130, 131, 511));
  EXPECT_EQ(Find({&matrix}), Find({&matrix}));
}

// One must be about five times as large as the others.
TEST(OutlierColumnsTest, AColumnMustBeWorthItsBits) {
  EXPECT_THAT(Find({&Floats(500, 512).Scale({40}, 2)}), IsEmpty());
  EXPECT_THAT(Find({&Floats(500, 512).Scale({40}, 8)}), ElementsAre(40));
  EXPECT_THAT(Find({&Floats(500, 512).Scale({40}, 4.9f)}), ElementsAre(40));
  // The same for two: they do not even divide the group's error by 2.8.
  EXPECT_THAT(Find({&Floats(500, 512).Scale({40, 41}, 4.9f)}), IsEmpty());
}

TEST(OutlierColumnsTest, WhereThereAreTooManyTheWorstAreKept) {
  Floats matrix(300, 256);  // three at most
  matrix.Scale({10}, 20).Scale({50}, 60).Scale({90}, 40).Scale({130}, 80);
  EXPECT_THAT(Find({&matrix}), ElementsAre(50, 90, 130));
  // Four in one group are not taken in part.
  EXPECT_THAT(Find({&Floats(300, 256).Scale({1, 2, 3, 4}, 100).Scale({200}, 10)}), ElementsAre(200));
}

// A matrix counts whatever the size of its weights, beside larger ones too.
TEST(OutlierColumnsTest, MatricesThatShareInputs) {
  const Floats large(400, 256, 10, 1);
  const Floats small = Floats(400, 256, 0.01f, 2).Scale({33}, 100);
  EXPECT_THAT(Find({&large, &small}), ElementsAre(33));
}

// One weight is no column: it hurts one output.
TEST(OutlierColumnsTest, ASingleLargeWeightIsNoColumn) {
  Floats matrix(256, 512);
  matrix.At(17, 100) = 1e4f;
  EXPECT_THAT(Find({&matrix}), IsEmpty());
}

TEST(OutlierColumnsTest, ZerosCannotBeHurt) {
  Floats matrix(64, 64, 0.0f);
  for (std::int64_t row = 0; row < 64; ++row) matrix.At(row, 5) = 1;
  EXPECT_THAT(Find({&matrix}), IsEmpty());
}

TEST(OutlierColumnsTest, RowsThatGroupsDoNotDivideAndWeightsThatAreNoNumbers) {
  EXPECT_THAT(Find({&Floats(300, 500).Scale({3}, 100)}), IsEmpty());
  Floats matrix(300, 256);
  matrix.Scale({3}, 100);
  matrix.At(0, 9) = std::numeric_limits<float>::infinity();
  matrix.At(1, 9) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Find({&matrix}), ElementsAre(3));
}

TEST(OutlierColumnsTest, KeepsThemAsBf16) {
  auto floats = std::make_unique<Floats>(3, 64);
  Floats& values = *floats;
  const auto kept = KeepColumns(std::move(floats), {2, 60});
  EXPECT_EQ(kept->info().rows, 3);
  EXPECT_EQ(kept->info().columns, 2);
  EXPECT_EQ(kept->info().packed, kernels::WeightFormat::kBf16);
  RowBuffer row;
  ASSERT_TRUE(kept->Decode(2, &row).has_value());
  EXPECT_THAT(row.values, ElementsAre(ToFloat(ToBf16(values.At(2, 2))), ToFloat(ToBf16(values.At(2, 60)))));
}

}  // namespace
}  // namespace quire::weights
