// What a request must fulfil on its own, whatever else runs.
#pragma once

#include <cstdint>

#include "api/request.h"
#include "base/result.h"
#include "sched/scheduler_config.h"

namespace quire::sched {

// Ids below vocab_size, lengths and numbers in range, and memory enough in an empty pool, so that whatever is
// accepted can be carried out. kInvalidArgument names the field.
Result<> ValidateRequest(const SchedulerConfig& config, const GenerateRequest& request);

// Whether one more request may wait beside so many, whose prompts have so many tokens; kUnavailable when it may not.
Result<> CheckQueueRoom(const SchedulerConfig& config, const GenerateRequest& request, int num_waiting,
                        std::int64_t num_waiting_tokens);

// Prompt and output of a valid request, unless EOS or a stop id comes first.
int MaxNumTokens(const SchedulerConfig& config, const GenerateRequest& request);

}  // namespace quire::sched
