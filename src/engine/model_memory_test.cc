// What models take is known before they are loaded.
#include "engine/model_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/loader.h"
#include "weights/model_source.h"

namespace quire::engine {
namespace {

const std::string kDemo = std::string(QUIRE_SOURCE_DIR) + "/models/demo";
constexpr std::int64_t kMebibyte = 1 << 20;

TEST(ModelMemoryTest, WeightsAreWhatLoadingMakesOfThem) {
  const auto source = weights::ModelSource::Open(kDemo);
  ASSERT_TRUE(source.has_value());
  for (const weights::Quantization quantization : weights::kQuantizations) {
    const auto estimate = EstimateWeightBytes(**source, quantization);
    ASSERT_TRUE(estimate.has_value()) << estimate.error().message;
    const auto loaded = LoadModel({.model = kDemo, .num_threads = 1, .quantization = quantization}, {});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    const auto real = static_cast<double>(loaded->model->weight_bytes());
    EXPECT_NEAR(static_cast<double>(*estimate), real, 0.02 * real) << weights::QuantizationName(quantization);
  }
}

TEST(ModelMemoryTest, KeysAndValuesAreWhatTheEngineTakes) {
  EngineOptions options{.model = kDemo, .num_threads = 1};
  const auto memory = MeasureModel(options, 100 * kMebibyte, 20 * kMebibyte);
  ASSERT_TRUE(memory.has_value()) << memory.error().message;
  EXPECT_GT(memory->kv_bytes, 19 * kMebibyte);
  EXPECT_LE(memory->kv_bytes, 20 * kMebibyte);
  options.kv_memory_bytes = memory->kv_bytes;
  const auto loaded = LoadEngine(options);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  const auto block_bytes = static_cast<std::int64_t>(loaded->loaded.model->kv_layout().block_bytes());
  EXPECT_EQ(loaded->info.num_blocks * block_bytes, memory->kv_bytes);
}

TEST(ModelMemoryTest, KeysAndValuesGetWhatIsLeftAndNoMoreThanIsOfUse) {
  EngineOptions options{.model = kDemo};
  const auto weights = MeasureModel(options, 100 * kMebibyte, kMebibyte)->weight_bytes;
  const auto left = MeasureModel(options, weights + 3 * kMebibyte, 20 * kMebibyte);
  ASSERT_TRUE(left.has_value());
  EXPECT_LE(left->weight_bytes + left->kv_bytes, weights + 3 * kMebibyte);
  EXPECT_GT(left->kv_bytes, 2 * kMebibyte);
  options.swap_memory_bytes = kMebibyte;
  const auto beside_swap = MeasureModel(options, weights + 3 * kMebibyte, 20 * kMebibyte);
  ASSERT_TRUE(beside_swap.has_value());
  EXPECT_LE(beside_swap->weight_bytes + beside_swap->swap_bytes + beside_swap->kv_bytes, weights + 3 * kMebibyte);
  options.kv_disk = "somewhere";
  options.kv_transfer_bytes = kMebibyte / 2;
  const auto with_tier = MeasureModel(options, weights + 3 * kMebibyte, 20 * kMebibyte);
  ASSERT_TRUE(with_tier.has_value());
  EXPECT_EQ(with_tier->swap_bytes, kMebibyte + kMebibyte / 2);
  EXPECT_LT(with_tier->kv_bytes, beside_swap->kv_bytes);
  options.max_model_len = 16;
  options.max_num_seqs = 1;
  const auto useful = MeasureModel(options, 100 * kMebibyte, 50 * kMebibyte);
  ASSERT_TRUE(useful.has_value());
  EXPECT_LT(useful->kv_bytes, kMebibyte);
}

TEST(ModelMemoryTest, SaysWhatIsMissing) {
  EngineOptions options{.model = kDemo};
  const auto no_room = MeasureModel(options, 5 * kMebibyte, kMebibyte);
  ASSERT_FALSE(no_room.has_value());
  EXPECT_THAT(no_room.error().message, ::testing::HasSubstr("its weights take 8."));
  options.kv_memory_bytes = 95 * kMebibyte;
  EXPECT_FALSE(MeasureModel(options, 100 * kMebibyte, kMebibyte).has_value());
  options.kv_memory_bytes = 0;
  options.max_model_len = 2048;
  const auto too_short = MeasureModel(options, 100 * kMebibyte, kMebibyte);
  ASSERT_FALSE(too_short.has_value());
  EXPECT_THAT(too_short.error().message, ::testing::HasSubstr("a sequence of 2048 needs"));
  EXPECT_FALSE(MeasureModel({.model = "/does/not/exist"}, kMebibyte, kMebibyte).has_value());
}

}  // namespace
}  // namespace quire::engine
