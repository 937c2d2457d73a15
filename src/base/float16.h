// BF16 and FP16 as storage types, with scalar conversions (round to nearest even). Kernels have vector versions.
#pragma once

#include <bit>
#include <cstdint>

namespace quire {

struct Bf16 {
  std::uint16_t bits = 0;
};

struct F16 {
  std::uint16_t bits = 0;
};

constexpr float ToFloat(Bf16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

constexpr Bf16 ToBf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};  // quiet NaN
  return {static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

constexpr float ToFloat(F16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t exponent = x.bits >> 10 & 0x1F, mantissa = x.bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000 | mantissa << 13);
  if (exponent == 0) {  // zero and subnormals: mantissa × 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

constexpr F16 ToF16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return {static_cast<std::uint16_t>(sign | 0x7E00)};
  if (magnitude >= 0x47800000) return {static_cast<std::uint16_t>(sign | 0x7C00)};  // 65536 and above
  if (magnitude < 0x38800000) {  // below 2^-14: let the float adder round to a multiple of 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3F000000))};
  }
  // A carry out of the mantissa moves into the exponent, up to infinity, as it should.
  return {static_cast<std::uint16_t>(sign | ((magnitude + 0xFFF + (magnitude >> 13 & 1) - 0x38000000) >> 13))};
}

}  // namespace quire
