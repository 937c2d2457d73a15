// Four groups of weights side by side, one in each lane of a vector. The order of the float operations of a quantizer is
// part of its result, which keeps a group's sums from being vectorised; the groups know nothing of each other.
#pragma once

#include <bit>
#include <cstdint>

namespace quire::weights {

using Lanes = float __attribute__((vector_size(16)));
using Bits = std::int32_t __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;

// Element i of group g → lane g of lanes[i].
template <int kGroup>
void Interleave(const float* groups, Lanes* lanes) {
  for (int i = 0; i < kGroup; ++i) {
    for (int g = 0; g < kLanes; ++g) lanes[i][g] = groups[g * kGroup + i];
  }
}

inline Lanes Magnitude(Lanes x) {
  return std::bit_cast<Lanes>(std::bit_cast<Bits>(x) & 0x7FFFFFFF);
}

// NaN becomes `low`.
inline Lanes Clamp(Lanes x, Lanes low, Lanes high) {
  x = x > low ? x : low;
  return x < high ? x : high;
}

// NearestClamped of quantize_rounding.h, as a float.
inline Lanes NearestClamped(Lanes x, float low, float high) {
  constexpr float kRounder = 12582912.0f;  // 1.5 · 2^23: the sum has no bits left for a fraction
  return Clamp(x + kRounder - kRounder, Lanes{} + low, Lanes{} + high);
}

// LargestMagnitude of quantize_rounding.h.
inline Lanes LargestMagnitude(const Lanes* x, int n) {
  Lanes largest{};
  for (int i = 0; i < n; ++i) largest = Magnitude(x[i]) > Magnitude(largest) ? x[i] : largest;
  return largest;
}

}  // namespace quire::weights
