// What a quantised storage type needs to say about itself, and what follows: decoding a row for a panel and
// dequantizing it.
//
// A reader is a struct with
//
//   kElements, kBytes   of one block of the file
//   kFormat             the panel format that holds the type exactly
//   Read(bytes, block)  a block of the file → codes and scales as that format wants them
//
// Both conversions multiply in the same order as UnpackRow of the kernels, and ggml's dequantizers in the same again:
// the products of scales and codes are exact in F32 (an F16 scale has 11 bits, the integers that multiply it at most
// 13), so that at most the last operation rounds, the subtraction of a minimum. The scale of Q8_K has 24 bits; its
// product with the code is the one that rounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/float16.h"
#include "kernels/weight_layout.h"
#include "weights/tensor_source.h"

namespace quire::weights {

template <typename T>
T LoadAt(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline int ByteAt(const std::byte* from) {
  return std::to_integer<int>(*from);
}

inline float HalfAt(const std::byte* from) {
  return ToFloat(LoadAt<F16>(from));
}

// kHalf bytes: the low nibbles are the first kHalf codes, the high ones the next.
template <int kHalf>
void ReadNibbles(const std::byte* from, std::uint8_t* codes) {
  for (int i = 0; i < kHalf; ++i) {
    const int both = ByteAt(from + i);
    codes[i] = static_cast<std::uint8_t>(both & 15);
    codes[kHalf + i] = static_cast<std::uint8_t>(both >> 4);
  }
}

// One block of a file in the terms of a panel format:
//   w = scale · (code − zero_point) − min       or      w = scale · table[code]
template <int kElements, kernels::WeightFormat kFormat>
struct Block {
  static constexpr kernels::FormatTraits kTraits = kernels::kFormatTraits[std::to_underlying(kFormat)];
  static constexpr int kGroup = kTraits.group;
  static constexpr int kGroups = kElements / kGroup;
  static constexpr bool kHasMin = kTraits.min != kernels::ScaleType::kNone;
  // Two levels: scales[0] and mins[0] of the block multiply the integers of the groups.
  static constexpr bool kIsSuper = kTraits.scale == kernels::ScaleType::kSuper;
  static constexpr bool kHasSuperMin = kTraits.min == kernels::ScaleType::kSuper;
  static constexpr int kScales = kIsSuper ? 1 : kGroups;

  std::uint8_t codes[kElements];
  float scales[kScales];
  float mins[kScales];
  std::int8_t scale_codes[kGroups];
  std::int8_t min_codes[kGroups];

  float Scale(int group) const { return kIsSuper ? scales[0] * static_cast<float>(scale_codes[group]) : scales[group]; }
  float Min(int group) const { return kIsSuper ? mins[0] * static_cast<float>(min_codes[group]) : mins[group]; }
  int Integer(int element) const {
    return kTraits.table != nullptr ? kTraits.table[codes[element]] : codes[element] - kTraits.zero_point;
  }
};

template <typename Reader>
using BlockOf = Block<Reader::kElements, Reader::kFormat>;

// Buffers only grow, so that a row costs no allocation after the first.
template <typename Reader>
void DecodeRow(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  BlockOf<Reader> block;
  constexpr int kElements = Reader::kElements, kGroups = block.kGroups, kScales = block.kScales;
  const auto num_blocks = static_cast<std::size_t>(columns / kElements);
  out->codes.resize(num_blocks * kElements);
  out->scales.resize(num_blocks * kScales);
  out->mins.resize(block.kHasMin ? num_blocks * kScales : 0);
  out->scale_codes.resize(block.kIsSuper ? num_blocks * kGroups : 0);
  out->min_codes.resize(block.kHasSuperMin ? num_blocks * kGroups : 0);
  for (std::size_t b = 0; b < num_blocks; ++b) {
    Reader::Read(row + b * Reader::kBytes, &block);
    std::copy_n(block.codes, kElements, out->codes.data() + b * kElements);
    std::copy_n(block.scales, kScales, out->scales.data() + b * kScales);
    if constexpr (block.kHasMin) std::copy_n(block.mins, kScales, out->mins.data() + b * kScales);
    if constexpr (block.kIsSuper) std::copy_n(block.scale_codes, kGroups, out->scale_codes.data() + b * kGroups);
    if constexpr (block.kHasSuperMin) std::copy_n(block.min_codes, kGroups, out->min_codes.data() + b * kGroups);
  }
}

template <typename Reader>
void DequantizeRow(const std::byte* row, std::int64_t columns, float* out) {
  BlockOf<Reader> block;
  constexpr int kElements = Reader::kElements, kGroup = block.kGroup;
  for (std::int64_t b = 0; b < columns / kElements; ++b) {
    Reader::Read(row + b * Reader::kBytes, &block);
    for (int g = 0; g < block.kGroups; ++g) {
      const float scale = block.Scale(g);
      for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
        float value = scale * static_cast<float>(block.Integer(i));
        if constexpr (block.kHasMin) value -= block.Min(g);
        out[b * kElements + i] = value;
      }
    }
  }
}

}  // namespace quire::weights
