// The frequencies of rotary embeddings for every kind of scaling, as Hugging Face's transformers computes
// them (modeling_rope_utils), in double.
#pragma once

#include <cstdint>
#include <vector>

#include "weights/model_config.h"

namespace quire::weights {

// Angle per position of each rotated pair, [rotary_dim / 2]; rotary_dim is even and at least 2.
// Only dynamic scaling looks at `sequence_length`: beyond the trained length the base grows with it.
std::vector<double> InverseFrequencies(const RopeConfig& rope, int rotary_dim, std::int64_t sequence_length);

// What cos and sin are multiplied by: 1 but for yarn (ROPE-04). Applied once.
double AttentionScaling(const RopeConfig& rope);

// yarn's 0.1 · mscale · ln(factor) + 1, and 1 where nothing is stretched.
double YarnMscale(double factor, double mscale);

}  // namespace quire::weights
