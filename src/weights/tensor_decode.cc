// Reading rows of the floating-point storage types; block_reader.h reads the quantised ones.
#include <cstring>

#include "base/float16.h"
#include "weights/block_reader.h"
#include "weights/tensor_codecs.h"

namespace quire::weights {
namespace {

template <typename Half>
void DequantizeHalf(const std::byte* row, std::int64_t columns, float* out) {
  for (std::int64_t i = 0; i < columns; ++i) out[i] = ToFloat(LoadAt<Half>(row + 2 * i));
}

template <void (*kDequantize)(const std::byte*, std::int64_t, float*)>
void DecodeFloats(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  out->values.resize(static_cast<std::size_t>(columns));
  kDequantize(row, columns, out->values.data());
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

void DecodeF32(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeFloats<DequantizeF32>(row, columns, out);
}
void DecodeF16(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeFloats<DequantizeF16>(row, columns, out);
}
void DecodeBf16(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  DecodeFloats<DequantizeBf16>(row, columns, out);
}

}  // namespace quire::weights
