// Rotary position embedding: the frequencies of every variant, and the cosines and sines of a batch's
// positions. The rotation itself is a kernel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quire::nn {

// Position p rotates pair i by the angle p · inverse_frequencies[i].
class Rope {
 public:
  Rope() = default;
  // `amplitude` multiplies both cosine and sine (YaRN's attention factor).
  Rope(std::vector<double> inverse_frequencies, double amplitude);

  int num_pairs() const { return static_cast<int>(inverse_frequencies_.size()); }
  std::span<const double> inverse_frequencies() const { return inverse_frequencies_; }
  double amplitude() const { return amplitude_; }

  // cos and sin [num_pairs] of one position. The angle is computed in double: at position 10⁵ a float angle
  // would be off by a hundredth of a radian.
  void Fill(std::int64_t position, float* cos, float* sin) const;

 private:
  std::vector<double> inverse_frequencies_;  // [rotary_dim / 2]
  double amplitude_ = 1.0;
};

}  // namespace quire::nn
