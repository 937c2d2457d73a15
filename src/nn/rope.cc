#include "nn/rope.h"

#include <cmath>
#include <utility>

namespace quire::nn {

Rope::Rope(std::vector<double> inverse_frequencies, double amplitude)
    : inverse_frequencies_(std::move(inverse_frequencies)), amplitude_(amplitude) {}

void Rope::Fill(std::int64_t position, float* cos, float* sin) const {
  for (std::size_t pair = 0; pair < inverse_frequencies_.size(); ++pair) {
    const double angle = static_cast<double>(position) * inverse_frequencies_[pair];
    cos[pair] = static_cast<float>(std::cos(angle) * amplitude_);
    sin[pair] = static_cast<float>(std::sin(angle) * amplitude_);
  }
}

}  // namespace quire::nn
