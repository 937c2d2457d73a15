#include "engine/verify_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <span>

#include "kernels/kernel_table.h"

namespace quire::engine {
namespace {

// Prefixes that several requests begin with: two that have nothing in common, and two of which the second continues the
// first. Those reach beyond one and two partitions of attention (kernels::kAttentionPartition), so that sequences in the
// same blocks are computed together and their prefixes form a tree. None is a multiple of a block or of a chunk.
enum class Prefix : std::uint8_t { kNone, kShort, kOtherShort, kDeep, kDeeper };
using enum Prefix;
constexpr int kShortTokens = 70;
constexpr int kDeepTokens = 300;
constexpr int kDeeperTokens = 600;
static_assert(kDeepTokens > kernels::kAttentionPartition && kDeeperTokens > 2 * kernels::kAttentionPartition);

struct Kind {
  Prefix prefix = kNone;
  int own = 0;  // further prompt tokens
  double temperature = 0;
  int top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition = 1, presence = 0, frequency = 0;
  int n = 1;
  int logprobs = 0;           // −1: none
  int prompt_logprobs = -1;   // likewise
  int share_of_tokens = 100;  // of max_tokens, percent
  int min_tokens = 0;
  bool stops = false;  // every eighth id of the vocabulary ends it
  bool ignore_eos = false;
  bool biased = false;
  bool twin = false;  // the same prompt as the other twins
  int beams = 0;      // width; 0: no beam search
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
};

// The first few are the ones that say most: users may ask for a few only. Where memory is just enough for the longest
// (verify.cc), its two choices are too many: each has its own last two blocks.
constexpr Kind kKinds[] = {
    {.prefix = kShort, .own = 7, .logprobs = 5, .twin = true},
    {.own = 5, .temperature = 1, .n = 2},
    {.prefix = kShort, .own = 7, .logprobs = 5, .twin = true},  // DET-01: the same request again
    {.own = 150, .logprobs = 3},
    {.prefix = kShort, .own = 23, .temperature = 1, .n = 2},
    {.prefix = kShort, .own = 0},
    {.own = 16, .temperature = 0.8, .top_p = 0.9, .n = 3},
    {.prefix = kShort, .own = 9, .n = 2, .logprobs = 1, .beams = 4, .length_penalty = 0.6},
    {.prefix = kOtherShort, .own = 1, .temperature = 0.7, .top_k = 40, .repetition = 1.2, .ignore_eos = true},
    {.prefix = kDeep, .own = 11, .temperature = 1, .n = 2},
    {.prefix = kDeeper, .own = 22, .temperature = 0.9, .n = 2, .logprobs = 5, .ignore_eos = true},
    {.prefix = kShort, .own = 30, .logprobs = 2, .prompt_logprobs = 3},
    {.own = 1, .presence = 1, .frequency = 0.5, .ignore_eos = true},
    {.prefix = kDeep,
     .own = 19,
     .prompt_logprobs = 1,
     .min_tokens = 2,
     .stops = true,
     .beams = 3,
     .early_stopping = EarlyStopping::kNever},
    {.own = 21, .temperature = 1, .n = 5, .ignore_eos = true},  // best_of: the front end chooses by the logprobs
    {.own = 33, .temperature = 1.5, .min_p = 0.05, .n = 2},
    {.prefix = kOtherShort, .own = 40, .temperature = 1, .min_tokens = 3, .stops = true},
    {.own = 48, .prompt_logprobs = 0, .share_of_tokens = 0},
    {.own = 32, .temperature = 1, .top_k = 5, .top_p = 0.8, .min_p = 0.01, .presence = -0.5, .biased = true},
    {.prefix = kOtherShort, .own = 90, .logprobs = -1, .ignore_eos = true},
    {.own = 100, .temperature = 0.9, .share_of_tokens = 50, .min_tokens = 2, .stops = true},
};

std::string Describe(const Kind& kind, int prompt_tokens) {
  std::string text = kind.temperature == 0 ? "greedy" : fmt::format("temperature {}", kind.temperature);
  text += fmt::format(", {} prompt tokens", prompt_tokens);
  if (kind.prefix != kNone) text += " (prefix shared)";
  if (kind.n > 1) text += fmt::format(", n {}", kind.n);
  if (kind.beams > 0) text += fmt::format(", {} beams", kind.beams);
  if (kind.repetition != 1 || kind.presence != 0 || kind.frequency != 0) text += ", penalties";
  if (kind.prompt_logprobs >= 0) text += ", prompt logprobs";
  if (kind.stops) text += ", stop ids";
  return text;
}

}  // namespace

std::vector<VerifyRequest> MakeVerifyWorkload(const weights::ModelConfig& model, int num_requests, int max_tokens,
                                              int max_model_len, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw_tokens = [&](int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) {
      tokens.push_back(TokenId(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(model.vocab_size))));
    }
    return tokens;
  };
  const std::array shorts{draw_tokens(kShortTokens), draw_tokens(kShortTokens)};
  const std::vector<TokenId> deeper = draw_tokens(kDeeperTokens);
  const auto prefix_of = [&](const Kind& kind) -> std::span<const TokenId> {
    switch (kind.prefix) {
      case kNone:
        return {};
      case kShort:
        return shorts[0];
      case kOtherShort:
        return shorts[1];
      case kDeep:
        return std::span(deeper).first(kDeepTokens);
      case kDeeper:
        return deeper;
    }
    return {};
  };
  const std::vector<TokenId> twin = draw_tokens(kKinds[0].own);

  std::vector<VerifyRequest> workload;
  for (int i = 0; i < num_requests; ++i) {
    const Kind& kind = kKinds[static_cast<std::size_t>(i) % std::size(kKinds)];
    GenerateRequest request;
    request.id = RequestId(static_cast<std::uint64_t>(i) + 1);
    const std::span<const TokenId> prefix = prefix_of(kind);
    request.prompt.assign(prefix.begin(), prefix.end());
    const std::vector<TokenId> own = kind.twin ? twin : draw_tokens(kind.own);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    const int room = std::max(1, max_model_len - max_tokens);
    if (static_cast<int>(request.prompt.size()) > room) request.prompt.resize(static_cast<std::size_t>(room));

    SamplingParams& sampling = request.sampling;
    sampling.temperature = kind.temperature;
    sampling.top_k = kind.top_k;
    sampling.top_p = kind.top_p;
    sampling.min_p = kind.min_p;
    sampling.repetition_penalty = kind.repetition;
    sampling.presence_penalty = kind.presence;
    sampling.frequency_penalty = kind.frequency;
    sampling.n = kind.n;
    sampling.seed = random();
    if (kind.logprobs >= 0) sampling.logprobs = kind.logprobs;
    if (kind.prompt_logprobs >= 0) sampling.prompt_logprobs = kind.prompt_logprobs;
    if (kind.beams > 0) {
      sampling.beam = {
          .width = kind.beams, .length_penalty = kind.length_penalty, .early_stopping = kind.early_stopping};
    }
    if (kind.biased) sampling.logit_bias = {{TokenId(0), 4.0f}, {TokenId(model.vocab_size - 1), -100.0f}};
    StopCriteria& stop = request.stop;
    stop.max_tokens = max_tokens * kind.share_of_tokens / 100;
    if (kind.share_of_tokens > 0) stop.max_tokens = std::max(stop.max_tokens, 1);
    stop.min_tokens = std::min(kind.min_tokens, stop.max_tokens);
    stop.ignore_eos = kind.ignore_eos;
    for (int id = 3; kind.stops && id < std::min(model.vocab_size, 4096); id += 8) {
      stop.stop_token_ids.push_back(TokenId(id));
    }
    const int prompt_tokens = static_cast<int>(request.prompt.size());
    workload.push_back({std::move(request), Describe(kind, prompt_tokens)});
  }
  return workload;
}

}  // namespace quire::engine
