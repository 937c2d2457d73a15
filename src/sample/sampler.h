// One row of logits to one token. Rows are independent of each other and of the batch: the draw is keyed by
// (seed, choice, position), and every reduction has a fixed order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "api/events.h"
#include "api/sampling_params.h"
#include "base/strong_id.h"
#include "kernels/kernel_table.h"

namespace quire::sample {

struct SampleRequest {
  const SamplingParams* params = nullptr;
  int choice = 0;
  std::span<const TokenId> prompt;  // for the penalties
  std::span<const TokenId> output;  // so far
  // While output.size() < min_tokens these cannot be sampled: EOS (also with ignore_eos unset only) and stop ids.
  std::span<const TokenId> masked;
};

struct Sampled {
  TokenId token;
  std::optional<PositionLogprobs> logprobs;  // when params->logprobs is set; of the raw logits
};

class Sampler {
 public:
  // Scratch for one row of `vocab_size`; one Sampler per thread.
  Sampler(const kernels::KernelTable* kernels, int vocab_size);

  // `logits` [vocab_size] is changed in place.
  Sampled Sample(std::span<float> logits, const SampleRequest& request);

  // Log-softmax of `logits` at `token` with the `num_top` most likely tokens.
  PositionLogprobs Logprobs(std::span<const float> logits, TokenId token, int num_top);
};

}  // namespace quire::sample
