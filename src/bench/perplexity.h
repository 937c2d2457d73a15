// How well a model predicts a text, and how far a quantised model has moved from the one it was made of: perplexity,
// and the Kullback-Leibler divergence of each next-token distribution from a reference model's.
//
//   text        0 1 2 3 4 5 6 7 8 9        context 6, stride 3, no BOS
//   window 0    [. s s s s s]              s: scored. Every token is scored once, in the first window that
//   window 1          [. . . s s s]        holds it; those of later windows have at least context − stride
//   window 2                [. . . s]      tokens before them. The very first token has none and is not scored.
//
// With a BOS token each window begins with it, and holds one token of the text less.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"
#include "base/thread_pool.h"
#include "bench/workload.h"
#include "kernels/kernel_table.h"
#include "models/model.h"

namespace quire::bench {

struct PerplexityOptions {
  int context = 0;      // tokens of a window, BOS among them; 0: kContextDefault, or what the model can take
  int stride = 0;       // tokens from the start of one window to that of the next; 0: half of the context
  int max_windows = 0;  // only so many; 0: the whole text

  static constexpr int kContextDefault = 512;

  // With the defaults filled in for a model of this length; kInvalidArgument names the field, its value and the limit.
  Result<PerplexityOptions> Complete(int model_length_max, int num_prefix_tokens) const;
};

// Tokens [begin, end) of the text, of which those from first_scored are scored.
struct TokenWindow {
  std::int64_t begin = 0, end = 0, first_scored = 0;
};
// `options` are complete; `num_tokens` is at least 2.
std::vector<TokenWindow> MakeWindows(std::int64_t num_tokens, int num_prefix_tokens, const PerplexityOptions& options);

// A mean over tokens with its standard error, as if tokens were independent.
struct Estimate {
  double mean = 0, error = 0;
};

// What a reference model adds. p and q are the probabilities that the reference and the model give.
struct DivergenceReport {
  Estimate nll;                // of the reference
  Estimate log_ratio;          // ln(perplexity of the model / of the reference), token by token
  Summary kl;                  // KL(p ‖ q) in nats
  double kl_error = 0;         // standard error of its mean
  Estimate same_top;           // share of positions where both find the same token most likely
  Estimate p_change;           // q − p of the token that stands in the text
  double p_change_square = 0;  // root of its mean square
};

struct PerplexityReport {
  PerplexityOptions options;
  int num_prefix_tokens = 0;  // of each window: BOS
  std::int64_t num_text_tokens = 0, num_scored_tokens = 0, num_windows = 0;
  Estimate nll;  // negative log likelihood of a token, nats
  std::optional<DivergenceReport> divergence;

  std::string ToText() const;  // some lines for people
  std::string ToJson() const;  // one object
};

// A model and the kernels that it runs with.
struct ModelUnderTest {
  const models::Model* model = nullptr;
  const kernels::KernelTable* kernels = nullptr;
};

struct PerplexityRun {
  ModelUnderTest model;
  std::optional<ModelUnderTest> reference;  // of the same vocabulary
  ThreadPool* pool = nullptr;               // computes both, in turn
  std::vector<TokenId> prefix;              // of each window: BOS, or nothing
  std::vector<TokenId> tokens;              // of the text, at least two; all ids below the models' vocab_size
  PerplexityOptions options;                // complete
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};  // tokens of all windows
};

// Memory: one window of keys and values, and a few rows of logits, for each model; three numbers a token of the text.
// kCorrupt: a model gives logits that are no numbers.
Result<PerplexityReport> MeasurePerplexity(const PerplexityRun& run);

}  // namespace quire::bench
