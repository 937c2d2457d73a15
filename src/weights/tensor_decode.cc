// Reading rows of the storage formats. Each quantised format is read by one function per block that yields
// codes and scales; decoding keeps them, dequantizing multiplies them out.
#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "weights/tensor_codecs.h"

namespace quire::weights {
namespace {

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::uint8_t Byte(const std::byte* from) {
  return std::to_integer<std::uint8_t>(*from);
}

// Buffers only grow, so that a row costs no allocation after the first.
void Resize(std::int64_t columns, int group, bool has_min, RowBuffer* out) {
  out->codes.resize(static_cast<std::size_t>(columns));
  out->scales.resize(static_cast<std::size_t>(columns / group));
  out->mins.resize(has_min ? static_cast<std::size_t>(columns / group) : 0);
}

// A block as a packed format sees it: w = scale · (code − zero_point) − min.
template <int kElements, int kGroup>
struct Block {
  static constexpr int kGroups = kElements / kGroup;
  std::uint8_t codes[kElements];
  float scales[kGroups];
  float mins[kGroups];
};

struct Q8_0 {
  static constexpr int kElements = 32, kGroup = 32, kZeroPoint = 128, kBytes = kQ8_0BlockBytes;
  static constexpr bool kHasMin = false;
  static void Read(const std::byte* from, Block<32, 32>* block) {
    block->scales[0] = ToFloat(Load<F16>(from));
    for (int i = 0; i < 32; ++i) block->codes[i] = Byte(from + 2 + i) ^ 0x80;  // two's complement → offset 128
  }
};

struct Q4_0 {
  static constexpr int kElements = 32, kGroup = 32, kZeroPoint = 128, kBytes = kQ4_0BlockBytes;
  static constexpr bool kHasMin = false;
  static void Read(const std::byte* from, Block<32, 32>* block) {
    block->scales[0] = ToFloat(Load<F16>(from));
    for (int i = 0; i < 16; ++i) {
      const std::uint8_t pair = Byte(from + 2 + i);
      block->codes[i] = static_cast<std::uint8_t>((pair & 15) + (kZeroPoint - 8));
      block->codes[i + 16] = static_cast<std::uint8_t>((pair >> 4) + (kZeroPoint - 8));
    }
  }
};

struct Q4K {
  static constexpr int kElements = 256, kGroup = 32, kZeroPoint = 0, kBytes = kQ4KBlockBytes;
  static constexpr bool kHasMin = true;
  static void Read(const std::byte* from, Block<256, 32>* block) {
    const float d = ToFloat(Load<F16>(from)), dmin = ToFloat(Load<F16>(from + 2));
    const std::byte* packed = from + 4;
    // Groups 0..3 have the low six bits of bytes 0..3 (scale) and 4..7 (min). Groups 4..7 have a nibble each
    // of bytes 8..11, and their upper two bits are the upper bits of the bytes of group − 4.
    for (int g = 0; g < 8; ++g) {
      int scale, min;
      if (g < 4) {
        scale = Byte(packed + g) & 63;
        min = Byte(packed + g + 4) & 63;
      } else {
        scale = (Byte(packed + g + 4) & 15) | (Byte(packed + g - 4) >> 6 << 4);
        min = (Byte(packed + g + 4) >> 4) | (Byte(packed + g) >> 6 << 4);
      }
      block->scales[g] = d * static_cast<float>(scale);  // exact: 11 bits by 6
      block->mins[g] = dmin * static_cast<float>(min);
    }
    // 32 bytes hold two groups: the low nibbles one, the high nibbles the next.
    const std::byte* nibbles = from + 16;
    for (int pair = 0; pair < 4; ++pair) {
      for (int i = 0; i < 32; ++i) {
        const std::uint8_t both = Byte(nibbles + pair * 32 + i);
        block->codes[pair * 64 + i] = both & 15;
        block->codes[pair * 64 + 32 + i] = both >> 4;
      }
    }
  }
};

struct Q6K {
  static constexpr int kElements = 256, kGroup = 16, kZeroPoint = 128, kBytes = kQ6KBlockBytes;
  static constexpr bool kHasMin = false;
  static void Read(const std::byte* from, Block<256, 16>* block) {
    const std::byte *low = from, *high = from + 128, *scales = from + 192;
    const float d = ToFloat(Load<F16>(from + 208));
    for (int g = 0; g < 16; ++g) {
      block->scales[g] = d * static_cast<float>(Load<std::int8_t>(scales + g));  // exact: 11 bits by 7
    }
    // Each half of 128 elements: quarter q of it takes a nibble of low byte (q % 2) · 32 + i and bits 2q, 2q
    // + 1 of high byte i.
    for (int half = 0; half < 2; ++half) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        for (int i = 0; i < 32; ++i) {
          const int nibble = Byte(low + half * 64 + (quarter & 1) * 32 + i) >> (quarter >= 2 ? 4 : 0) & 15;
          const int bits = Byte(high + half * 32 + i) >> (2 * quarter) & 3;
          block->codes[half * 128 + quarter * 32 + i] =
              static_cast<std::uint8_t>((nibble | bits << 4) + (kZeroPoint - 32));
        }
      }
    }
  }
};

template <typename Format>
void DecodeBlocks(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  Resize(columns, Format::kGroup, Format::kHasMin, out);
  Block<Format::kElements, Format::kGroup> block;
  constexpr int kGroups = decltype(block)::kGroups;
  for (std::int64_t b = 0; b < columns / Format::kElements; ++b) {
    Format::Read(row + b * Format::kBytes, &block);
    std::copy_n(block.codes, Format::kElements, out->codes.data() + b * Format::kElements);
    std::copy_n(block.scales, kGroups, out->scales.data() + b * kGroups);
    if constexpr (Format::kHasMin) std::copy_n(block.mins, kGroups, out->mins.data() + b * kGroups);
  }
}

template <typename Format>
void DequantizeBlocks(const std::byte* row, std::int64_t columns, float* out) {
  Block<Format::kElements, Format::kGroup> block;
  for (std::int64_t b = 0; b < columns / Format::kElements; ++b) {
    Format::Read(row + b * Format::kBytes, &block);
    for (int i = 0; i < Format::kElements; ++i) {
      const int code = static_cast<int>(block.codes[i]) - Format::kZeroPoint;
      float value = block.scales[i / Format::kGroup] * static_cast<float>(code);
      if constexpr (Format::kHasMin) value -= block.mins[i / Format::kGroup];
      out[b * Format::kElements + i] = value;
    }
  }
}

template <void (*kDequantize)(const std::byte*, std::int64_t, float*)>
void DecodeFloats(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  out->values.resize(static_cast<std::size_t>(columns));
  kDequantize(row, columns, out->values.data());
}

template <typename Half>
void DequantizeHalf(const std::byte* row, std::int64_t columns, float* out) {
  for (std::int64_t i = 0; i < columns; ++i) out[i] = ToFloat(Load<Half>(row + 2 * i));
}

}  // namespace

void DequantizeF32(const std::byte* row, std::int64_t columns, float* out) {
  std::memcpy(out, row, static_cast<std::size_t>(columns) * sizeof(float));
}
void DequantizeF16(const std::byte* row, std::int64_t columns, float* out) {
  DequantizeHalf<F16>(row, columns, out);
}
void DequantizeBf16(const std::byte* row, std::int64_t columns, float* out) {
  DequantizeHalf<Bf16>(row, columns, out);
}
void DequantizeQ8_0(const std::byte* row, std::int64_t columns, float* out) {
  DequantizeBlocks<Q8_0>(row, columns, out);
}
void DequantizeQ4_0(const std::byte* row, std::int64_t columns, float* out) {
  DequantizeBlocks<Q4_0>(row, columns, out);
}
void DequantizeQ4K(const std::byte* row, std::int64_t columns, float* out) {
  DequantizeBlocks<Q4K>(row, columns, out);
}
void DequantizeQ6K(const std::byte* row, std::int64_t columns, float* out) {
  DequantizeBlocks<Q6K>(row, columns, out);
}

void DecodeF32(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeFloats<DequantizeF32>(row, columns, out);
}
void DecodeF16(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeFloats<DequantizeF16>(row, columns, out);
}
void DecodeBf16(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeFloats<DequantizeBf16>(row, columns, out);
}
void DecodeQ8_0(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeBlocks<Q8_0>(row, columns, out);
}
void DecodeQ4_0(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeBlocks<Q4_0>(row, columns, out);
}
void DecodeQ4K(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeBlocks<Q4K>(row, columns, out);
}
void DecodeQ6K(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeBlocks<Q6K>(row, columns, out);
}

}  // namespace quire::weights
