// Where log lines go: standard error, one line each, level by `--log-level`. Prompts, outputs and keys are never
// logged at the default level. Libraries below `engine` do not log; they return Results.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "base/result.h"

namespace quire {

// Levels: trace, debug, info, warn, error, off. `process` stands in every line ("server", "engine").
Result<> InitLog(std::string_view level, std::string_view process);

}  // namespace quire
