// What a model will take in memory, before it is loaded: for whoever keeps several in one.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/engine_options.h"
#include "weights/model_source.h"

namespace quire::engine {

struct ModelMemory {
  std::int64_t weight_bytes = 0;  // packed; within a percent or two, and seldom below what they will really take
  std::int64_t swap_bytes = 0;    // EngineOptions::swap_memory_bytes, and kv_transfer_bytes with lower tiers
  std::int64_t kv_bytes = 0;      // what LoadEngine makes of the same number in EngineOptions::kv_memory_bytes
};

// All together are at most `budget_bytes`. Keys and values get what the options say, or else at most `kv_bytes_max`;
// never more than the engine could use. An error that says what is missing when the model does not fit.
Result<ModelMemory> MeasureModel(const EngineOptions& options, std::int64_t budget_bytes, std::int64_t kv_bytes_max);

// What the weights of a model are packed to.
Result<std::int64_t> EstimateWeightBytes(const weights::ModelSource& source, weights::Quantization quantization);

}  // namespace quire::engine
