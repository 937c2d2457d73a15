// Readers of the storage types whose blocks hold 256 elements.
//
//   Q2_K     84 bytes  16 × (4-bit scale, 4-bit min), 64 × u8 bit pairs, F16 d, F16 dmin
//                      sixteen groups of 16               w = d · scale · q − dmin · min
//   Q3_K    110 bytes  32 × u8 high bits, 64 × u8 bit pairs, 12 bytes of 6-bit scales, F16 d
//                      sixteen groups of 16               w = d · (scale − 32) · (q − 4)
//   Q4_K    144 bytes  F16 d, F16 dmin, 12 bytes of 6-bit scales and minima, 128 × u8 nibbles
//                      eight groups of 32                 w = d · scale · q − dmin · min
//   Q5_K    176 bytes  the same with 32 × u8 fifth bits before the nibbles
//   Q6_K    210 bytes  128 × u8 low nibbles, 64 × u8 high bit pairs, 16 × i8 scales, F16 d
//                      sixteen groups of 16               w = d · scale · (q − 32)
//   Q8_K    292 bytes  F32 d, 256 × i8 q, 16 × i16 sums of q that nothing here needs
//                                                         w = d · q
//   IQ4_XS  136 bytes  F16 d, u16 high bit pairs and 4 bytes of low nibbles of 6-bit scales, 128 × u8 nibbles
//                      eight groups of 32                 w = d · (scale − 32) · table[q]
#pragma once

#include "weights/block_reader.h"

namespace quire::weights {

// Bit pairs of Q2_K and Q3_K: each half of 128 elements has 32 bytes, and quarter q of it bits 2q, 2q + 1 of them.
inline void ReadBitPairs(const std::byte* from, std::uint8_t* codes) {
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        codes[half * 128 + quarter * 32 + i] =
            static_cast<std::uint8_t>(ByteAt(from + half * 32 + i) >> (2 * quarter) & 3);
      }
    }
  }
}

// Nibbles of Q4_K and Q5_K: 32 bytes hold two groups, the low nibbles one, the high nibbles the next.
inline void ReadNibblePairs(const std::byte* from, std::uint8_t* codes) {
  for (int pair = 0; pair < 4; ++pair) ReadNibbles<32>(from + pair * 32, codes + pair * 64);
}

// The bit of element i in Q3_K and Q5_K: bit i / 32 of byte i % 32.
inline int HighBit(const std::byte* from, int i) {
  return ByteAt(from + i % 32) >> (i / 32) & 1;
}

// Scales and minima of Q4_K and Q5_K, six bits each. Groups 0 … 3 have the low six bits of bytes 0 … 3 (scale) and
// 4 … 7 (min). Groups 4 … 7 have a nibble each of bytes 8 … 11, and their upper two bits are the upper bits of the bytes
// of group − 4.
inline void ReadScalesAndMins(const std::byte* from, std::int8_t* scales, std::int8_t* mins) {
  for (int g = 0; g < 4; ++g) {
    const int scale = ByteAt(from + g), min = ByteAt(from + g + 4), next = ByteAt(from + g + 8);
    scales[g] = static_cast<std::int8_t>(scale & 63);
    mins[g] = static_cast<std::int8_t>(min & 63);
    scales[g + 4] = static_cast<std::int8_t>((next & 15) | scale >> 6 << 4);
    mins[g + 4] = static_cast<std::int8_t>(next >> 4 | min >> 6 << 4);
  }
}

struct Q2K {
  static constexpr int kElements = 256, kBytes = 84;
  static constexpr auto kFormat = kernels::WeightFormat::kInt4Super16;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from + 80);
    block->mins[0] = HalfAt(from + 82);
    for (int g = 0; g < 16; ++g) {
      block->scale_codes[g] = static_cast<std::int8_t>(ByteAt(from + g) & 15);
      block->min_codes[g] = static_cast<std::int8_t>(ByteAt(from + g) >> 4);
    }
    ReadBitPairs(from + 16, block->codes);
  }
};

struct Q3K {
  static constexpr int kElements = 256, kBytes = 110;
  static constexpr auto kFormat = kernels::WeightFormat::kInt6Super;  // of whose 64 codes it uses the middle eight
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from + 108);
    // Of the 6-bit scales group g has a nibble of byte g % 8, and bits 2(g / 4), 2(g / 4) + 1 of byte 8 + g % 4.
    const std::byte* packed = from + 96;
    for (int g = 0; g < 16; ++g) {
      const int low = ByteAt(packed + g % 8) >> (g < 8 ? 0 : 4) & 15;
      const int high = ByteAt(packed + 8 + g % 4) >> (g / 4 * 2) & 3;
      block->scale_codes[g] = static_cast<std::int8_t>((low | high << 4) - 32);
    }
    // Bit b of byte i is the third bit of element 32b + i.
    ReadBitPairs(from + 32, block->codes);
    for (int i = 0; i < 256; ++i) {
      const int high = HighBit(from, i);
      block->codes[i] = static_cast<std::uint8_t>((block->codes[i] | high << 2) + (32 - 4));
    }
  }
};

struct Q4K {
  static constexpr int kElements = 256, kBytes = 144;
  static constexpr auto kFormat = kernels::WeightFormat::kInt4Super;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from);
    block->mins[0] = HalfAt(from + 2);
    ReadScalesAndMins(from + 4, block->scale_codes, block->min_codes);
    ReadNibblePairs(from + 16, block->codes);
  }
};

struct Q5K {
  static constexpr int kElements = 256, kBytes = 176;
  static constexpr auto kFormat = kernels::WeightFormat::kInt5Super;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    block->scales[0] = HalfAt(from);
    block->mins[0] = HalfAt(from + 2);
    ReadScalesAndMins(from + 4, block->scale_codes, block->min_codes);
    // Bit g of byte i is the fifth bit of element 32g + i.
    ReadNibblePairs(from + 48, block->codes);
    for (int i = 0; i < 256; ++i) {
      const int high = HighBit(from + 16, i);
      block->codes[i] = static_cast<std::uint8_t>(block->codes[i] | high << 4);
    }
  }
};

struct Q6K {
  static constexpr int kElements = 256, kBytes = 210;
  static constexpr auto kFormat = kernels::WeightFormat::kInt6Super;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    const std::byte *low = from, *high = from + 128;
    block->scales[0] = HalfAt(from + 208);
    std::memcpy(block->scale_codes, from + 192, 16);
    // Each half of 128 elements: quarter q of it takes a nibble of low byte (q % 2) · 32 + i and bits 2q, 2q + 1 of high
    // byte i.
    for (int half = 0; half < 2; ++half) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        for (int i = 0; i < 32; ++i) {
          const int nibble = ByteAt(low + half * 64 + (quarter & 1) * 32 + i) >> (quarter >= 2 ? 4 : 0) & 15;
          const int bits = ByteAt(high + half * 32 + i) >> (2 * quarter) & 3;
          block->codes[half * 128 + quarter * 32 + i] = static_cast<std::uint8_t>(nibble | bits << 4);
        }
      }
    }
  }
};

struct Q8K {
  static constexpr int kElements = 256, kBytes = 292;
  static constexpr auto kFormat = kernels::WeightFormat::kInt8Group32F32;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    std::ranges::fill(block->scales, LoadAt<float>(from));
    for (int i = 0; i < 256; ++i) block->codes[i] = static_cast<std::uint8_t>(ByteAt(from + 4 + i) ^ 0x80);
  }
};

struct Iq4Xs {
  static constexpr int kElements = 256, kBytes = 136;
  static constexpr auto kFormat = kernels::WeightFormat::kIq4Group32;
  static void Read(const std::byte* from, Block<kElements, kFormat>* block) {
    const float d = HalfAt(from);
    const int high = LoadAt<std::uint16_t>(from + 2);
    for (int g = 0; g < 8; ++g) {
      const int low = ByteAt(from + 4 + g / 2) >> (g % 2 * 4) & 15;
      block->scales[g] = d * static_cast<float>((low | (high >> (2 * g) & 3) << 4) - 32);  // exact: 11 bits by 6
      ReadNibbles<16>(from + 8 + g * 16, block->codes + g * 32);
    }
  }
};

}  // namespace quire::weights
