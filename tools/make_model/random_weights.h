// Weights that are a function of (seed, tensor, element), so that any thread can make any row, and the same model
// comes out whatever the format, the number of threads or shards.
#pragma once

#include <cstdint>

#include "shapes.h"

namespace quire::make_model {

// Row `row` of a tensor as Hugging Face lays it out; a vector is one row. `out` [columns].
// Matrices have a standard deviation of 1/√columns, so that activations keep their size; embeddings and output
// matrices three times that, so that the largest logits stand apart; norms are near 1, biases near 0.
void RandomRow(std::uint64_t seed, const TensorSpec& tensor, std::int64_t row, float* out);

}  // namespace quire::make_model
