// The two 8-bit floats of the OCP specification as storage types. Scalar conversions; kernels have vector versions.
//
//   E4M3  sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities, NaN 0x7F and 0xFF, the largest 448
//   E5M2  sign, 5 bits of exponent (bias 15), 2 of mantissa: the upper half of an F16, infinities and NaN as there
//
// https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/float16.h"

namespace quire {

struct Fp8E4m3 {
  std::uint8_t bits = 0;
};

constexpr float ToFloat(Fp8E4m3 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x80u} << 24, magnitude = x.bits & 0x7Fu;
  if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000);
  if (magnitude < 8) {  // zero and subnormals: mantissa × 2^-9
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | (magnitude + (120 << 3)) << 20);
}

struct Fp8E5m2 {
  std::uint8_t bits = 0;
};

constexpr float ToFloat(Fp8E5m2 x) {
  return ToFloat(F16{static_cast<std::uint16_t>(x.bits << 8)});
}

// Rounds half to even; saturates to ±448 what is finite, and makes NaN of infinities: they come from an overflow,
// which must not pass for a number.
constexpr Fp8E4m3 ToFp8E4m3(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= 0x7F800000) return {static_cast<std::uint8_t>(sign | 0x7F)};
  if (magnitude < 0x3C800000) {  // below 2^-6: let the float adder round to a multiple of 2^-9
    const float rounded = std::bit_cast<float>(magnitude) + 0x1p14f;
    return {static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x46800000))};
  }
  const std::uint32_t rounded = (magnitude + 0x7FFFF + (magnitude >> 20 & 1)) >> 20;
  return {static_cast<std::uint8_t>(sign | std::min<std::uint32_t>(rounded - (120 << 3), 0x7E))};
}

}  // namespace quire
