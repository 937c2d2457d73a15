// How tokens are chosen and when a choice ends. Plain data; both processes share it. The front end has validated
// every range before one of these exists (the limits are in the comments), and the engine validates ids again.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/strong_id.h"

namespace quire {

// Order of application, as vLLM documents it: logit_bias, min_tokens (masks the stop ids), repetition, frequency and
// presence penalties, temperature, min_p, top_k, top_p, then the draw. Logprobs are log-softmax of the raw logits.
struct SamplingParams {
  double temperature = 1.0;                           // ≥ 0; 0 is greedy
  int top_k = 0;                                      // 0 (or -1 on the wire): off
  double top_p = 1.0;                                 // (0, 1]; 0 on the wire is greedy
  double min_p = 0.0;                                 // [0, 1]
  double repetition_penalty = 1.0;                    // > 0; over prompt and output
  double presence_penalty = 0.0;                      // [-2, 2]; over output only
  double frequency_penalty = 0.0;                     // [-2, 2]; over output only
  std::vector<std::pair<TokenId, float>> logit_bias;  // [-100, 100] each
  // Always set when the engine sees it: the front end draws one when the client gave none. Choice i of n draws from
  // its own stream of the same seed.
  std::uint64_t seed = 0;
  int n = 1;  // choices for one prompt
  // Number of alternatives reported at each output position besides the sampled token; 0: the sampled token only.
  std::optional<int> logprobs;
  std::optional<int> prompt_logprobs;  // the same for the prompt's tokens
};

struct StopCriteria {
  int max_tokens = 16;  // ≥ 0; 0: only prompt_logprobs are wanted
  int min_tokens = 0;   // until then neither EOS nor a stop id is sampled
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;  // besides the model's own end-of-sequence ids
};

}  // namespace quire
