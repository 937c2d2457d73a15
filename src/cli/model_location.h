// Which model a command works on, and what the environment has to say. The only place that reads environment
// variables, with api_keys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/engine_options.h"

namespace quire::cli {

// An environment variable that is set and not empty.
std::optional<std::string> EnvironmentVariable(const char* name);

// Where the demo model is: $QUIRE_DEMO, else beside the program (in a build tree, or installed), else under the
// current folder. The error lists the places.
Result<std::filesystem::path> FindDemoModel();

// Fills in what the command line left open: the demo model, the kernel tier of QUIRE_ISA, and the folder of packed
// weights (QUIRE_PACKED_CACHE, "auto"). The model exists and the
// options are valid afterwards; a tier that this CPU cannot run is an error.
Result<> CompleteOptions(engine::EngineOptions* options);
// The last of these alone.
Result<> CompletePackedCache(engine::EngineOptions* options);
// Takes kv_redis from QUIRE_KV_REDIS. To be called by the process that connects, and not by one that hands its options
// on over a command line, which others can read.
void CompleteKvRedis(engine::EngineOptions* options);

}  // namespace quire::cli
