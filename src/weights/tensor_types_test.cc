// The table of storage types, the path from a row of a file through a panel, and properties of the quantizers. The
// comparison with independent implementations is in tests/weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "base/counter_rng.h"
#include "base/float16.h"
#include "weights/tensor_source.h"
#include "weights/test_blocks.h"

namespace quire::weights {
namespace {

TEST(TensorTypes, FindsTypesByEveryName) {
  EXPECT_EQ(FindTypeByName("q4_k")->name, "Q4_K");
  EXPECT_EQ(FindTypeByGgufId(14)->name, "Q6_K");
  EXPECT_EQ(FindTypeBySafetensorsName("BF16")->gguf_id, 30);
  EXPECT_EQ(FindTypeByGgufId(39)->name, "MXFP4");
  EXPECT_EQ(FindTypeByName("IQ3_S"), nullptr);
  EXPECT_EQ(FindTypeByGgufId(0xFFFFFFFF), nullptr);
  EXPECT_EQ(FindTypeBySafetensorsName(""), nullptr);
  EXPECT_EQ(AllTypes().size(), 17u);
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

// Rows of arbitrary bytes but for scales, which are of any size and sign, and now and then zero.
Bytes RandomRow(const TypeTraits& type, std::int64_t columns, std::uint64_t seed) {
  Bytes row(*RowBytes(type, columns, "t"));
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::byte>(UniformDouble(seed, i) * 256);
  // Where F16 stand in a block, and −1; Q8_K has an F32 and MXFP4 a byte, which are set below.
  const std::map<std::string_view, std::vector<std::size_t>> places = {
      {"F16", {0}},     {"Q8_0", {0}},      {"Q4_0", {0}},   {"Q4_1", {0, 2}}, {"Q5_0", {0}},
      {"Q5_1", {0, 2}}, {"Q2_K", {80, 82}}, {"Q3_K", {108}}, {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}},
      {"Q6_K", {208}},  {"IQ4_NL", {0}},    {"IQ4_XS", {0}}};
  const auto bytes = static_cast<std::size_t>(type.block_bytes);
  for (std::size_t block = 0; block < row.size() / bytes; ++block) {
    const auto draw = [&](std::uint32_t n) { return UniformDouble(seed, block, n); };
    const double magnitude = draw(1) < 0.1 ? 0 : std::exp2(30 * draw(2) - 20);  // 2^−20 … 2^10: subnormal ones too
    const auto value = static_cast<float>(draw(3) < 0.5 ? magnitude : -magnitude);
    std::byte* at = row.data() + block * bytes;
    if (const auto found = places.find(type.name); found != places.end()) {
      for (const std::size_t place : found->second) {
        const F16 half = ToF16(value * (place % 4 == 0 ? 1.0f : 0.7f));
        std::memcpy(at + place, &half, sizeof half);
      }
    } else if (type.name == "MXFP4") {
      *at = static_cast<std::byte>(draw(4) * 249);
    } else if (type.name == "BF16") {
      const Bf16 half = ToBf16(value);
      std::memcpy(at, &half, sizeof half);
    } else {
      std::memcpy(at, &value, sizeof value);
    }
  }
  return row;
}

// What the kernels see of a packed row is what dequantize_row says, to the bit.
TEST(TensorTypes, RowsGoThroughPanelsUnchanged) {
  constexpr std::uint64_t kSeed = 7;
  for (const TypeTraits& type : AllTypes()) {
    for (const std::int64_t columns : {256, 768, 32, 288}) {  // whole blocks of the panel, and one that is shorter
      if (columns % type.block_elements != 0) continue;
      constexpr std::int64_t kRows = kernels::kPanelWidth + 3;
      const std::size_t panel_bytes = kernels::PanelBytes(type.packed, columns);
      std::vector<std::byte> panels(2 * panel_bytes);
      std::vector<Bytes> rows;
      for (std::int64_t r = 0; r < kRows; ++r) {
        rows.push_back(RandomRow(type, columns, kSeed + static_cast<std::uint64_t>(r)));
      }
      for (std::int64_t panel = 0; panel < 2; ++panel) {
        const std::int64_t begin = panel * kernels::kPanelWidth,
                           count = std::min<std::int64_t>(kernels::kPanelWidth, kRows - begin);
        std::vector<RowBuffer> buffers(static_cast<std::size_t>(count));
        std::vector<kernels::WeightRow> views;
        for (std::size_t i = 0; i < buffers.size(); ++i) {
          type.decode_row(rows[static_cast<std::size_t>(begin) + i].data(), columns, &buffers[i]);
          ASSERT_TRUE(buffers[i].IsFinite()) << type.name;
          views.push_back(buffers[i].View());
        }
        kernels::PackPanel(type.packed, columns, views, panels.data() + static_cast<std::size_t>(panel) * panel_bytes);
      }
      const kernels::PackedMatrix matrix{type.packed, kRows, columns, panels.data()};
      std::vector<float> seen(static_cast<std::size_t>(columns)), wanted(seen.size());
      for (std::int64_t r = 0; r < kRows; ++r) {
        kernels::UnpackRow(matrix, r, seen.data());
        type.dequantize_row(rows[static_cast<std::size_t>(r)].data(), columns, wanted.data());
        ASSERT_EQ(std::memcmp(seen.data(), wanted.data(), seen.size() * sizeof(float)), 0)
            << type.name << ", row " << r << " of " << columns << " elements, seed " << kSeed;
      }
    }
  }
}

TEST(TensorTypes, RowsThatAreNotFiniteAreSeen) {
  constexpr std::uint16_t kInfinity = 0xFC00, kNan = 0x7E01;
  for (const auto& [name, place] :
       {std::pair{"F16", 14}, std::pair{"Q8_0", 0}, std::pair{"Q4_1", 0}, std::pair{"Q4_1", 2}, std::pair{"Q5_0", 22},
        std::pair{"Q5_1", 2}, std::pair{"Q2_K", 80}, std::pair{"Q2_K", 82}, std::pair{"Q3_K", 108},
        std::pair{"Q4_K", 2}, std::pair{"Q5_K", 0}, std::pair{"Q6_K", 208}, std::pair{"IQ4_NL", 18},
        std::pair{"IQ4_XS", 0}}) {
    Bytes row(*RowBytes(*FindTypeByName(name), 256, "t"));
    EXPECT_TRUE(Decode(name, row, 256).IsFinite()) << name;  // scales of zero are
    for (const std::uint16_t bits : {kInfinity, kNan}) {
      std::memcpy(row.data() + place, &bits, sizeof bits);
      EXPECT_FALSE(Decode(name, row, 256).IsFinite()) << name << " at " << place;
    }
  }
  Bytes row(292);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e38f}) {
    std::memcpy(row.data(), &bad, sizeof bad);
    EXPECT_FALSE(Decode("Q8_K", row, 256).IsFinite()) << bad;
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
      {"F32", 0},       {"F16", 3e-4},  {"BF16", 3e-3},  {"Q8_0", 6e-3}, {"Q6_K", 0.025},
      {"Q5_K", 0.04},   {"Q5_1", 0.05}, {"Q5_0", 0.055}, {"Q4_K", 0.08}, {"Q4_1", 0.1},
      {"IQ4_NL", 0.09}, {"Q4_0", 0.11}, {"MXFP4", 0.15}, {"Q3_K", 0.16}, {"Q2_K", 0.32}};
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
      if (type.quantize_row == nullptr) continue;
      Bytes row(*RowBytes(type, 256, "t"));
      type.quantize_row(values.data(), 256, row.data());
      type.dequantize_row(row.data(), 256, values.data());
    }
  }
}

}  // namespace
}  // namespace quire::weights
