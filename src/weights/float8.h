// The two 8-bit floats of the OCP specification, as checkpoints store them.
//
//   E4M3  sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities, NaN 0x7F and 0xFF, largest 448
//   E5M2  sign, 5 bits of exponent (bias 15), 2 of mantissa: the upper half of an F16, infinities and NaN as there
//
// https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1
#pragma once

#include <cstdint>
#include <limits>

#include "base/float16.h"

namespace quire::weights {

constexpr float E4m3ToFloat(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  // 2^(exponent − 7) · (1 + mantissa / 8); subnormals: mantissa · 2^−9
  const float magnitude = exponent == 0
                              ? static_cast<float>(mantissa) * 0x1p-9f
                              : static_cast<float>(8 + mantissa) * static_cast<float>(1 << exponent) * 0x1p-10f;
  return bits & 0x80 ? -magnitude : magnitude;
}

constexpr float E5m2ToFloat(std::uint8_t bits) {
  return ToFloat(F16{static_cast<std::uint16_t>(bits << 8)});
}

}  // namespace quire::weights
