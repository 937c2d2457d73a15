// The bytes of KvLayout by hand, and how values are rounded to each type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/float8.h"
#include "kernels/kernels_test_util.h"

namespace quire::kernels {
namespace {

constexpr int kTokens = KvLayout::block_size;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A pool of three blocks in which token 5 of block 2 was written in layer 1 for two heads.
struct Stored {
  KvLayout layout;
  AlignedBuffer pool;

  // k and v [2, head_dim]
  Stored(KvDtype dtype, const std::vector<float>& k, const std::vector<float>& v)
      : layout{.num_layers = 2, .num_kv_heads = 2, .head_dim = static_cast<int>(k.size() / 2), .dtype = dtype},
        pool(AlignedBuffer::Allocate(3 * layout.block_bytes()).value()) {
    const std::int64_t slot = 2 * kTokens + 5;
    ReferenceKernels().store_kv({.layout = &layout,
                                 .pool = pool.data(),
                                 .layer = 1,
                                 .num_tokens = 1,
                                 .slots = &slot,
                                 .k = k.data(),
                                 .v = v.data(),
                                 .stride = static_cast<std::int64_t>(k.size())});
  }

  // Element `index` of type T behind `offset` in the K tile of head 1.
  template <typename T>
  T At(std::size_t offset, std::size_t index) const {
    T value;
    std::memcpy(&value, pool.data() + 2 * layout.block_bytes() + layout.tile_offset(1, 1) + offset + index * sizeof(T),
                sizeof(T));
    return value;
  }
  std::size_t NumWritten() const {
    std::size_t written = 0;
    for (std::size_t i = 0; i < pool.size(); ++i) written += pool.data()[i] != std::byte{0};
    return written;
  }
};

std::vector<float> Ascending(float first, std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(StoreKv, F32AndBf16ElementsAreWhereTheLayoutSays) {
  const std::vector<float> k = Ascending(1, 12), v = Ascending(100, 12);
  const Stored floats(KvDtype::kF32, k, v), halves(KvDtype::kBf16, k, v);
  for (std::size_t d = 0; d < 6; ++d) {
    EXPECT_EQ(floats.At<float>(0, d * 16 + 5), k[6 + d]);
    EXPECT_EQ(floats.At<float>(6 * 16 * 4, 5 * 6 + d), v[6 + d]);
    EXPECT_EQ(ToFloat(Bf16{halves.At<std::uint16_t>(0, d / 2 * 32 + 5 * 2 + d % 2)}), k[6 + d]);
    EXPECT_EQ(ToFloat(Bf16{halves.At<std::uint16_t>(6 * 16 * 2, 2 * 12 + d * 2 + 1)}), v[6 + d]);
  }
  EXPECT_LE(floats.NumWritten(), 2u * 2 * 6 * 4);  // and nothing else
  EXPECT_LE(halves.NumWritten(), 2u * 2 * 6 * 2);
}

TEST(StoreKv, Fp8) {
  // 1.0 is exponent 7 (the bias), mantissa 0: 0x38. 1.0625 lies between 1 and 1.125 and goes to the even one.
  const std::vector<float> k{0, 0, 0, 0, 0, 0, 1, -2, 1.0625f, 448, 1e9f, kNan};
  const std::vector<float> v{0, 0, 0, 0, 0, 0, 0x1p-9f, -0x1p-6f, 1.1875f, -464, kInfinity, 0x1p-10f};
  const Stored stored(KvDtype::kFp8E4m3, k, v);
  const std::uint8_t expected_k[] = {0x38, 0xC0, 0x38, 0x7E, 0x7E, 0x7F}, expected_v[] = {1, 0x88, 0x3A, 0xFE, 0x7F, 0};
  for (std::size_t d = 0; d < 6; ++d) {
    EXPECT_EQ(stored.At<std::uint8_t>(0, d * 16 + 5), expected_k[d]) << d;
    EXPECT_EQ(stored.At<std::uint8_t>(6 * 16, 5 * 16 + d), expected_v[d]) << d;
  }
  EXPECT_EQ(stored.NumWritten(), 6u + 5);
}

TEST(StoreKv, Int8) {
  // Largest 254: scale 2, and halves go to the even code.
  const std::vector<float> k{9, 9, 9, 9, 9, 9, 254, -254, 3, 5, -1, 0};
  const std::vector<float> v{9, 9, 9, 9, 9, 9, 1, 0, 0, -127, 63.5f, 64.5f};
  const Stored stored(KvDtype::kInt8, k, v);
  const std::int8_t expected_k[] = {127, -127, 2, 2, 0, 0}, expected_v[] = {1, 0, 0, -127, 64, 64};
  const std::size_t value = 6 * 16 + 64;
  for (std::size_t d = 0; d < 6; ++d) {
    EXPECT_EQ(stored.At<std::int8_t>(0, d * 16 + 5), expected_k[d]) << d;
    EXPECT_EQ(stored.At<std::int8_t>(value, 5 * 16 + d), expected_v[d]) << d;
  }
  EXPECT_EQ(stored.At<float>(6 * 16, 5), 2);
  EXPECT_EQ(stored.At<float>(value + 16 * 16, 5), 1);
}

TEST(StoreKv, Int8OfWhatIsNotFiniteIsANanScale) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    const Stored stored(KvDtype::kInt8, {1, 2, 3, bad}, {1, 2, bad, 3});
    for (std::size_t d = 0; d < 2; ++d) {
      EXPECT_EQ(stored.At<std::int8_t>(0, d * 16 + 5), 0);
      EXPECT_EQ(stored.At<std::int8_t>(2 * 16 + 64, 5 * 16 + d), 0);
    }
    EXPECT_TRUE(std::isnan(stored.At<float>(2 * 16, 5)));
    EXPECT_TRUE(std::isnan(stored.At<float>(2 * 16 + 64 + 16 * 16, 5)));
  }
}

TEST(StoreKv, Int4) {
  // 36 channels: a group of 32 from −3 to 27 (scale 2) and one of 4 from 1 to 8.5 (scale ½). The value has one scale.
  constexpr std::size_t kDims = 36;
  std::vector<float> k(2 * kDims, 9), v(2 * kDims, 9);
  for (std::size_t d = 0; d < 32; ++d) k[kDims + d] = static_cast<float>(d) - 3;  // 28 is beyond: replaced below
  for (std::size_t d = 28; d < 32; ++d) k[kDims + d] = 27;
  k[kDims + 32] = 8.5f, k[kDims + 33] = 1, k[kDims + 34] = 1.25f, k[kDims + 35] = 1.75f;
  for (std::size_t d = 0; d < kDims; ++d) v[kDims + d] = static_cast<float>(d % 16) * 4 - 8;
  const Stored stored(KvDtype::kInt4, k, v);
  const auto half = [&](std::size_t offset, std::size_t index) {
    return ToFloat(F16{stored.At<std::uint16_t>(offset, index)});
  };
  const std::size_t scales = kDims / 2 * 16;
  EXPECT_EQ(half(scales, 5), 2);
  EXPECT_EQ(half(scales, 16 + 5), -3);
  EXPECT_EQ(half(scales + 64, 5), 0.5f);
  EXPECT_EQ(half(scales + 64, 16 + 5), 1);
  // Codes (x + 3) / 2: channel 1 is ½ → 0, channel 3 is 1½ → 2.
  EXPECT_EQ(stored.At<std::uint8_t>(0, 0 * 16 + 5), 0x00);
  EXPECT_EQ(stored.At<std::uint8_t>(0, 1 * 16 + 5), 0x21);
  EXPECT_EQ(stored.At<std::uint8_t>(0, 15 * 16 + 5), 0xFF);
  EXPECT_EQ(stored.At<std::uint8_t>(0, 16 * 16 + 5), 0x0F);
  EXPECT_EQ(stored.At<std::uint8_t>(0, 17 * 16 + 5), 0x20);
  // A row of values is 2 × 16 bytes; the low nibbles of the first 16 are dimensions 0 … 15, the high ones 16 … 31.
  const std::size_t value = scales + 2 * 64;
  for (std::size_t d = 0; d < 16; ++d) EXPECT_EQ(stored.At<std::uint8_t>(value, 5 * 32 + d), d * 0x11) << d;
  for (std::size_t d = 0; d < 16; ++d) {
    EXPECT_EQ(stored.At<std::uint8_t>(value, 5 * 32 + 16 + d), d < 4 ? d : 0) << d;  // the rest is padding
  }
  EXPECT_EQ(half(value + 16 * 32, 5), 4);
  EXPECT_EQ(half(value + 16 * 32, 16 + 5), -8);
}

TEST(StoreKv, Int4OfWhatIsNotFiniteIsANanScaleOfItsGroup) {
  std::vector<float> k(2 * 64, 1), v(2 * 64, 1);
  k[64 + 40] = kInfinity;
  v[64 + 3] = kNan;
  const Stored stored(KvDtype::kInt4, k, v);
  const auto scale = [&](std::size_t offset) { return ToFloat(F16{stored.At<std::uint16_t>(offset, 5)}); };
  EXPECT_EQ(scale(32 * 16), 0);
  EXPECT_TRUE(std::isnan(scale(32 * 16 + 64)));
  EXPECT_TRUE(std::isnan(scale(32 * 16 + 128 + 16 * 32)));
}

TEST(KvLayout, BytesOfABlockOfEveryType) {
  const auto bytes = [](KvDtype dtype, int head_dim) {
    return KvLayout{.num_layers = 3, .num_kv_heads = 2, .head_dim = head_dim, .dtype = dtype}.block_bytes() / 6 / 16;
  };
  // Of one token, layer and head, key and value; 64 dimensions, and 40 with their padding.
  EXPECT_EQ(bytes(KvDtype::kF32, 64), 512u);
  EXPECT_EQ(bytes(KvDtype::kBf16, 64), 256u);
  EXPECT_EQ(bytes(KvDtype::kFp8E4m3, 64), 128u);
  EXPECT_EQ(bytes(KvDtype::kInt8, 64), 136u);
  EXPECT_EQ(bytes(KvDtype::kInt4, 64), 32u + 8 + 32 + 4);
  EXPECT_EQ(bytes(KvDtype::kFp8E4m3, 40), 40u + 48);
  EXPECT_EQ(bytes(KvDtype::kInt8, 40), 44u + 52);
  EXPECT_EQ(bytes(KvDtype::kInt4, 40), 20u + 8 + 32 + 4);
}

// Every code is its own rounding, and the middle between two neighbours goes to the even one.
TEST(Fp8E4m3, RoundsHalfToEvenAndSaturates) {
  for (unsigned code = 0; code < 0x7E; ++code) {
    const float low = ToFloat(Fp8E4m3{static_cast<std::uint8_t>(code)});
    const float high = ToFloat(Fp8E4m3{static_cast<std::uint8_t>(code + 1)});
    ASSERT_LT(low, high);
    const float middle = (low + high) / 2;
    EXPECT_EQ(ToFp8E4m3(low).bits, code);
    EXPECT_EQ(ToFp8E4m3(-low).bits, code | 0x80);
    EXPECT_EQ(ToFp8E4m3(middle).bits, code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(ToFp8E4m3(std::nextafter(middle, 0.0f)).bits, code);
    EXPECT_EQ(ToFp8E4m3(-std::nextafter(middle, 1e9f)).bits, (code + 1) | 0x80);
  }
  EXPECT_EQ(ToFloat(Fp8E4m3{0x7E}), 448);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x08}), 0x1p-6f);
  EXPECT_TRUE(std::isnan(ToFloat(Fp8E4m3{0x7F})));
  EXPECT_TRUE(std::isnan(ToFloat(Fp8E4m3{0xFF})));
  EXPECT_EQ(ToFp8E4m3(1e30f).bits, 0x7E);
  EXPECT_EQ(ToFp8E4m3(-1e30f).bits, 0xFE);
  EXPECT_EQ(ToFp8E4m3(kInfinity).bits, 0x7F);
  EXPECT_EQ(ToFp8E4m3(-kNan).bits & 0x7F, 0x7F);
}

// All 256 codes through the kernels of every tier: a query that sees one key gets its value.
TEST(Fp8E4m3, EveryTierDecodesEveryCode) {
  for (const KernelTable* table : AvailableKernels()) {
    const KvLayout layout{.num_layers = 1, .num_kv_heads = 1, .head_dim = 256, .dtype = KvDtype::kFp8E4m3};
    auto pool = AlignedBuffer::Allocate(layout.block_bytes()).value();
    for (int code = 0; code < 256; ++code)
      pool.data()[layout.k_tile_bytes() + static_cast<std::size_t>(code)] = std::byte(code);
    auto scratch = AlignedBuffer::Allocate(table->attention_scratch_bytes(layout, 1)).value();
    const std::vector<float> q(256, 1);
    std::vector<float> out(256);
    const std::int32_t block = 0;
    const AttentionQueries queries{.blocks = &block, .num_queries = 1, .q = q.data(), .out = out.data()};
    table->attention({.layout = &layout,
                      .pool = pool.data(),
                      .sequences = &queries,
                      .num_sequences = 1,
                      .q_stride = 256,
                      .out_stride = 256,
                      .scratch = scratch.data()});
    for (unsigned code = 0; code < 256; ++code) {
      const float expected = ToFloat(Fp8E4m3{static_cast<std::uint8_t>(code)});
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(out[code])) << table->isa << ' ' << code;
      } else {
        EXPECT_EQ(out[code], expected) << table->isa << ' ' << code;
      }
    }
  }
}

}  // namespace
}  // namespace quire::kernels
