// Writing rows of the floating-point storage types and of those whose blocks hold 32 elements. The order of the float
// operations is part of the result: tests compare the bytes with ggml's own quantizers.
#include <array>

#include "base/float16.h"
#include "kernels/weight_layout.h"
#include "weights/group_blocks.h"
#include "weights/quantize_lanes.h"
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

// The nearest value of IQ4_NL, the upper one where two are equally near. They are integers, and so their midpoints are
// multiples of ½: an interval [b/2, (b + 1)/2) has one nearest value.
constexpr int kIq4Low = kernels::kIq4Values[0], kIq4High = kernels::kIq4Values[15];
constexpr auto kNearestIq4 = [] {
  std::array<std::uint8_t, 2 * (kIq4High - kIq4Low) + 1> nearest{};
  for (int bin = 0, index = 0; bin < static_cast<int>(nearest.size()); ++bin) {
    const int twice = 2 * kIq4Low + bin;
    if (index < 15 && twice >= kernels::kIq4Values[index] + kernels::kIq4Values[index + 1]) ++index;
    nearest[static_cast<std::size_t>(bin)] = static_cast<std::uint8_t>(index);
  }
  return nearest;
}();

// Indices of the nearest values.
Bits NearestIq4(Lanes x) {
  const Lanes twice = 2.0f * Clamp(x, Lanes{} + static_cast<float>(kIq4Low), Lanes{} + static_cast<float>(kIq4High));
  const Bits integer = __builtin_convertvector(twice, Bits);  // towards zero
  const Bits bin = integer + (__builtin_convertvector(integer, Lanes) > twice) - 2 * kIq4Low;
  Bits index;
  for (int g = 0; g < kLanes; ++g) index[g] = kNearestIq4[static_cast<std::size_t>(bin[g])];
  return index;
}

// Scales for which scale · table[code] is closest to x with weights x²; 16 roundings are tried, as in the symmetric search
// of the K types.
Lanes SearchTableScales(const Lanes* x) {
  constexpr int kSteps = 7;
  constexpr auto kLowest = static_cast<float>(kIq4Low);
  const Lanes largest = LargestMagnitude(x, kGroup);
  Lanes scale{}, best{};
  for (int step = -kSteps - 1; step <= kSteps; ++step) {
    const bool first = step < -kSteps;
    const Lanes inverse_scale = first ? 1.0f / (-largest / kLowest) : (static_cast<float>(step) + kLowest) / largest;
    Lanes sum_qx{}, sum_q2{};
    for (int i = 0; i < kGroup; ++i) {
      const Bits index = NearestIq4(inverse_scale * x[i]);
      Lanes q;
      for (int g = 0; g < kLanes; ++g) q[g] = kernels::kIq4Values[index[g]];
      const Lanes weight = x[i] * x[i];
      sum_qx += weight * q * x[i];
      sum_q2 += weight * q * q;
    }
    const auto better = ((sum_q2 > 0.0f) & (sum_qx * sum_qx > best * sum_q2)) | (first ? -1 : 0);
    scale = better ? sum_qx / sum_q2 : scale;
    best = better ? scale * sum_qx : best;
  }
  return Magnitude(largest) < kScaleEpsilon ? Lanes{} : scale;
}

// Up to four blocks of IQ4_NL.
void QuantizeIq4NlBlocks(const float* values, int num_blocks, std::byte* out) {
  std::array<float, kLanes * kGroup> padded{};
  std::copy_n(values, num_blocks * kGroup, padded.data());
  std::array<Lanes, kGroup> x;
  Interleave<kGroup>(padded.data(), x.data());
  const Lanes scales = SearchTableScales(x.data());
  const Lanes inverse = scales != 0.0f ? 1.0f / scales : Lanes{};
  std::array<std::array<std::uint8_t, kGroup>, kLanes> codes;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const Bits index = NearestIq4(inverse * x[i]);
    for (std::size_t g = 0; g < kLanes; ++g) codes[g][i] = static_cast<std::uint8_t>(index[static_cast<int>(g)]);
  }
  for (int g = 0; g < num_blocks; ++g, out += Iq4Nl::kBytes) {
    const auto& block = codes[static_cast<std::size_t>(g)];
    StoreAt(ToF16(scales[g]), out);
    for (std::size_t i = 0; i < 16; ++i) out[2 + i] = static_cast<std::byte>(block[i] | block[i + 16] << 4);
  }
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
  for (std::int64_t block = 0; block < columns / kGroup; block += kLanes) {
    const auto count = static_cast<int>(std::min<std::int64_t>(kLanes, columns / kGroup - block));
    QuantizeIq4NlBlocks(values + block * kGroup, count, out + block * Iq4Nl::kBytes);
  }
}

void QuantizeMxfp4(const float* values, std::int64_t columns, std::byte* out) {
  ForEachBlock<Mxfp4>(values, columns, out, [](const float* x, std::byte* block) {
    const int exponent = Mxfp4Exponent(x);
    block[0] = static_cast<std::byte>(exponent);
    WriteNibbles(x, block + 1, [&](float value) { return NearestFp4(Mxfp4Scale(exponent), value); });
  });
}

}  // namespace quire::weights
