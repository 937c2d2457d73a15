// Readers of the storage types whose blocks hold 32 elements.
//
//   Q8_0    34 bytes   F16 d, 32 × i8 q                           w = d · q
//   Q4_0    18 bytes   F16 d, nibbles                             w = d · (q − 8)
//   Q4_1    20 bytes   F16 d, F16 m, nibbles                      w = d · q + m
//   Q5_0    22 bytes   F16 d, fifth bits, nibbles                 w = d · (q − 16)
//   Q5_1    24 bytes   F16 d, F16 m, fifth bits, nibbles          w = d · q + m
//   IQ4_NL  18 bytes   F16 d, nibbles                             w = d · table[q]
//   MXFP4   17 bytes   u8 e, nibbles                              w = 2^(e − 128) · doubled[q]
//
// The nibbles are 16 bytes: the low ones are elements 0 … 15, the high ones 16 … 31. The fifth bits are a u32, bit i
// of which belongs to element i.
#pragma once

#include <bit>

#include "weights/block_reader.h"

namespace quire::weights {

inline void AddFifthBits(const std::byte* from, std::uint8_t* codes) {
  const auto bits = LoadAt<std::uint32_t>(from);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::uint8_t>(codes[i] | (bits >> i & 1) << 4);
}

struct Q8_0 {
  static constexpr int kElements = 32, kBytes = 34;
  static constexpr auto kFormat = kernels::WeightFormat::kInt8Group32;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from);
    // Two's complement → offset 128.
    for (int i = 0; i < 32; ++i) block->codes[i] = static_cast<std::uint8_t>(ByteAt(from + 2 + i) ^ 0x80);
  }
};

// A scale and nibbles, which the panel format gives their meaning.
template <kernels::WeightFormat kPacked>
struct ScaledNibbles {
  static constexpr int kElements = 32, kBytes = 18;
  static constexpr auto kFormat = kPacked;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from);
    ReadNibbles<16>(from + 2, block->codes);
  }
};
using Q4_0 = ScaledNibbles<kernels::WeightFormat::kInt4Group32>;
using Iq4Nl = ScaledNibbles<kernels::WeightFormat::kIq4Group32>;

struct Q4_1 {
  static constexpr int kElements = 32, kBytes = 20;
  static constexpr auto kFormat = kernels::WeightFormat::kInt4Group32Min;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from);
    block->mins[0] = -HalfAt(from + 2);
    ReadNibbles<16>(from + 4, block->codes);
  }
};

struct Q5_0 {
  static constexpr int kElements = 32, kBytes = 22;
  static constexpr auto kFormat = kernels::WeightFormat::kInt5Group32;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from);
    ReadNibbles<16>(from + 6, block->codes);
    AddFifthBits(from + 2, block->codes);
  }
};

struct Q5_1 {
  static constexpr int kElements = 32, kBytes = 24;
  static constexpr auto kFormat = kernels::WeightFormat::kInt8Group32Min;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from);
    block->mins[0] = -HalfAt(from + 2);
    ReadNibbles<16>(from + 8, block->codes);
    AddFifthBits(from + 4, block->codes);
  }
};

// 2^(e − 128): half of what the exponent says, for the table holds the doubles of FP4's values. The two smallest are
// subnormal. 255 stands for NaN (OCP Microscaling Formats, section 5.4.1), and so it is one here.
inline float Mxfp4Scale(int exponent) {
  if (exponent == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : static_cast<std::uint32_t>(exponent - 1) << 23);
}

struct Mxfp4 {
  static constexpr int kElements = 32, kBytes = 17;
  static constexpr auto kFormat = kernels::WeightFormat::kMxfp4Group32;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = Mxfp4Scale(ByteAt(from));
    ReadNibbles<16>(from + 1, block->codes);
  }
};

}  // namespace quire::weights
