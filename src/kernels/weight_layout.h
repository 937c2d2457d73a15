// How the integer weight formats lie in memory: what every tier, the reference and the packer agree on.
//
//   panel   blocks of 256 inner elements; the last one may be shorter
//   block   | scales of the block [16] F16 | minima of the block [16] F16 |     formats with two levels of scales
//           | scales [groups][16] | minima [groups][16] | zeros up to a multiple of 64 bytes | codes [groups] |
//   codes   of a group, in quads q of 4 inner elements of all 16 outputs; byte b of a quad is element b % 4 of
//           output b / 4
//     8 bits   [quads][64]
//     fewer    low nibbles [quads / 2][64]: bits 0–3 of byte b of quad 2i, and above them those of quad 2i + 1,
//              then, for 5 or 6 bits, [64]: bits w·q … w·q + w − 1 of byte b are the upper bits of byte b of quad q,
//              w = 1 or 2
//     sparse   stored [quads][16][2] (s8), then patterns [quads / 2][16]: which two of the four inner elements a quad
//              stores for an output (kSparsePatterns), 4 bits, those of quad 2i + 1 above those of quad 2i
//
// Scales before codes keep every quad in one cache line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace quire::kernels {

inline constexpr int kWeightBlock = 256;

// IQ4_NL's sixteen values, and twice those of FP4 E2M1 (0 0.5 1 1.5 2 3 4 6).
inline constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The quantiles of a normal distribution that NF4's codes stand for (Dettmers et al., QLoRA, appendix E).
inline constexpr float kNf4Values[16] = {-1.0f,
                                         -0.6961928009986877f,
                                         -0.5250730514526367f,
                                         -0.39491748809814453f,
                                         -0.28444138169288635f,
                                         -0.18477343022823334f,
                                         -0.09105003625154495f,
                                         0.0f,
                                         0.07958029955625534f,
                                         0.16093020141124725f,
                                         0.24611230194568634f,
                                         0.33791524171829224f,
                                         0.44070982933044434f,
                                         0.5626170039176941f,
                                         0.7229568362236023f,
                                         1.0f};

// In the order of the enumeration. Codes of formats whose zero point is not 128 have at most 7 bits, so that the 16-bit
// pair sums of AVX2 cannot saturate: 2 · 127 · 127 = 32,258 ≤ 32,767.
// clang-format off
inline constexpr std::array<FormatTraits, kNumWeightFormats> kFormatTraits = {{
    // name         integer bits group zero  scale              min                table       code_max
    {"f32",        false, 0, 1,  0,   ScaleType::kNone,  ScaleType::kNone,  nullptr,      0},
    {"f16",        false, 0, 1,  0,   ScaleType::kNone,  ScaleType::kNone,  nullptr,      0},
    {"bf16",       false, 0, 1,  0,   ScaleType::kNone,  ScaleType::kNone,  nullptr,      0},
    {"int8g32",    true,  8, 32, 128, ScaleType::kF16,   ScaleType::kNone,  nullptr,      255},
    {"int8g32f32", true,  8, 32, 128, ScaleType::kF32,   ScaleType::kNone,  nullptr,      255},
    {"int8g32min", true,  8, 32, 0,   ScaleType::kF32,   ScaleType::kF32,   nullptr,      127},
    {"int6k",      true,  6, 16, 32,  ScaleType::kSuper, ScaleType::kNone,  nullptr,      63},
    {"int5g32",    true,  5, 32, 16,  ScaleType::kF16,   ScaleType::kNone,  nullptr,      31},
    {"int5k",      true,  5, 32, 0,   ScaleType::kSuper, ScaleType::kSuper, nullptr,      31},
    {"int4g32",    true,  4, 32, 8,   ScaleType::kF16,   ScaleType::kNone,  nullptr,      15},
    {"int4g32min", true,  4, 32, 0,   ScaleType::kF16,   ScaleType::kF32,   nullptr,      15},
    {"int4k",      true,  4, 32, 0,   ScaleType::kSuper, ScaleType::kSuper, nullptr,      15},
    {"int4k16",    true,  4, 16, 0,   ScaleType::kSuper, ScaleType::kSuper, nullptr,      15},
    {"iq4g32",     true,  4, 32, 128, ScaleType::kF32,   ScaleType::kNone,  kIq4Values,   15},
    {"mxfp4g32",   true,  4, 32, 128, ScaleType::kF32,   ScaleType::kNone,  kMxfp4Values, 15},
    {"fp8e4m3",    false, 8, 128, 0,  ScaleType::kF32,   ScaleType::kNone,  nullptr,      255},
    {"fp8e5m2",    false, 8, 128, 0,  ScaleType::kF32,   ScaleType::kNone,  nullptr,      255},
    {"nf4",        false, 4, 64, 0,   ScaleType::kF32,   ScaleType::kNone,  nullptr,      15},
    {"int8s24",    true,  8, 32, 128, ScaleType::kF32,   ScaleType::kNone,  nullptr,      255, true},
    {"bf16s24",    false, 0, 1,  0,   ScaleType::kNone,  ScaleType::kNone,  nullptr,      0,   true},
}};
// clang-format on

// The pairs of places that two of four weights can be stored for.
inline constexpr int kNumSparsePatterns = 6;
inline constexpr std::array<std::array<int, 2>, kNumSparsePatterns> kSparsePatterns = {
    {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};

constexpr bool IsStored(std::size_t pattern, int place) {
  return kSparsePatterns[pattern][0] == place || kSparsePatterns[pattern][1] == place;
}

// For each pattern the four bytes that a shuffle makes of a lane's stored values: byte i of the result is that byte of the
// lane, or zero (0x80). With one byte a value a quad of four; with two bytes a value the values at `first` and first + 1.
constexpr std::array<std::uint32_t, 16> SparseShuffle(int value_bytes, int first) {
  std::array<std::uint32_t, 16> table{};
  for (std::size_t pattern = 0; pattern < kNumSparsePatterns; ++pattern) {
    for (int byte = 0; byte < 4; ++byte) {
      const int place = first + byte / value_bytes, in_value = byte % value_bytes;
      std::uint32_t from = 0x80;
      for (int stored = 0; stored < 2; ++stored) {
        if (kSparsePatterns[pattern][static_cast<std::size_t>(stored)] == place) {
          from = static_cast<std::uint32_t>(stored * value_bytes + in_value);
        }
      }
      table[pattern] |= from << (8 * byte);
    }
  }
  return table;
}
inline constexpr std::array<std::uint32_t, 16> kSparseBytes = SparseShuffle(1, 0);
inline constexpr std::array<std::uint32_t, 16> kSparseLowerPair = SparseShuffle(2, 0);
inline constexpr std::array<std::uint32_t, 16> kSparseUpperPair = SparseShuffle(2, 2);

// The panel of kBf16Sparse24: for every four inner elements the stored values [16][2], then the patterns [16], a byte each.
inline constexpr std::size_t kBf16SparseQuadBytes = 64 + 16;
// Weight i of four of output `column`, 0 where it is not stored.
float Bf16SparseWeight(const std::byte* quad, int i, int column);

// Bytes of the scales of one group of a panel.
constexpr std::size_t GroupScaleBytes(ScaleType type) {
  switch (type) {
    case ScaleType::kNone:
      return 0;
    case ScaleType::kSuper:
      return kPanelWidth;
    case ScaleType::kF16:
      return kPanelWidth * 2;
    case ScaleType::kF32:
      return kPanelWidth * 4;
  }
  return 0;
}

constexpr std::size_t GroupCodeBytes(const FormatTraits& traits) {
  const auto group = static_cast<std::size_t>(traits.group);
  if (traits.sparse) return group * kPanelWidth / 2 + group * kPanelWidth / 8;
  if (traits.code_bits == 8) return group * kPanelWidth;
  return group * kPanelWidth / 2 + (traits.code_bits > 4 ? 64 : 0);
}

// Offsets in bytes inside a block of `num_groups` groups.
struct BlockLayout {
  std::size_t block_scales = 0, block_mins, scales, mins, codes, bytes;

  constexpr BlockLayout(const FormatTraits& traits, std::int64_t num_groups) {
    const auto groups = static_cast<std::size_t>(num_groups);
    constexpr std::size_t kHalves = kPanelWidth * 2;
    block_mins = block_scales + (traits.scale == ScaleType::kSuper ? kHalves : 0);
    scales = block_mins + (traits.min == ScaleType::kSuper ? kHalves : 0);
    mins = scales + groups * GroupScaleBytes(traits.scale);
    codes = (mins + groups * GroupScaleBytes(traits.min) + 63) / 64 * 64;
    bytes = codes + groups * GroupCodeBytes(traits);
  }
};

// Formats whose codes stand for floats: a panel is a row of groups, a group is |scale0 … scale15| F32 and then the codes
// of all 16 outputs for inner element 0, for element 1, … With 4 bits, elements 2i and 2i + 1 share bytes, low nibbles
// first.
constexpr bool IsScaledFloat(const FormatTraits& traits) {
  return !traits.integer && traits.code_bits > 0;
}

struct ScaledGroup {
  std::int64_t elements;
  std::size_t codes = kPanelWidth * 4, pair_bytes, bytes;  // pair_bytes: codes of two inner elements

  constexpr explicit ScaledGroup(WeightFormat format)
      : elements(kFormatTraits[static_cast<std::size_t>(format)].group),
        pair_bytes(static_cast<std::size_t>(kFormatTraits[static_cast<std::size_t>(format)].code_bits) * 4),
        bytes(codes + static_cast<std::size_t>(elements) / 2 * pair_bytes) {}
};

// The code of inner element i of a group that begins at `group`.
int ScaledCode(const ScaledGroup& layout, const std::byte* group, std::int64_t i, int column);

// What scales are stored multiplied with: E4M3 codes are read as F16, in which they are worth 2^-8 of themselves.
constexpr float ScaleFactor(WeightFormat format) {
  return format == WeightFormat::kFp8E4m3 ? 256.0f : 1.0f;
}

// The float that a code stands for.
float CodeValue(WeightFormat format, std::uint8_t code);

// One block of a panel, for scalar code: elements and groups are counted from the block's beginning.
class BlockView {
 public:
  // Block `index` of a panel with `k` inner elements.
  BlockView(const FormatTraits& traits, const std::byte* panel, std::int64_t k, std::int64_t index);

  int num_elements() const { return num_elements_; }
  int Code(int element, int column) const;
  float Scale(int group, int column) const;
  float Min(int group, int column) const;  // 0 in formats without
  // What a code stands for before it is scaled: code − zero_point, or the table's value.
  int Integer(int element, int column) const;

 private:
  const FormatTraits& traits_;
  const std::byte* block_;
  int num_elements_;
  BlockLayout layout_;
};

}  // namespace quire::kernels
