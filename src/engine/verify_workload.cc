#include "engine/verify_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <random>

namespace quire::engine {
namespace {

constexpr int kSharedPrefixTokens = 70;  // neither a multiple of a block nor of a chunk

struct Kind {
  int shared = 0;  // 0: none; 1, 2: one of two prefixes that several requests begin with
  int own = 0;     // further prompt tokens
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
};

// The first few are the ones that say most: users may ask for a few only.
constexpr Kind kKinds[] = {
    {.shared = 1, .own = 7, .logprobs = 5, .twin = true},
    {.own = 5, .temperature = 1, .n = 2},
    {.shared = 1, .own = 7, .logprobs = 5, .twin = true},  // DET-01: the same request again
    {.own = 150, .logprobs = 3},
    {.shared = 1, .own = 23, .temperature = 1, .n = 2},
    {.shared = 1, .own = 0},
    {.own = 16, .temperature = 0.8, .top_p = 0.9, .n = 3},
    {.shared = 2, .own = 1, .temperature = 0.7, .top_k = 40, .repetition = 1.2, .ignore_eos = true},
    {.shared = 1, .own = 30, .logprobs = 2, .prompt_logprobs = 3},
    {.own = 1, .presence = 1, .frequency = 0.5, .ignore_eos = true},
    {.own = 33, .temperature = 1.5, .min_p = 0.05, .n = 2},
    {.shared = 2, .own = 40, .temperature = 1, .min_tokens = 3, .stops = true},
    {.own = 48, .prompt_logprobs = 0, .share_of_tokens = 0},
    {.own = 32, .temperature = 1, .top_k = 5, .top_p = 0.8, .min_p = 0.01, .presence = -0.5, .biased = true},
    {.shared = 2, .own = 90, .logprobs = -1, .ignore_eos = true},
    {.own = 100, .temperature = 0.9, .share_of_tokens = 50, .min_tokens = 2, .stops = true},
};

std::string Describe(const Kind& kind, int prompt_tokens) {
  std::string text = kind.temperature == 0 ? "greedy" : fmt::format("temperature {}", kind.temperature);
  text += fmt::format(", {} prompt tokens", prompt_tokens);
  if (kind.shared > 0) text += " (prefix shared)";
  if (kind.n > 1) text += fmt::format(", n {}", kind.n);
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
  const std::array prefixes{draw_tokens(kSharedPrefixTokens), draw_tokens(kSharedPrefixTokens)};
  const std::vector<TokenId> twin = draw_tokens(kKinds[0].own);

  std::vector<VerifyRequest> workload;
  for (int i = 0; i < num_requests; ++i) {
    const Kind& kind = kKinds[static_cast<std::size_t>(i) % std::size(kKinds)];
    GenerateRequest request;
    request.id = RequestId(static_cast<std::uint64_t>(i) + 1);
    if (kind.shared > 0) request.prompt = prefixes[static_cast<std::size_t>(kind.shared) - 1];
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
