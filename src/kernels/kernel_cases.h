// Random data in every packed format, for the tests and the benchmark of the kernels: both run over the same
// kind of cases, the tests over small and awkward shapes, the benchmark over those of real models.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "kernels/kernel_table.h"

namespace quire::kernels {

inline constexpr auto kAllWeightFormats = [] {
  std::array<WeightFormat, kNumWeightFormats> formats{};
  for (std::size_t i = 0; i < formats.size(); ++i) formats[i] = static_cast<WeightFormat>(i);
  return formats;
}();

// What the inner dimension must be a multiple of.
inline std::int64_t InnerStep(WeightFormat format) {
  const FormatTraits& traits = Traits(format);
  if (!traits.integer) return traits.sparse ? 4 : 1;
  return traits.scale == ScaleType::kSuper ? 256 : traits.group;
}

// A packed matrix of random weights of the size that trained ones have, and its memory.
struct RandomMatrix {
  AlignedBuffer memory;
  PackedMatrix packed;
  // |scale · (code − zero_point)| + |min| (or |w|) of every weight: what error bounds are made of. [n, k], or
  // empty.
  std::vector<float> magnitudes;
};

// Fails only when the memory cannot be had. `k` is a multiple of InnerStep(format).
Result<RandomMatrix> MakeRandomMatrix(WeightFormat format, std::int64_t n, std::int64_t k, std::uint64_t seed,
                                      bool with_magnitudes);

// A projection of a real model: y [m, n] = x [m, k] Wᵀ.
struct ProjectionShape {
  std::string_view model, name;
  std::int64_t n, k;
};
std::span<const ProjectionShape> RealProjections();

}  // namespace quire::kernels
