// The part of reading config.json that is about rotary embeddings; the rest is in config_json.cc.
#pragma once

#include "base/result.h"
#include "weights/json_fields.h"
#include "weights/model_config.h"

namespace quire::weights {

// From `rope_scaling` with `rope_theta` beside it, or from the newer `rope_parameters`, which holds both.
// Unknown types and unknown keys are errors that name them (ROPE-01).
Result<RopeConfig> ParseRopeJson(const JsonFields& config, std::int64_t max_position_embeddings);

}  // namespace quire::weights
