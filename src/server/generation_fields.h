// The fields that completions and chat have in common, typed and checked, and how they become what an engine
// is asked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/sampling_params.h"
#include "base/json.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "server/config.h"
#include "server/fields.h"

namespace quire::server {

// What requests are checked against.
struct RequestLimits {
  int vocab_size = 0;
  int max_model_len = 0;
  int logprobs_max = 20;
  std::string scheduling_policy;  // of the engine
};

struct GenerationFields {
  std::string model;  // "": the client named none
  std::optional<double> ttft_ms, tpot_ms;
  std::optional<std::int64_t> priority, queue_timeout_ms;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<double> length_penalty;
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  bool use_beam_search = false;
  std::optional<std::int64_t> top_k, seed, n, best_of, max_tokens, min_tokens, prompt_logprobs, truncate_prompt_tokens;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::optional<bool> add_special_tokens;  // the default differs: false for chat, true for completions
  bool echo = false;
  bool stream = false;
  bool has_stream_options = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
  bool return_timings = false;
  std::string cache_salt;
  std::int32_t cache_retention_s = 0;

  int num_choices() const { return static_cast<int>(n.value_or(1)); }
  // Beams, or choices from which the best are returned.
  int num_candidates() const { return std::max(num_choices(), static_cast<int>(best_of.value_or(1))); }
};

inline constexpr int kChoicesMax = 128;
inline constexpr int kBestOfMax = 20;  // OpenAI's limit; as a beam width it may be larger

// The lines of the table; the tables of the two routes begin with them.
std::span<const FieldSpec<GenerationFields>> GenerationFieldTable();

// What one field alone cannot say: contradictions between fields, ids against the vocabulary.
Result<> CheckGenerationFields(const GenerationFields& fields, const RequestLimits& limits);

// Precedence: the request, the model's recommendation, the neutral value. Logprobs are left to the caller.
SamplingParams ResolveSampling(const GenerationFields& fields, const GenerationDefaults& defaults,
                               std::uint64_t random_seed);

// A list of token ids below vocab_size.
Result<std::vector<TokenId>> ReadTokenIds(const json::value& value, std::string_view path, std::size_t items_max,
                                          int vocab_size);

// Reads `object` by the common table and by the route's own.
template <typename T>
Result<> ReadRequestFields(const json::object& object, std::span<const FieldSpec<T>> own, T* request,
                           std::vector<std::string_view>* unknown) {
  std::vector<std::string_view> not_own;
  QUIRE_TRY_VOID(ReadFields<T>(object, "", own, request, &not_own));
  for (const std::string_view name : not_own) {
    const FieldSpec<GenerationFields>* found = nullptr;
    for (const auto& spec : GenerationFieldTable()) {
      if (spec.name == name) found = &spec;
    }
    const json::value& value = object.at(name);
    if (found == nullptr) {
      unknown->push_back(name);
    } else if (!value.is_null()) {
      QUIRE_TRY_VOID(ReadField<GenerationFields>(*found, value, std::string(name), request));
    }
  }
  return {};
}

}  // namespace quire::server
