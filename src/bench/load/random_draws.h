// Random numbers of the load generator: a function of (seed, stream), one after the other.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/counter_rng.h"

namespace quire::bench::load {

// Which stream draws what. Streams of prompts count from kPromptStreams on; the tokens of trace blocks from kBlockStreams.
inline constexpr std::uint64_t kArrivalStream = 1, kLengthStream = 2, kOrderStream = 3;
inline constexpr std::uint64_t kPrefixStreams = std::uint64_t{1} << 32, kPromptStreams = std::uint64_t{2} << 32,
                               kBlockStreams = std::uint64_t{3} << 32;

// The `position`-th number of a stream, uniform in [0, 1).
inline double DrawAt(std::uint64_t seed, std::uint64_t stream, std::uint32_t position) {
  return UniformDouble(seed, stream, position);
}

class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  double Uniform() { return DrawAt(seed_, stream_, position_++); }  // [0, 1)
  // Of the integers [low, high].
  int Between(int low, int high) {
    const double span = static_cast<double>(high) - low + 1;
    return low + static_cast<int>(Uniform() * span);
  }
  double Exponential() { return -std::log1p(-Uniform()); }  // mean 1
  double Normal() {                                         // Box and Muller
    const double radius = std::sqrt(2 * Exponential());
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }
  // Gamma distribution of mean 1 (Marsaglia and Tsang: "A simple method for generating gamma variables", 2000).
  double GammaOfMeanOne(double shape) {
    if (shape == 1) return Exponential();
    const double boost = shape < 1 ? std::pow(1 - Uniform(), 1 / shape) : 1;
    const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = Normal(), cube = 1 + c * x;
      if (cube <= 0) continue;
      const double v = cube * cube * cube;
      if (std::log(1 - Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return boost * d * v / shape;
    }
  }

 private:
  std::uint64_t seed_, stream_;
  std::uint32_t position_ = 0;
};

}  // namespace quire::bench::load
