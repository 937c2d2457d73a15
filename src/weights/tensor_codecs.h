// The storage formats, one row at a time: what tensor_types.cc puts in its table. Rows start at any address.
//
//   F32, F16, BF16  the values
//   Q8_0   32 elements, 34 bytes   F16 d, 32 × i8 q                              w = d · q
//   Q4_0   32 elements, 18 bytes   F16 d, 16 × u8 (low: 0..15, high: 16..31)     w = d · (q − 8)
//   Q4_K  256 elements, 144 bytes  F16 d, F16 dmin, 12 bytes of 6-bit scales and minima, 128 × u8
//                                  eight groups of 32                             w = d · scale · q − dmin ·
//                                  min
//   Q6_K  256 elements, 210 bytes  128 × u8 low nibbles, 64 × u8 high bit pairs, 16 × i8 scales, F16 d
//                                  sixteen groups of 16                           w = d · scale · (q − 32)
#pragma once

#include <cstddef>
#include <cstdint>

#include "weights/tensor_source.h"

namespace quire::weights {

inline constexpr int kQ8_0BlockBytes = 34;
inline constexpr int kQ4_0BlockBytes = 18;
inline constexpr int kQ4KBlockBytes = 144;
inline constexpr int kQ6KBlockBytes = 210;

// Decode: exact codes and scales of the packed format (floats for F32, F16 and BF16).
void DecodeF32(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DecodeF16(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DecodeBf16(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DecodeQ8_0(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DecodeQ4_0(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DecodeQ4K(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DecodeQ6K(const std::byte* row, std::int64_t columns, RowBuffer* out);

// Dequantize: the row as floats.
void DequantizeF32(const std::byte* row, std::int64_t columns, float* out);
void DequantizeF16(const std::byte* row, std::int64_t columns, float* out);
void DequantizeBf16(const std::byte* row, std::int64_t columns, float* out);
void DequantizeQ8_0(const std::byte* row, std::int64_t columns, float* out);
void DequantizeQ4_0(const std::byte* row, std::int64_t columns, float* out);
void DequantizeQ4K(const std::byte* row, std::int64_t columns, float* out);
void DequantizeQ6K(const std::byte* row, std::int64_t columns, float* out);

// Quantize: as ggml's reference quantizers round, bit for bit on finite input.
void QuantizeF32(const float* values, std::int64_t columns, std::byte* out);
void QuantizeF16(const float* values, std::int64_t columns, std::byte* out);
void QuantizeBf16(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ8_0(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ4_0(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ4K(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ6K(const float* values, std::int64_t columns, std::byte* out);

}  // namespace quire::weights
