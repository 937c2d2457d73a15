// Rows of the floating-point storage types, and the quantizers: what tensor_types.cc puts in its table besides the readers
// of group_blocks.h and super_blocks.h. Rows start at any address.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weights/tensor_source.h"

namespace quire::weights {

void DecodeF32(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DecodeF16(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DecodeBf16(const std::byte* row, std::int64_t columns, RowBuffer* out);
void DequantizeF32(const std::byte* row, std::int64_t columns, float* out);
void DequantizeF16(const std::byte* row, std::int64_t columns, float* out);
void DequantizeBf16(const std::byte* row, std::int64_t columns, float* out);

// As ggml's reference quantizers round, bit for bit on finite input. quantize_groups.cc
void QuantizeF32(const float* values, std::int64_t columns, std::byte* out);
void QuantizeF16(const float* values, std::int64_t columns, std::byte* out);
void QuantizeBf16(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ8_0(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ4_0(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ4_1(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ5_0(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ5_1(const float* values, std::int64_t columns, std::byte* out);
void QuantizeIq4Nl(const float* values, std::int64_t columns, std::byte* out);
void QuantizeMxfp4(const float* values, std::int64_t columns, std::byte* out);

// Likewise, with two levels of scales. quantize_supers.cc
void QuantizeQ2K(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ3K(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ4K(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ5K(const float* values, std::int64_t columns, std::byte* out);
void QuantizeQ6K(const float* values, std::int64_t columns, std::byte* out);

}  // namespace quire::weights
