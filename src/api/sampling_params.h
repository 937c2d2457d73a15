// How tokens are chosen and when a choice ends. Plain data; both processes share it. The front end has validated
// every range before one of these exists (the limits are in the comments), and the engine validates ids again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/strong_id.h"

namespace quire {

// When a beam search ends before every beam is at its maximal length.
enum class EarlyStopping : std::uint8_t {
  kHeuristic,  // `width` hypotheses are finished and the best beam, as long as it is now, scores no better
  kOnceFull,   // `width` hypotheses are finished
  kNever,      // no beam can become better than the hypotheses that will be returned
};

// Beam search instead of sampling, as Hugging Face defines it: a hypothesis scores its cumulative logprob (with logit
// biases) divided by its number of generated tokens to the power of length_penalty, and the n best are returned.
struct BeamParams {
  int width = 1;                // ≥ n; beams that go on at a time
  double length_penalty = 1.0;  // [-10, 10]; above 0 longer hypotheses gain
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  friend bool operator==(const BeamParams&, const BeamParams&) = default;
};

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
  // With beams nothing is drawn: temperature is 0, filters and penalties are off.
  std::optional<BeamParams> beam;
};

struct StopCriteria {
  int max_tokens = 16;  // ≥ 0; 0: only prompt_logprobs are wanted
  int min_tokens = 0;   // until then neither EOS nor a stop id is sampled
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;  // besides the model's own end-of-sequence ids
  // With beams only, since they decide which beams go on; otherwise the front end looks for them by itself. Not empty,
  // UTF-8. What is skipped in the text is no part of a match.
  std::vector<std::string> stop_strings;
  bool skip_special_tokens = true;
};

}  // namespace quire
