// From a path to a running engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "base/tracer.h"
#include "engine/beam_text.h"
#include "engine/engine_options.h"
#include "engine/local_engine.h"
#include "engine/packed_cache.h"
#include "models/model.h"
#include "weights/model_config.h"

namespace quire::engine {

// Called from the loading thread: bytes of the file done, bytes in all, the tensor at hand.
using LoadProgress = std::function<void(std::int64_t done, std::int64_t total, std::string_view tensor)>;

// A model in memory with the threads that compute it, to be run by one ModelRunner at a time.
struct LoadedModel {
  std::unique_ptr<ThreadPool> pool;
  const kernels::KernelTable* kernels = nullptr;
  std::unique_ptr<const models::Model> model;
  double load_seconds = 0;
  // Of EngineOptions::quantization, at this start or when the packed weights were written; without it empty.
  std::vector<weights::MatrixError> quantization_errors;
  PackedCacheReport packed_cache;
  std::string description;  // "2 threads (…), avx512bf16": what computes
};

// "43 matrices quantised to int4, relative RMS error 0.0712; worst: layers.3.mlp.down_proj.weight (Q4_K) 0.0824", and
// how many columns were kept in BF16, if any. Empty when nothing was quantised.
std::string DescribeQuantization(const EngineOptions& options, const LoadedModel& loaded);

// Chooses kernels and threads, and packs the model; what the options say of the engine is only validated.
Result<LoadedModel> LoadModel(const EngineOptions& options, const LoadProgress& progress);

// The engine and everything that it stands on; destroyed from the last member to the first.
struct LoadedEngine {
  std::unique_ptr<const Clock> clock;
  std::unique_ptr<Tracer> tracer;
  LoadedModel loaded;
  std::unique_ptr<BeamText> beam_text;
  std::unique_ptr<LocalEngine> engine;
  EngineInfo info;
};

// Validates the options, loads the model, sizes the KV pool by the memory that is left, and starts the engine.
// Errors say what does not fit, and what would.
Result<LoadedEngine> LoadEngine(const EngineOptions& options, const LoadProgress& progress = {});

// How the KV pool is cut out of the memory; a pure function, for tests.
struct MemoryPlan {
  int num_blocks = 0;
  int max_model_len = 0;
};
struct MemoryQuestion {
  std::int64_t available_bytes = 0;  // after loading, without the working memory of the runner
  std::int64_t block_bytes = 0;
  int model_length_max = 0;      // what the model can take at most
  int model_length_default = 0;  // what it takes when nothing is asked for
};
Result<MemoryPlan> PlanMemory(const EngineOptions& options, const MemoryQuestion& question);

// The longest sequence that the model can take, with its RoPE scaling.
int ModelLengthMax(const weights::ModelConfig& config);
// The same, but without "dynamic" scaling: raising its base costs quality at every length, so it must be asked for.
int ModelLengthDefault(const weights::ModelConfig& config);

}  // namespace quire::engine
