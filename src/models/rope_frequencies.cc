#include "models/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace quire::models {
namespace {

using weights::RopeConfig;
using weights::RopeType;

std::vector<double> BaseFrequencies(double theta, int rotary_dim) {
  std::vector<double> frequencies(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

// Long waves (low frequencies) are stretched by `factor`, short ones stay, those between are mixed.
void ScaleLlama3(const RopeConfig& rope, std::vector<double>* frequencies) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const double longest_kept = trained / rope.high_freq_factor, shortest_stretched = trained / rope.low_freq_factor;
  for (double& frequency : *frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < longest_kept) continue;
    if (wavelength > shortest_stretched) {
      frequency /= rope.factor;
    } else {
      const double smooth =
          (trained / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
    }
  }
}

// Peng et al., "YaRN: Efficient context window extension of large language models", 2023: pairs that turn
// more than beta_fast times within the trained length stay, those that turn less than beta_slow times are
// stretched.
void ScaleYarn(const RopeConfig& rope, int rotary_dim, std::vector<double>* frequencies) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const auto pair_of_turns = [&](double turns) {
    return rotary_dim * std::log(trained / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double low = pair_of_turns(rope.beta_fast), high = pair_of_turns(rope.beta_slow);
  if (rope.yarn_truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies->size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = (*frequencies)[i];
    frequency = frequency / rope.factor * stretched + frequency * (1 - stretched);
  }
}

double YarnAmplitude(const RopeConfig& rope) {
  const auto scale = [&](double m) { return rope.factor <= 1 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0; };
  if (rope.attention_factor) return *rope.attention_factor;
  // Zero counts as not given, as in the reference.
  if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0)
    return scale(*rope.mscale) / scale(*rope.mscale_all_dim);
  return scale(1.0);
}

double DynamicTheta(const RopeConfig& rope, int rotary_dim, double trained, double max_length) {
  if (max_length <= trained || rotary_dim <= 2) return rope.theta;
  return rope.theta * std::pow(rope.factor * max_length / trained - (rope.factor - 1), rotary_dim / (rotary_dim - 2.0));
}

}  // namespace

nn::Rope MakeRope(const weights::ModelConfig& config, std::int64_t max_length) {
  const RopeConfig& rope = config.rope;
  double theta = rope.theta, amplitude = 1.0;
  if (rope.type == RopeType::kDynamic) {
    const std::int64_t trained = rope.original_max_position_embeddings > 0 ? rope.original_max_position_embeddings
                                                                           : config.max_position_embeddings;
    theta = DynamicTheta(rope, config.rotary_dim, static_cast<double>(trained), static_cast<double>(max_length));
  }
  std::vector<double> frequencies = BaseFrequencies(theta, config.rotary_dim);
  switch (rope.type) {
    case RopeType::kDefault:
    case RopeType::kDynamic:
      break;
    case RopeType::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeType::kLlama3:
      ScaleLlama3(rope, &frequencies);
      break;
    case RopeType::kYarn:
      ScaleYarn(rope, config.rotary_dim, &frequencies);
      amplitude = YarnAmplitude(rope);
      break;
  }
  for (std::size_t i = 0; i < std::min(frequencies.size(), rope.frequency_divisors.size()); ++i) {
    frequencies[i] /= static_cast<double>(rope.frequency_divisors[i]);
  }
  return nn::Rope(std::move(frequencies), amplitude);
}

}  // namespace quire::models
