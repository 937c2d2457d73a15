#include "weights/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire::weights {
namespace {

std::vector<double> PlainFrequencies(double theta, int rotary_dim) {
  std::vector<double> frequencies(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

// "NTK-aware": the base is stretched so that the slowest pair turns `factor` times slower at the longest
// sequence.
double DynamicTheta(const RopeConfig& rope, int rotary_dim, std::int64_t sequence_length) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const double length = std::max(static_cast<double>(sequence_length), trained);
  const double stretch = rope.factor * length / trained - (rope.factor - 1);
  return rope.theta * std::pow(stretch, static_cast<double>(rotary_dim) / (rotary_dim - 2));
}

// Llama 3.1: pairs with a wavelength well inside the trained length stay, those well beyond it are slowed by
// `factor`, and those between are blended.
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < trained / rope.high_freq_factor) return frequency;
  if (wavelength > trained / rope.low_freq_factor) return frequency / rope.factor;
  const double blend = (trained / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - blend) * frequency / rope.factor + blend * frequency;
}

// The (fractional) pair that turns `rotations` times within the trained length.
double YarnDimension(const RopeConfig& rope, int rotary_dim, double rotations) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  return rotary_dim * std::log(trained / (rotations * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

// YaRN (Peng et al., 2023, "YaRN: Efficient Context Window Extension of Large Language Models"): a ramp over
// the pairs from "as trained" (fast) to "slowed by factor" (slow).
void ApplyYarn(const RopeConfig& rope, int rotary_dim, std::vector<double>* frequencies) {
  double low = YarnDimension(rope, rotary_dim, rope.beta_fast);
  double high = YarnDimension(rope, rotary_dim, rope.beta_slow);
  if (rope.yarn_truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies->size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = (*frequencies)[i];
    frequency = frequency / rope.factor * slowed + frequency * (1 - slowed);
  }
}

}  // namespace

double YarnMscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

std::vector<double> InverseFrequencies(const RopeConfig& rope, int rotary_dim, std::int64_t sequence_length) {
  std::vector<double> frequencies;
  switch (rope.type) {
    case RopeType::kDefault:
      frequencies = PlainFrequencies(rope.theta, rotary_dim);
      break;
    case RopeType::kLinear:
      frequencies = PlainFrequencies(rope.theta, rotary_dim);
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeType::kDynamic:
      frequencies = PlainFrequencies(DynamicTheta(rope, rotary_dim, sequence_length), rotary_dim);
      break;
    case RopeType::kLlama3:
      frequencies = PlainFrequencies(rope.theta, rotary_dim);
      for (double& frequency : frequencies) frequency = Llama3Frequency(rope, frequency);
      break;
    case RopeType::kYarn:
      frequencies = PlainFrequencies(rope.theta, rotary_dim);
      ApplyYarn(rope, rotary_dim, &frequencies);
      break;
  }
  for (std::size_t i = 0; i < std::min(frequencies.size(), rope.frequency_divisors.size()); ++i) {
    frequencies[i] /= static_cast<double>(rope.frequency_divisors[i]);
  }
  return frequencies;
}

double AttentionScaling(const RopeConfig& rope) {
  if (rope.type != RopeType::kYarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0) {
    return YarnMscale(rope.factor, *rope.mscale) / YarnMscale(rope.factor, *rope.mscale_all_dim);
  }
  return YarnMscale(rope.factor, 1.0);
}

}  // namespace quire::weights
