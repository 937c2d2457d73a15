// Types that safetensors files store and GGUF files do not: the integers that hold the codes, zero points and orders of
// quantised layouts, and 8-bit floats.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/float8.h"
#include "weights/tensor_source.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;

template <typename T>
void DequantizeIntegers(const std::byte* row, std::int64_t columns, float* out) {
  for (std::int64_t i = 0; i < columns; ++i) {
    T value;
    std::memcpy(&value, row + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    out[i] = static_cast<float>(value);
  }
}

template <typename Float>
void DequantizeFloat8(const std::byte* row, std::int64_t columns, float* out) {
  for (std::int64_t i = 0; i < columns; ++i) out[i] = ToFloat(Float{std::to_integer<std::uint8_t>(row[i])});
}

template <typename Float>
void DecodeFloat8(const std::byte* row, std::int64_t columns, RowBuffer* out) {
  out->values.resize(static_cast<std::size_t>(columns));
  DequantizeFloat8<Float>(row, columns, out->values.data());
}

// Integers are no weights of their own: nothing decodes them. BF16 holds every 8-bit float exactly.
// clang-format off
constexpr std::array<TypeTraits, 6> kCodeTypes = {{
    {"I8",      -1, "I8",      1, 1, WeightFormat::kF32,  nullptr, DequantizeIntegers<std::int8_t>,   nullptr},
    {"U8",      -1, "U8",      1, 1, WeightFormat::kF32,  nullptr, DequantizeIntegers<std::uint8_t>,  nullptr},
    {"I32",     -1, "I32",     1, 4, WeightFormat::kF32,  nullptr, DequantizeIntegers<std::int32_t>,  nullptr},
    {"I64",     -1, "I64",     1, 8, WeightFormat::kF32,  nullptr, DequantizeIntegers<std::int64_t>,  nullptr},
    {"F8_E4M3", -1, "F8_E4M3", 1, 1, WeightFormat::kBf16, DecodeFloat8<Fp8E4m3>, DequantizeFloat8<Fp8E4m3>, nullptr},
    {"F8_E5M2", -1, "F8_E5M2", 1, 1, WeightFormat::kBf16, DecodeFloat8<Fp8E5m2>, DequantizeFloat8<Fp8E5m2>, nullptr},
}};
// clang-format on

}  // namespace

const TypeTraits* FindCodeType(std::string_view safetensors_name) {
  const auto found = std::ranges::find(kCodeTypes, safetensors_name, &TypeTraits::safetensors_name);
  return found == kCodeTypes.end() ? nullptr : &*found;
}

}  // namespace quire::weights
