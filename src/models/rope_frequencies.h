// The inverse frequencies of every kind of RoPE scaling, as Hugging Face's modeling_rope_utils defines them.
#pragma once

#include "nn/rope.h"
#include "weights/model_config.h"

namespace quire::models {

// `max_length` is the longest sequence that will be run: "dynamic" scaling raises its base once, for that
// length, when it exceeds what the model was trained for. (Hugging Face raises it as a sequence grows, which
// leaves earlier keys rotated with another base and makes the result depend on how the prompt was cut.)
nn::Rope MakeRope(const weights::ModelConfig& config, std::int64_t max_length);

}  // namespace quire::models
