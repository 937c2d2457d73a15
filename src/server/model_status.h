// What is said of a model from outside: in the list of models, for health, and as metrics.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace quire::server {

enum class ModelState {
  kUnloaded,
  kLoading,
  kLoaded,
  kUnloading,  // takes no requests any more, and finishes those that it has
};
inline constexpr std::array kModelStates = {ModelState::kUnloaded, ModelState::kLoading, ModelState::kLoaded,
                                            ModelState::kUnloading};
// "unloaded", "loading", "loaded", "unloading".
std::string_view ModelStateName(ModelState state);

enum class UnloadReason {
  kEvicted,  // another model needed the memory
  kIdle,
  kAsked,
  kDied,  // its engine is gone for good
};
inline constexpr std::array kUnloadReasons = {UnloadReason::kEvicted, UnloadReason::kIdle, UnloadReason::kAsked,
                                              UnloadReason::kDied};
std::string_view UnloadReasonName(UnloadReason reason);

struct ModelStatus {
  std::vector<std::string> names;
  ModelState state = ModelState::kUnloaded;
  bool is_ready = false;          // loaded, and its engine takes requests: not while that is started again
  int max_model_len = 0;          // 0: not known before it is loaded
  int vocab_size = 0;             // likewise
  std::int64_t memory_bytes = 0;  // reserved for it; 0 while it is unloaded
  int num_requests = 0;           // in it
  int num_waiting = 0;            // for it
  std::string error;              // why it could not be loaded, or was lost, last; "" when it was not
  std::uint64_t num_loads = 0, num_failures = 0;
  std::array<std::uint64_t, kUnloadReasons.size()> num_unloads{};
};

// {"value":"loaded","memory_bytes":…} as llama.cpp's router has it; with "failed" and "error" after a failure.
void WriteModelStatus(const ModelStatus& status, JsonWriter* writer);

// In the text format of Prometheus: how models come and go in `memory_bytes`.
std::string ModelMetrics(std::span<const ModelStatus> models, std::int64_t memory_bytes);

}  // namespace quire::server
