// Writing rows of the floating-point storage types and of those whose blocks hold 32 elements. The order of the float
// operations is part of the result: tests compare the bytes with ggml's own quantizers.
#include <array>

#include "base/float16.h"
#include "kernels/weight_layout.h"
#include "weights/group_blocks.h"
#include "weights/quantize_rounding.h"
#include "weights/tensor_codecs.h"

namespace quire::weights {
namespace {

constexpr int kGroup = 32;

// `code(x)` for every element, four bits of it in each nibble.
template <typename CodeOf>
void WriteNibbles(const float* x, std::byte* out, CodeOf code) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<std::byte>((code(x[i]) & 15) | (code(x[i + 16]) & 15) << 4);
}

template <typename CodeOf>
void WriteFifthBits(const float* x, std::byte* out, CodeOf code) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kGroup; ++i) bits |= static_cast<std::uint32_t>(code(x[i]) >> 4 & 1) << i;
  StoreAt(bits, out);
}

// The range of a group in steps of 1 / code_max of it; writes step and minimum.
struct Range {
  float low, inverse_step;
};
Range WriteRange(const float* x, int code_max, std::byte* out) {
  const float low = *std::min_element(x, x + kGroup), high = *std::max_element(x, x + kGroup);
  const float step = (high - low) / static_cast<float>(code_max);
  StoreAt(ToF16(step), out);
  StoreAt(ToF16(low), out + 2);
  return {low, InverseOrZero(step)};
}

// Index of IQ4_NL's nearest value; of the upper one where two are equally near. The values are integers, so that the
// integer below x says between which two of them it lies.
int NearestIndex(float x) {
  constexpr int kLow = kernels::kIq4Values[0], kHigh = kernels::kIq4Values[15];
  static constexpr auto kBelow = [] {
    std::array<std::uint8_t, kHigh - kLow> below{};
    for (int value = kLow, index = 0; value < kHigh; ++value) {
      if (value >= kernels::kIq4Values[index + 1]) ++index;
      below[static_cast<std::size_t>(value - kLow)] = static_cast<std::uint8_t>(index);
    }
    return below;
  }();
  if (!(x > static_cast<float>(kLow))) return 0;
  if (x >= static_cast<float>(kHigh)) return 15;
  const int integer = static_cast<int>(x);  // towards zero
  const int below = kBelow[static_cast<std::size_t>(integer - (static_cast<float>(integer) > x ? 1 : 0) - kLow)];
  const auto low = static_cast<float>(kernels::kIq4Values[below]);
  const auto high = static_cast<float>(kernels::kIq4Values[below + 1]);
  return x - low < high - x ? below : below + 1;
}

// The scale d for which d · table[code] is closest to x with weights x²; 16 roundings are tried, as in the symmetric
// search of the K types.
float SearchTableScale(const float* x) {
  const float largest = LargestMagnitude(x, kGroup);
  if (std::fabs(largest) < kScaleEpsilon) return 0;
  constexpr int kSteps = 7;
  float scale = 0, best = 0;
  const auto fit = [&](float inverse_scale, bool first) {
    float sum_qx = 0, sum_q2 = 0;
    for (int i = 0; i < kGroup; ++i) {
      const auto q = static_cast<float>(kernels::kIq4Values[NearestIndex(inverse_scale * x[i])]);
      const float weight = x[i] * x[i];
      sum_qx += weight * q * x[i];
      sum_q2 += weight * q * q;
    }
    if (!first && !(sum_q2 > 0 && sum_qx * sum_qx > best * sum_q2)) return;
    scale = sum_qx / sum_q2;
    best = scale * sum_qx;
  };
  const auto lowest = static_cast<float>(kernels::kIq4Values[0]);
  fit(1 / (-largest / lowest), true);
  for (int step = -kSteps; step <= kSteps; ++step) fit((static_cast<float>(step) + lowest) / largest, false);
  return scale;
}

// The exponent that puts the largest magnitude between 4 and 8, whose FP4 neighbours are 4 and 6.
int Mxfp4Exponent(const float* x) {
  const float largest = std::fabs(LargestMagnitude(x, kGroup));
  if (!(largest > 0)) return 0;
  const float exponent = std::floor(std::log2(largest)) - 2 + 127;
  return std::isfinite(exponent) ? std::clamp(static_cast<int>(exponent), 0, 254) : 254;
}

// Of two equally near values the one with the smaller index.
int NearestFp4(float scale, float x) {
  int nearest = 0;
  float least = std::fabs(x);
  for (int i = 1; i < 16; ++i) {
    const float error = std::fabs(static_cast<float>(kernels::kMxfp4Values[i]) * scale - x);
    if (error < least) {
      least = error;
      nearest = i;
    }
  }
  return nearest;
}

template <typename Reader, typename QuantizeBlock>
void ForEachBlock(const float* values, std::int64_t columns, std::byte* out, QuantizeBlock quantize) {
  for (; columns > 0; columns -= kGroup, values += kGroup, out += Reader::kBytes) quantize(values, out);
}

}  // namespace

void QuantizeF32(const float* values, std::int64_t columns, std::byte* out) {
  std::memcpy(out, values, static_cast<std::size_t>(columns) * sizeof(float));
}

void QuantizeF16(const float* values, std::int64_t columns, std::byte* out) {
  for (std::int64_t i = 0; i < columns; ++i) StoreAt(ToF16(values[i]), out + 2 * i);
}

void QuantizeBf16(const float* values, std::int64_t columns, std::byte* out) {
  for (std::int64_t i = 0; i < columns; ++i) StoreAt(ToBf16(values[i]), out + 2 * i);
}

void QuantizeQ8_0(const float* values, std::int64_t columns, std::byte* out) {
  ForEachBlock<Q8_0>(values, columns, out, [](const float* x, std::byte* block) {
    const float d = std::fabs(LargestMagnitude(x, kGroup)) / 127.0f;
    const float inverse = InverseOrZero(d);
    StoreAt(ToF16(d), block);
    // Halves away from zero here, unlike in the K formats.
    for (int i = 0; i < kGroup; ++i) block[2 + i] = static_cast<std::byte>(ToInt8Range(std::round(x[i] * inverse)));
  });
}

void QuantizeQ4_0(const float* values, std::int64_t columns, std::byte* out) {
  ForEachBlock<Q4_0>(values, columns, out, [](const float* x, std::byte* block) {
    // The largest magnitude becomes −8, the one code without a counterpart.
    const float d = LargestMagnitude(x, kGroup) / -8.0f;
    const float inverse = InverseOrZero(d);
    StoreAt(ToF16(d), block);
    WriteNibbles(x, block + 2, [&](float value) { return std::clamp(ToInt8Range(value * inverse + 8.5f), 0, 15); });
  });
}

void QuantizeQ5_0(const float* values, std::int64_t columns, std::byte* out) {
  ForEachBlock<Q5_0>(values, columns, out, [](const float* x, std::byte* block) {
    const float d = LargestMagnitude(x, kGroup) / -16.0f;
    const float inverse = InverseOrZero(d);
    StoreAt(ToF16(d), block);
    const auto code = [&](float value) { return std::clamp(ToInt8Range(value * inverse + 16.5f), 0, 31); };
    WriteFifthBits(x, block + 2, code);
    WriteNibbles(x, block + 6, code);
  });
}

void QuantizeQ4_1(const float* values, std::int64_t columns, std::byte* out) {
  ForEachBlock<Q4_1>(values, columns, out, [](const float* x, std::byte* block) {
    const Range range = WriteRange(x, 15, block);
    WriteNibbles(x, block + 4, [&](float value) {
      return std::clamp(ToInt8Range((value - range.low) * range.inverse_step + 0.5f), 0, 15);
    });
  });
}

void QuantizeQ5_1(const float* values, std::int64_t columns, std::byte* out) {
  ForEachBlock<Q5_1>(values, columns, out, [](const float* x, std::byte* block) {
    const Range range = WriteRange(x, 31, block);
    const auto code = [&](float value) {
      return std::clamp(ToInt8Range((value - range.low) * range.inverse_step + 0.5f), 0, 31);
    };
    WriteFifthBits(x, block + 4, code);
    WriteNibbles(x, block + 8, code);
  });
}

void QuantizeIq4Nl(const float* values, std::int64_t columns, std::byte* out) {
  ForEachBlock<Iq4Nl>(values, columns, out, [](const float* x, std::byte* block) {
    const float scale = SearchTableScale(x);
    const float inverse = InverseOrZero(scale);
    StoreAt(ToF16(scale), block);
    WriteNibbles(x, block + 2, [&](float value) { return NearestIndex(inverse * value); });
  });
}

void QuantizeMxfp4(const float* values, std::int64_t columns, std::byte* out) {
  ForEachBlock<Mxfp4>(values, columns, out, [](const float* x, std::byte* block) {
    const int exponent = Mxfp4Exponent(x);
    block[0] = static_cast<std::byte>(exponent);
    WriteNibbles(x, block + 1, [&](float value) { return NearestFp4(Mxfp4Scale(exponent), value); });
  });
}

}  // namespace quire::weights
