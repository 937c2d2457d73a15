// What the quantizers share: how they round, and which element decides.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quire::weights {

template <typename T>
void StoreAt(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

// Scales below this are taken for zero: a group of nothing but noise around 0.
inline constexpr float kScaleEpsilon = 1e-15f;

// Nearest integer, ties to even, for |x| < 2^22: adding 1.5 · 2^23 leaves the integer in the low bits of the
// mantissa. It compiles to two instructions where lrintf is a call.
inline int NearestInt(float x) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(x + 12582912.0f) & 0x7FFFFF) - 0x400000;
}

inline int NearestClamped(float x, int low, int high) {
  return std::clamp(NearestInt(x), low, high);
}

// A float that is an integer already, or whose fraction is cut off; what does not fit (infinities, NaN, a file's nonsense)
// becomes 0.
inline int ToInt8Range(float x) {
  return x >= -128.0f && x <= 127.0f ? static_cast<int>(x) : 0;
}

// The element of the largest magnitude, with its sign; the first of equals.
inline float LargestMagnitude(const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  return largest;
}

inline float InverseOrZero(float x) {
  return x != 0 ? 1.0f / x : 0.0f;
}

}  // namespace quire::weights
