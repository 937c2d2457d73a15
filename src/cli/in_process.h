// An engine in this process, for the commands that need no server.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/progress_bar.h"
#include "engine/loader.h"

namespace quire::cli {

// Loads a model with a progress bar on standard error; completes the options first (see model_location.h). `quiet`
// shows nothing unless it is a terminal.
Result<engine::LoadedEngine> LoadInProcess(engine::EngineOptions* options, bool quiet = false);

// A model without an engine around it; the options are complete. The bar shows on a terminal only.
Result<engine::LoadedModel> LoadModelInProcess(const engine::EngineOptions& options);

// "Qwen3ForCausalLM, 4.6M parameters, BF16 (8.8 MiB)"
std::string DescribeModel(const EngineInfo& info);
// "2 threads, avx512bf16"
std::string DescribeCompute(const EngineInfo& info);
// "2048 tokens; 1.2 GiB of bf16 keys and values hold 130,000 tokens"
std::string DescribeContext(const EngineInfo& info);

}  // namespace quire::cli
