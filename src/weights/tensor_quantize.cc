// Writing rows of the storage formats. The K quantisations search for the scale (and minimum) of each group
// that minimise a weighted squared error over a short list of candidates. The order of the float operations
// is part of the result: tests compare the bytes with ggml's own quantizers.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "weights/tensor_codecs.h"

namespace quire::weights {
namespace {

template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

// Scales below this are taken for zero: a group of nothing but noise around 0.
constexpr float kScaleEpsilon = 1e-15f;

// Nearest integer, ties to even, for |x| < 2^22: adding 1.5 · 2^23 leaves the integer in the low bits of the
// mantissa. It compiles to two instructions where lrintf is a call.
int NearestInt(float x) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(x + 12582912.0f) & 0x7FFFFF) - 0x400000;
}

int NearestClamped(float x, int low, int high) {
  return std::clamp(NearestInt(x), low, high);
}

// A float that is an integer already; what does not fit (infinities, NaN, a file's nonsense) becomes 0.
int ToInt8Range(float x) {
  return x >= -128.0f && x <= 127.0f ? static_cast<int>(x) : 0;
}

// The element of the largest magnitude, with its sign; the first of equals.
float LargestMagnitude(const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  return largest;
}

// Σ w·x·l and Σ w·l² for the codes l of one candidate scale, with weights w = x².
struct SymmetricFit {
  float sum_lx = 0, sum_l2 = 0;
};

SymmetricFit FitSymmetric(const float* x, int n, float inverse_scale, int code_max) {
  SymmetricFit fit;
  for (int i = 0; i < n; ++i) {
    const auto code = static_cast<float>(NearestClamped(inverse_scale * x[i], -code_max, code_max - 1));
    const float weight = x[i] * x[i];
    fit.sum_lx += weight * x[i] * code;
    fit.sum_l2 += weight * code * code;
  }
  return fit;
}

void WriteSymmetricCodes(const float* x, int n, float inverse_scale, int code_max, std::int8_t* codes) {
  for (int i = 0; i < n; ++i) {
    codes[i] = static_cast<std::int8_t>(NearestClamped(inverse_scale * x[i], -code_max, code_max - 1) + code_max);
  }
}

// The scale s for which s · (code − code_max) is closest to x, and those codes in [0, 2 · code_max).
// For codes l the best scale is Σwxl / Σwl²; of the candidates the one with the largest (Σwxl)² / Σwl² wins.
float SearchSymmetricScale(const float* x, int n, int code_max, std::int8_t* codes) {
  const float largest = LargestMagnitude(x, n);
  if (std::fabs(largest) < kScaleEpsilon) {
    std::fill_n(codes, n, std::int8_t{0});
    return 0;
  }
  const float first = static_cast<float>(-code_max) / largest;
  const SymmetricFit start = FitSymmetric(x, n, first, code_max);
  WriteSymmetricCodes(x, n, first, code_max, codes);
  float scale = start.sum_l2 != 0 ? start.sum_lx / start.sum_l2 : 0.0f;
  float best = scale * start.sum_lx;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    const float inverse_scale = -(static_cast<float>(code_max) + 0.1f * static_cast<float>(step)) / largest;
    const SymmetricFit fit = FitSymmetric(x, n, inverse_scale, code_max);
    if (fit.sum_l2 > 0 && fit.sum_lx * fit.sum_lx > best * fit.sum_l2) {
      WriteSymmetricCodes(x, n, inverse_scale, code_max, codes);
      scale = fit.sum_lx / fit.sum_l2;
      best = scale * fit.sum_lx;
    }
  }
  return scale;
}

// A group as scale · code − minimum, code in [0, 15].
struct AffineFit {
  float scale = 0, minimum = 0;  // both ≥ 0
};

// Σ w · (scale · code + offset − x)².
float AffineError(const float* x, const float* weights, int n, const std::uint8_t* codes, float scale, float offset) {
  float error = 0;
  for (int i = 0; i < n; ++i) {
    const float difference = scale * static_cast<float>(codes[i]) + offset - x[i];
    error += weights[i] * (difference * difference);
  }
  return error;
}

// Weighted least squares of x against given codes, for 21 roundings of x. Each rounding starts from the best minimum
// so far. The codes of the winner are left in `codes`.
AffineFit SearchAffineScale(const float* x, const float* weights, std::uint8_t* best_codes) {
  constexpr int n = 32, kCodeMax = 15, kSteps = 20;
  float low = x[0], high = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (int i = 1; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  low = std::min(low, 0.0f);  // the minimum is subtracted and not negative
  std::fill_n(best_codes, n, std::uint8_t{0});
  if (high == low) return {0, -low};

  std::array<std::uint8_t, n> codes;
  const float first = kCodeMax / (high - low);
  for (int i = 0; i < n; ++i) {
    codes[i] = static_cast<std::uint8_t>(NearestClamped(first * (x[i] - low), 0, kCodeMax));
  }
  float scale = 1 / first, offset = low;
  float best_error = AffineError(x, weights, n, codes.data(), scale, offset);
  std::ranges::copy(codes, best_codes);
  for (int step = 0; step <= kSteps; ++step) {
    const float inverse_scale = (-1.0f + 0.1f * static_cast<float>(step) + kCodeMax) / (high - offset);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < n; ++i) {
      const int code = NearestClamped(inverse_scale * (x[i] - offset), 0, kCodeMax);
      codes[i] = static_cast<std::uint8_t>(code);
      const float weight = weights[i], l = static_cast<float>(code);
      sum_l += weight * l;
      sum_l2 += weight * l * l;
      sum_xl += weight * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float step_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float step_offset = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (step_offset > 0) {
      step_offset = 0;
      step_scale = sum_xl / sum_l2;
    }
    const float error = AffineError(x, weights, n, codes.data(), step_scale, step_offset);
    if (error < best_error) {
      best_error = error;
      std::ranges::copy(codes, best_codes);
      scale = step_scale;
      offset = step_offset;
    }
  }
  return {scale, -offset};
}

void QuantizeBlockQ4K(const float* x, std::byte* out) {
  constexpr int kGroups = 8, kGroup = 32;
  std::array<AffineFit, kGroups> fits;
  std::array<std::uint8_t, 256> codes;
  float scale_max = 0, minimum_max = 0;
  for (int g = 0; g < kGroups; ++g) {
    const float* group = x + g * kGroup;
    float sum_x2 = 0;
    for (int i = 0; i < kGroup; ++i) sum_x2 += group[i] * group[i];
    const float rms = std::sqrt(sum_x2 / kGroup);
    std::array<float, kGroup> weights;
    for (int i = 0; i < kGroup; ++i) weights[i] = rms + std::fabs(group[i]);
    fits[g] = SearchAffineScale(group, weights.data(), codes.data() + g * kGroup);
    scale_max = std::max(scale_max, fits[g].scale);
    minimum_max = std::max(minimum_max, fits[g].minimum);
  }

  const float inverse_scale = scale_max > 0 ? 63.0f / scale_max : 0.0f;
  const float inverse_minimum = minimum_max > 0 ? 63.0f / minimum_max : 0.0f;
  const F16 d = ToF16(scale_max / 63.0f), dmin = ToF16(minimum_max / 63.0f);
  std::array<std::uint8_t, 12> packed{};
  for (int g = 0; g < kGroups; ++g) {
    const int scale = std::min(63, NearestInt(inverse_scale * fits[g].scale) & 255);
    const int minimum = std::min(63, NearestInt(inverse_minimum * fits[g].minimum) & 255);
    if (g < 4) {
      packed[g] = static_cast<std::uint8_t>(packed[g] | scale);
      packed[g + 4] = static_cast<std::uint8_t>(packed[g + 4] | minimum);
    } else {
      packed[g + 4] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
      packed[g - 4] = static_cast<std::uint8_t>(packed[g - 4] | scale >> 4 << 6);
      packed[g] = static_cast<std::uint8_t>(packed[g] | minimum >> 4 << 6);
    }
    // The codes once more, against the scale as the file will say it. A scale of zero leaves them at the
    // minimum.
    const float group_scale = ToFloat(d) * static_cast<float>(scale);
    if (group_scale == 0) continue;
    const float group_minimum = ToFloat(dmin) * static_cast<float>(minimum);
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      codes[i] = static_cast<std::uint8_t>(NearestClamped((x[i] + group_minimum) / group_scale, 0, 15));
    }
  }

  Store(d, out);
  Store(dmin, out + 2);
  std::memcpy(out + 4, packed.data(), packed.size());
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      out[16 + pair * 32 + i] = static_cast<std::byte>(codes[pair * 64 + i] | codes[pair * 64 + 32 + i] << 4);
    }
  }
}

void QuantizeBlockQ6K(const float* x, std::byte* out) {
  constexpr int kGroups = 16, kGroup = 16, kCodeMax = 32;
  std::array<float, kGroups> scales;
  std::array<std::int8_t, 256> codes;
  float scale_max = 0;  // of the largest magnitude, with its sign
  for (int g = 0; g < kGroups; ++g) {
    scales[g] = SearchSymmetricScale(x + g * kGroup, kGroup, kCodeMax, codes.data() + g * kGroup);
    if (std::fabs(scales[g]) > std::fabs(scale_max)) scale_max = scales[g];
  }
  std::memset(out, 0, kQ6KBlockBytes);
  if (std::fabs(scale_max) < kScaleEpsilon) return;

  const float inverse_scale = -128.0f / scale_max;
  const F16 d = ToF16(1 / inverse_scale);
  for (int g = 0; g < kGroups; ++g) {
    const auto scale = static_cast<std::int8_t>(std::min(127, NearestInt(inverse_scale * scales[g])));
    out[192 + g] = static_cast<std::byte>(scale);
    const float group_scale = ToFloat(d) * static_cast<float>(scale);
    if (group_scale == 0) continue;
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      codes[i] = static_cast<std::int8_t>(NearestClamped(x[i] / group_scale, -kCodeMax, kCodeMax - 1) + kCodeMax);
    }
  }
  Store(d, out + 208);
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      const std::int8_t* quarter = codes.data() + half * 128 + i;  // elements i, i + 32, i + 64, i + 96
      out[half * 64 + i] = static_cast<std::byte>((quarter[0] & 15) | (quarter[64] & 15) << 4);
      out[half * 64 + 32 + i] = static_cast<std::byte>((quarter[32] & 15) | (quarter[96] & 15) << 4);
      out[128 + half * 32 + i] = static_cast<std::byte>(quarter[0] >> 4 | quarter[32] >> 4 << 2 |
                                                        quarter[64] >> 4 << 4 | quarter[96] >> 4 << 6);
    }
  }
}

}  // namespace

void QuantizeF32(const float* values, std::int64_t columns, std::byte* out) {
  std::memcpy(out, values, static_cast<std::size_t>(columns) * sizeof(float));
}

void QuantizeF16(const float* values, std::int64_t columns, std::byte* out) {
  for (std::int64_t i = 0; i < columns; ++i) Store(ToF16(values[i]), out + 2 * i);
}

void QuantizeBf16(const float* values, std::int64_t columns, std::byte* out) {
  for (std::int64_t i = 0; i < columns; ++i) Store(ToBf16(values[i]), out + 2 * i);
}

void QuantizeQ8_0(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 32, values += 32, out += kQ8_0BlockBytes) {
    const float d = std::fabs(LargestMagnitude(values, 32)) / 127.0f;
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    Store(ToF16(d), out);
    for (int i = 0; i < 32; ++i) {
      // Halves away from zero here, unlike in the K formats.
      out[2 + i] = static_cast<std::byte>(ToInt8Range(std::round(values[i] * inverse)));
    }
  }
}

void QuantizeQ4_0(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 32, values += 32, out += kQ4_0BlockBytes) {
    // The largest magnitude becomes −8, the one code without a counterpart.
    const float d = LargestMagnitude(values, 32) / -8.0f;
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    Store(ToF16(d), out);
    const auto code = [&](float x) { return std::clamp(ToInt8Range(x * inverse + 8.5f), 0, 15); };
    for (int i = 0; i < 16; ++i) out[2 + i] = static_cast<std::byte>(code(values[i]) | code(values[i + 16]) << 4);
  }
}

void QuantizeQ4K(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 256, values += 256, out += kQ4KBlockBytes) QuantizeBlockQ4K(values, out);
}

void QuantizeQ6K(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 256, values += 256, out += kQ6KBlockBytes) QuantizeBlockQ6K(values, out);
}

}  // namespace quire::weights
