// What the front end asks of an engine.
#pragma once

#include <string>
#include <vector>

#include "api/sampling_params.h"
#include "base/strong_id.h"

namespace quire {

struct GenerateRequest {
  RequestId id;
  std::vector<TokenId> prompt;  // 1 … max_model_len - 1 ids, each below vocab_size
  SamplingParams sampling;
  StopCriteria stop;
  // Requests with different salts never share cached blocks.
  std::string cache_salt;
};

}  // namespace quire
