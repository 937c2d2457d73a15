// Toy blocks of every storage type with floats worked out by hand, and properties of the quantizers. The
// comparison with independent implementations is in tests/weights.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/counter_rng.h"
#include "base/float16.h"
#include "weights/tensor_source.h"

namespace quire::weights {
namespace {

using Bytes = std::vector<std::byte>;

void Append16(std::uint16_t bits, Bytes* out) {
  out->push_back(static_cast<std::byte>(bits & 255));
  out->push_back(static_cast<std::byte>(bits >> 8));
}

std::vector<float> Dequantize(std::string_view type, const Bytes& row, std::int64_t columns) {
  std::vector<float> values(static_cast<std::size_t>(columns));
  FindTypeByName(type)->dequantize_row(row.data(), columns, values.data());
  return values;
}

TEST(TensorTypes, FindsTypesByEveryName) {
  EXPECT_EQ(FindTypeByName("q4_k")->name, "Q4_K");
  EXPECT_EQ(FindTypeByGgufId(14)->name, "Q6_K");
  EXPECT_EQ(FindTypeBySafetensorsName("BF16")->gguf_id, 30);
  EXPECT_EQ(FindTypeByName("Q5_K"), nullptr);
  EXPECT_EQ(FindTypeByGgufId(0xFFFFFFFF), nullptr);
  EXPECT_EQ(FindTypeBySafetensorsName(""), nullptr);
  EXPECT_EQ(AllTypes().size(), 7u);
}

TEST(TensorTypes, RowBytesRefusesRowsThatBlocksDoNotDivide) {
  EXPECT_EQ(*RowBytes(*FindTypeByName("Q4_K"), 512, "t"), 288u);
  const auto bad = RowBytes(*FindTypeByName("Q4_K"), 300, "blk.0.attn_q.weight");
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().message,
            "tensor blk.0.attn_q.weight: rows of 300 elements cannot be stored as Q4_K, whose blocks hold 256");
  EXPECT_FALSE(RowBytes(*FindTypeByName("F32"), std::numeric_limits<std::int64_t>::max(), "t").has_value());
}

TEST(TensorTypes, Halves) {
  const Bytes f16 = {std::byte{0x00}, std::byte{0x3C}, std::byte{0x00}, std::byte{0xC0}};  // 1, −2
  EXPECT_EQ(Dequantize("F16", f16, 2), (std::vector<float>{1, -2}));
  const Bytes bf16 = {std::byte{0x80}, std::byte{0x3F}, std::byte{0x40}, std::byte{0xC0}};  // 1, −3
  EXPECT_EQ(Dequantize("BF16", bf16, 2), (std::vector<float>{1, -3}));
}

TEST(TensorTypes, Q8_0ByHand) {
  Bytes row;
  Append16(0x3800, &row);  // d = 0.5
  for (int i = 0; i < 32; ++i) row.push_back(static_cast<std::byte>(i == 0 ? -128 : i == 1 ? 127 : i));
  const auto values = Dequantize("Q8_0", row, 32);
  EXPECT_EQ(values[0], -64.0f);
  EXPECT_EQ(values[1], 63.5f);
  EXPECT_EQ(values[31], 15.5f);
  RowBuffer buffer;
  FindTypeByName("Q8_0")->decode_row(row.data(), 32, &buffer);
  EXPECT_EQ(buffer.codes[0], 0);
  EXPECT_EQ(buffer.codes[1], 255);
  EXPECT_EQ(buffer.codes[2], 130);
  EXPECT_EQ(buffer.scales, std::vector<float>{0.5f});
  EXPECT_TRUE(buffer.mins.empty());
}

TEST(TensorTypes, Q4_0ByHand) {
  Bytes row;
  Append16(0xC000, &row);  // d = −2
  for (int i = 0; i < 16; ++i) row.push_back(static_cast<std::byte>(i | (15 - i) << 4));
  const auto values = Dequantize("Q4_0", row, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], -2.0f * static_cast<float>(i - 8));
    EXPECT_EQ(values[16 + i], -2.0f * static_cast<float>(7 - i));
  }
}

TEST(TensorTypes, Q4KByHand) {
  Bytes row;
  Append16(0x3C00, &row);  // d = 1
  Append16(0x3800, &row);  // dmin = 0.5
  // Groups 0..3: scale 1 + g, min 8 + g. Group 4: scale 0b110101 = 53, min 0b101010 = 42; groups 5..7: zero.
  std::array<int, 12> packed = {1, 2, 3, 4, 8, 9, 10, 11, 0, 0, 0, 0};
  packed[0] |= 0b11 << 6;
  packed[4] |= 0b10 << 6;
  packed[8] = 0b0101 | 0b1010 << 4;
  for (const int byte : packed) row.push_back(static_cast<std::byte>(byte));
  for (int i = 0; i < 128; ++i) row.push_back(static_cast<std::byte>(3 | 12 << 4));  // even groups 3, odd ones 12
  const auto values = Dequantize("Q4_K", row, 256);
  EXPECT_EQ(values[0], 1.0f * 3 - 0.5f * 8);
  EXPECT_EQ(values[63], 2.0f * 12 - 0.5f * 9);
  EXPECT_EQ(values[64], 3.0f * 3 - 0.5f * 10);
  EXPECT_EQ(values[127], 4.0f * 12 - 0.5f * 11);
  EXPECT_EQ(values[128], 53.0f * 3 - 0.5f * 42);
  EXPECT_EQ(values[255], 0.0f);
}

TEST(TensorTypes, Q6KByHand) {
  Bytes row(210, std::byte{0});
  row[0] = std::byte{0x21};             // low nibble: element 0 has 1; high nibble: element 64 has 2
  row[32] = std::byte{0x43};            // element 32 has 3, element 96 has 4
  row[128] = std::byte{0b11'10'01'00};  // upper bits of elements 0, 32, 64, 96: 0, 1, 2, 3
  for (int g = 0; g < 16; ++g) row[static_cast<std::size_t>(192 + g)] = static_cast<std::byte>(g - 8);
  row[208] = std::byte{0x00};
  row[209] = std::byte{0x34};  // d = 0.25
  const auto values = Dequantize("Q6_K", row, 256);
  EXPECT_EQ(values[0], 0.25f * -8 * (1 - 32));
  EXPECT_EQ(values[32], 0.25f * -6 * (3 + 16 - 32));
  EXPECT_EQ(values[64], 0.25f * -4 * (2 + 32 - 32));
  EXPECT_EQ(values[96], 0.25f * -2 * (4 + 48 - 32));
  EXPECT_EQ(values[255], 0.25f * 7 * -32);
}

// w = scale · (code − zero_point) − min, as the packed format defines it, is what dequantize_row says.
TEST(TensorTypes, DecodedRowsEqualDequantizedRows) {
  constexpr std::int64_t kColumns = 512;
  constexpr std::uint64_t kSeed = 7;
  std::vector<float> values(kColumns), floats(kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(UniformDouble(kSeed, i) - 0.5) * (i % 64 == 0 ? 8.0f : 1.0f);
  }
  for (const TypeTraits& type : AllTypes()) {
    Bytes row(*RowBytes(type, kColumns, "t"));
    type.quantize_row(values.data(), kColumns, row.data());
    type.dequantize_row(row.data(), kColumns, floats.data());
    RowBuffer buffer;
    type.decode_row(row.data(), kColumns, &buffer);
    const kernels::WeightRow view = buffer.View();
    const bool integer = type.packed >= kernels::WeightFormat::kInt8Group32;
    ASSERT_EQ(view.values == nullptr, integer) << type.name;
    if (!integer) {
      EXPECT_EQ(buffer.values, floats) << type.name;
      continue;
    }
    const int zero_point = type.packed == kernels::WeightFormat::kInt8Group32Min ? 0 : 128;
    const int group = type.packed == kernels::WeightFormat::kInt8Group16 ? 16 : 32;
    ASSERT_EQ(buffer.scales.size(), static_cast<std::size_t>(kColumns / group)) << type.name;
    for (std::int64_t i = 0; i < kColumns; ++i) {
      const float min = view.mins ? view.mins[i / group] : 0.0f;
      ASSERT_EQ(view.scales[i / group] * static_cast<float>(view.codes[i] - zero_point) - min, floats[i])
          << type.name << " element " << i << ", seed " << kSeed;
    }
  }
}

// The relative error of each type on Gaussian-like data, and zero rows that stay zero.
TEST(TensorTypes, QuantizersKeepWhatTheirBitsAllow) {
  constexpr std::int64_t kColumns = 4096;
  std::vector<float> values(kColumns), back(kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::uint32_t draw = 0; draw < 12; ++draw) values[i] += static_cast<float>(UniformDouble(11, i, draw) - 0.5);
  }
  const std::vector<std::pair<std::string_view, double>> bounds = {
      {"F32", 0}, {"F16", 3e-4}, {"BF16", 3e-3}, {"Q8_0", 6e-3}, {"Q6_K", 0.025}, {"Q4_K", 0.08}, {"Q4_0", 0.11}};
  for (const auto& [name, bound] : bounds) {
    const TypeTraits& type = *FindTypeByName(name);
    Bytes row(*RowBytes(type, kColumns, "t"));
    type.quantize_row(values.data(), kColumns, row.data());
    type.dequantize_row(row.data(), kColumns, back.data());
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      error += std::pow(static_cast<double>(values[i]) - static_cast<double>(back[i]), 2);
      norm += std::pow(static_cast<double>(values[i]), 2);
    }
    EXPECT_LE(std::sqrt(error / norm), bound) << name;
    const std::vector<float> zeros(kColumns, 0.0f);
    type.quantize_row(zeros.data(), kColumns, row.data());
    type.dequantize_row(row.data(), kColumns, back.data());
    EXPECT_EQ(back, zeros) << name;
  }
}

// Values that no sane model holds must not be undefined behaviour.
TEST(TensorTypes, QuantizersSurviveNonFiniteValues) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::denorm_min()}) {
    std::vector<float> values(256, 1.0f);
    values[17] = bad;
    values[200] = -bad;
    for (const TypeTraits& type : AllTypes()) {
      Bytes row(*RowBytes(type, 256, "t"));
      type.quantize_row(values.data(), 256, row.data());
      type.dequantize_row(row.data(), 256, values.data());
    }
  }
}

}  // namespace
}  // namespace quire::weights
