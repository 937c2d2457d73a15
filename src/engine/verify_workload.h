// The requests of `quire verify`: a mixed set that touches everything a request can ask for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/request.h"
#include "weights/model_config.h"

namespace quire::engine {

struct VerifyRequest {
  GenerateRequest request;
  std::string description;  // "greedy, 70 shared + 23 prompt tokens, n 2"
};

// The first `num_requests` of the set, repeated with other prompts and seeds when it is too short. Ids are random in
// the model's vocabulary; prompts are cut to leave room for the output in max_model_len.
std::vector<VerifyRequest> MakeVerifyWorkload(const weights::ModelConfig& model, int num_requests, int max_tokens,
                                              int max_model_len, std::uint64_t seed);

}  // namespace quire::engine
