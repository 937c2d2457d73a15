// Writing rows of the storage types with two levels of scales. They search for the scale (and minimum) of each group
// that minimise a weighted error over a short list of candidates. The order of the float operations is part of the
// result: tests compare the bytes with ggml's own quantizers.
#include <array>
#include <limits>
#include <span>

#include "base/float16.h"
#include "weights/quantize_rounding.h"
#include "weights/quantize_search.h"
#include "weights/super_blocks.h"
#include "weights/tensor_codecs.h"

namespace quire::weights {
namespace {

// Q3_K's search: the rounding that the largest element asks for, then up to five passes over the elements, each of which
// moves to another code where that raises (Σwxl)² / Σwl².
float RefineSymmetricScale(const float* x, int n, int code_max, std::uint8_t* out) {
  constexpr int kPasses = 5;
  const float largest = LargestMagnitude(x, n);
  std::fill_n(out, n, std::uint8_t{0});
  if (std::fabs(largest) < kScaleEpsilon) return 0;
  std::array<std::int8_t, 16> codes;
  const float first = static_cast<float>(-code_max) / largest;
  struct Fit {
    float sum_lx = 0, sum_l2 = 0;
  } fit;
  for (int i = 0; i < n; ++i) {
    const int code = NearestClamped(first * x[i], -code_max, code_max - 1);
    const float weight = x[i] * x[i], l = static_cast<float>(code);
    fit.sum_lx += weight * x[i] * l;
    fit.sum_l2 += weight * l * l;
    codes[i] = static_cast<std::int8_t>(code);
  }
  bool changed = true;
  for (int pass = 0; pass < kPasses && changed; ++pass) {
    changed = false;
    for (int i = 0; i < n; ++i) {
      const float weight = x[i] * x[i], old_code = codes[i];
      Fit other{fit.sum_lx - weight * x[i] * old_code, fit.sum_l2 - weight * old_code * old_code};
      if (!(other.sum_lx > 0)) continue;
      const int code = NearestClamped(x[i] * other.sum_l2 / other.sum_lx, -code_max, code_max - 1);
      if (code == codes[i]) continue;
      const auto l = static_cast<float>(code);
      other.sum_lx += weight * x[i] * l;
      other.sum_l2 += weight * l * l;
      if (other.sum_l2 > 0 && other.sum_lx * other.sum_lx * fit.sum_l2 > fit.sum_lx * fit.sum_lx * other.sum_l2) {
        codes[i] = static_cast<std::int8_t>(code);
        fit = other;
        changed = true;
      }
    }
  }
  for (int i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(codes[i] + code_max);
  return fit.sum_l2 > 0 ? fit.sum_lx / fit.sum_l2 : 0.0f;
}

constexpr AffineSearch kSearchQ2K = {16, 3, -0.5f, 15, true};
constexpr AffineSearch kSearchQ4K = {32, 15, -1.0f, 20, false};
constexpr AffineSearch kSearchQ5K = {32, 31, -0.5f, 15, false};

// The scales and minima of a block as small integers under two F16, and the codes against the former as the file will
// say them.
template <AffineSearch kSearch>
struct AffineBlock {
  static constexpr int kGroups = 256 / kSearch.group;
  F16 d, dmin;
  std::array<int, kGroups> scales, minima;
  std::array<std::uint8_t, 256> codes;

  // `weigh(x, weights)` sets the weights of the elements of a few groups.
  template <typename Weigh>
  AffineBlock(const float* x, int scale_max, Weigh weigh) {
    std::array<float, kGroups> fit_scales, fit_minima;
    for (std::size_t g = 0; g < kGroups; g += kLanes) {
      std::array<Lanes, kSearch.group> lanes, weights;
      Interleave<kSearch.group>(x + g * kSearch.group, lanes.data());
      weigh(lanes.data(), weights.data());
      const AffineFit fit = SearchAffineScales<kSearch>(lanes.data(), weights.data(), codes.data() + g * kSearch.group);
      std::memcpy(&fit_scales[g], &fit.scale, sizeof fit.scale);
      std::memcpy(&fit_minima[g], &fit.minimum, sizeof fit.minimum);
    }
    const float largest_scale = std::max(0.0f, *std::ranges::max_element(fit_scales));
    const float largest_minimum = std::max(0.0f, *std::ranges::max_element(fit_minima));
    const auto limit = static_cast<float>(scale_max);
    const float inverse_scale = largest_scale > 0 ? limit / largest_scale : 0.0f;
    const float inverse_minimum = largest_minimum > 0 ? limit / largest_minimum : 0.0f;
    d = ToF16(largest_scale / limit);
    dmin = ToF16(largest_minimum / limit);
    for (std::size_t g = 0; g < kGroups; ++g) {
      scales[g] = std::min(scale_max, NearestInt(inverse_scale * fit_scales[g]) & 255);
      minima[g] = std::min(scale_max, NearestInt(inverse_minimum * fit_minima[g]) & 255);
      const float scale = ToFloat(d) * static_cast<float>(scales[g]);
      if (scale == 0) continue;  // leaves the codes of the search, at the minimum
      const float minimum = ToFloat(dmin) * static_cast<float>(minima[g]);
      for (std::size_t i = g * kSearch.group; i < (g + 1) * kSearch.group; ++i) {
        codes[i] = static_cast<std::uint8_t>(NearestClamped((x[i] + minimum) / scale, 0, kSearch.code_max));
      }
    }
  }
};

// Q4_K and Q5_K weigh an element with its magnitude and the root mean square of its group.
void WeighWithRms(const Lanes* x, Lanes* weights) {
  constexpr int kGroup = 32;
  Lanes sum_x2{}, rms;
  for (int i = 0; i < kGroup; ++i) sum_x2 += x[i] * x[i];
  for (int g = 0; g < kLanes; ++g) rms[g] = std::sqrt(sum_x2[g] / kGroup);
  for (int i = 0; i < kGroup; ++i) weights[i] = rms + Magnitude(x[i]);
}

void WeighWithMagnitude(const Lanes* x, Lanes* weights) {
  for (int i = 0; i < 16; ++i) weights[i] = Magnitude(x[i]);
}

// ---- Bytes: the opposites of the functions of super_blocks.h ---------------------------------------------------------

void WriteBitPairs(const std::uint8_t* codes, std::byte* out) {
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      const std::uint8_t* quarter = codes + half * 128 + i;  // elements i, i + 32, i + 64, i + 96
      out[half * 32 + i] = static_cast<std::byte>((quarter[0] & 3) | (quarter[32] & 3) << 2 | (quarter[64] & 3) << 4 |
                                                  (quarter[96] & 3) << 6);
    }
  }
}

void WriteNibblePairs(const std::uint8_t* codes, std::byte* out) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      out[pair * 32 + i] = static_cast<std::byte>((codes[pair * 64 + i] & 15) | (codes[pair * 64 + 32 + i] & 15) << 4);
    }
  }
}

// One bit of every code: bit g of byte i is that of element 32g + i.
void WriteBits(const std::uint8_t* codes, int bit, std::byte* out) {
  for (int i = 0; i < 32; ++i) {
    int bits = 0;
    for (int g = 0; g < 8; ++g) bits |= (codes[g * 32 + i] >> bit & 1) << g;
    out[i] = static_cast<std::byte>(bits);
  }
}

void WriteScalesAndMins(const std::array<int, 8>& scales, const std::array<int, 8>& minima, std::byte* out) {
  for (std::size_t g = 0; g < 4; ++g) {
    out[g] = static_cast<std::byte>(scales[g] | scales[g + 4] >> 4 << 6);
    out[g + 4] = static_cast<std::byte>(minima[g] | minima[g + 4] >> 4 << 6);
    out[g + 8] = static_cast<std::byte>((scales[g + 4] & 15) | (minima[g + 4] & 15) << 4);
  }
}

// ---- Blocks ----------------------------------------------------------------------------------------------------------

void QuantizeBlockQ2K(const float* x, std::byte* out) {
  const AffineBlock<kSearchQ2K> block(x, 15, WeighWithMagnitude);
  for (std::size_t g = 0; g < 16; ++g) out[g] = static_cast<std::byte>(block.scales[g] | block.minima[g] << 4);
  WriteBitPairs(block.codes.data(), out + 16);
  StoreAt(block.d, out + 80);
  StoreAt(block.dmin, out + 82);
}

void QuantizeBlockQ4K(const float* x, std::byte* out) {
  const AffineBlock<kSearchQ4K> block(x, 63, WeighWithRms);
  StoreAt(block.d, out);
  StoreAt(block.dmin, out + 2);
  WriteScalesAndMins(block.scales, block.minima, out + 4);
  WriteNibblePairs(block.codes.data(), out + 16);
}

void QuantizeBlockQ5K(const float* x, std::byte* out) {
  const AffineBlock<kSearchQ5K> block(x, 63, WeighWithRms);
  StoreAt(block.d, out);
  StoreAt(block.dmin, out + 2);
  WriteScalesAndMins(block.scales, block.minima, out + 4);
  WriteBits(block.codes.data(), 4, out + 16);
  WriteNibblePairs(block.codes.data(), out + 48);
}

// The scales of 16 groups as integers of at least −limit, the largest of which becomes −limit: Q3_K and Q6_K.
struct SymmetricBlock {
  static constexpr int kGroups = 16, kGroup = 16;
  bool is_zero = true;  // or noise of less than epsilon: nothing else is said then
  F16 d;
  std::array<int, kGroups> scales{};
  std::array<std::uint8_t, 256> codes;

  // `search(x, scales, codes)` finds the scales of all groups.
  template <typename Search>
  SymmetricBlock(const float* x, int code_max, int limit, float epsilon, Search search) {
    std::array<float, kGroups> group_scales;
    search(x, group_scales.data(), codes.data());
    const float largest = LargestMagnitude(group_scales.data(), kGroups);
    is_zero = std::fabs(largest) < epsilon;
    if (is_zero) return;
    const float inverse_scale = static_cast<float>(-limit) / largest;
    d = ToF16(1 / inverse_scale);
    for (std::size_t g = 0; g < kGroups; ++g) {
      scales[g] = NearestClamped(inverse_scale * group_scales[g], -limit, limit - 1);
      const float scale = ToFloat(d) * static_cast<float>(scales[g]);
      if (scale == 0) continue;
      for (std::size_t i = g * kGroup; i < (g + 1) * kGroup; ++i) {
        codes[i] = static_cast<std::uint8_t>(NearestClamped(x[i] / scale, -code_max, code_max - 1) + code_max);
      }
    }
  }
};

void QuantizeBlockQ3K(const float* x, std::byte* out) {
  constexpr int kCodeMax = 4, kLimit = 32;
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();  // anything but zero counts here
  const SymmetricBlock block(x, kCodeMax, kLimit, kSmallest, [](const float* in, float* scales, std::uint8_t* codes) {
    for (int g = 0; g < 16; ++g) scales[g] = RefineSymmetricScale(in + g * 16, 16, kCodeMax, codes + g * 16);
  });
  WriteBits(block.codes.data(), 2, out);
  WriteBitPairs(block.codes.data(), out + 32);
  std::array<std::uint8_t, 12> packed{};
  if (!block.is_zero) {
    for (std::size_t g = 0; g < 16; ++g) {
      const int scale = block.scales[g] + kLimit;
      packed[g % 8] = static_cast<std::uint8_t>(packed[g % 8] | (scale & 15) << (g < 8 ? 0 : 4));
      packed[8 + g % 4] = static_cast<std::uint8_t>(packed[8 + g % 4] | scale >> 4 << (g / 4 * 2));
    }
  }
  std::memcpy(out + 96, packed.data(), packed.size());
  StoreAt(block.d, out + 108);
}

void QuantizeBlockQ6K(const float* x, std::byte* out) {
  constexpr int kCodeMax = 32, kLimit = 128;
  const SymmetricBlock block(x, kCodeMax, kLimit, kScaleEpsilon,
                             [](const float* in, float* scales, std::uint8_t* codes) {
                               for (int g = 0; g < 16; g += kLanes) {
                                 std::array<Lanes, 16> lanes;
                                 Interleave<16>(in + g * 16, lanes.data());
                                 const Lanes found = SearchSymmetricScales<16, kCodeMax>(lanes.data(), codes + g * 16);
                                 for (int lane = 0; lane < kLanes; ++lane) scales[g + lane] = found[lane];
                               }
                             });
  std::memset(out, 0, Q6K::kBytes);
  if (block.is_zero) return;
  for (std::size_t g = 0; g < 16; ++g) out[192 + g] = static_cast<std::byte>(block.scales[g]);
  StoreAt(block.d, out + 208);
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      const std::uint8_t* quarter = block.codes.data() + half * 128 + i;  // elements i, i + 32, i + 64, i + 96
      out[half * 64 + i] = static_cast<std::byte>((quarter[0] & 15) | (quarter[64] & 15) << 4);
      out[half * 64 + 32 + i] = static_cast<std::byte>((quarter[32] & 15) | (quarter[96] & 15) << 4);
      out[128 + half * 32 + i] = static_cast<std::byte>(quarter[0] >> 4 | quarter[32] >> 4 << 2 |
                                                        quarter[64] >> 4 << 4 | quarter[96] >> 4 << 6);
    }
  }
}

}  // namespace

void QuantizeQ2K(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 256, values += 256, out += Q2K::kBytes) QuantizeBlockQ2K(values, out);
}

void QuantizeQ3K(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 256, values += 256, out += Q3K::kBytes) QuantizeBlockQ3K(values, out);
}

void QuantizeQ4K(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 256, values += 256, out += Q4K::kBytes) QuantizeBlockQ4K(values, out);
}

void QuantizeQ5K(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 256, values += 256, out += Q5K::kBytes) QuantizeBlockQ5K(values, out);
}

void QuantizeQ6K(const float* values, std::int64_t columns, std::byte* out) {
  for (; columns > 0; columns -= 256, values += 256, out += Q6K::kBytes) QuantizeBlockQ6K(values, out);
}

}  // namespace quire::weights
