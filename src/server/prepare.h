// From a typed request to what is submitted and how it is answered: template, tokenising, lengths. This is
// the heavy part of a request's front end and runs on a worker thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/request.h"
#include "base/result.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/config.h"

namespace quire::server {

// The model as requests see it; immutable, shared by all threads.
struct ModelContext {
  std::vector<std::string> names;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // may be null
  GenerationDefaults defaults;
  RequestLimits limits;
  std::size_t token_bytes_max = 0;  // the longest entry of the vocabulary
  std::string system_fingerprint;   // "quire-" and a hash of whatever decides about the output besides the request
};

struct PreparedPrompt {
  std::vector<TokenId> ids;
  std::string text;  // what echo shows; only filled when that is asked for
  int max_tokens = 0;
  std::uint64_t seed = 0;
};

// A whole request, ready to be submitted, and what its answer must look like.
struct GenerationSpec {
  bool is_chat = false;
  std::string id;     // "chatcmpl-…", "cmpl-…"
  std::string model;  // as the client called it
  std::string system_fingerprint;
  std::int64_t created = 0;  // seconds since 1970
  std::vector<PreparedPrompt> prompts;
  SamplingParams sampling;  // but for the seeds; its n is what the engine computes
  int n = 1;                // choices that are returned for each prompt: with best_of the best of sampling.n
  StopCriteria stop;        // but for max_tokens
  std::string cache_salt;
  std::int32_t cache_retention_s = 0;
  ServiceTerms terms;

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
  bool echo = false;
  std::optional<int> logprobs;         // as the client asked; sampling may ask the engine for more
  std::optional<int> prompt_logprobs;  // likewise
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
  bool return_timings = false;
  bool skip_special_tokens = true;
  std::vector<std::string> stop_strings;
  bool include_stop_str_in_output = false;

  int num_choices() const { return static_cast<int>(prompts.size()) * sampling.n; }
  bool returns_best() const { return n < sampling.n; }
  // max_tokens is 0 and nothing of the model's is wanted: the answer is known.
  bool needs_engine() const { return prompts.front().max_tokens > 0 || sampling.prompt_logprobs.has_value(); }
};

// What one request gets from outside.
struct RequestIdentity {
  std::string id;  // without its prefix
  std::int64_t created = 0;
  std::uint64_t random_seed = 0;
  int tenant = 0;
};

// kNotFound when the model has another name.
Result<> CheckModelName(const std::string& name, const ModelContext& model);

Result<GenerationSpec> PrepareCompletion(CompletionRequest request, const ModelContext& model,
                                         const RequestIdentity& identity);
Result<GenerationSpec> PrepareChat(ChatRequest request, const ModelContext& model, const RequestIdentity& identity);

// The text that a chat prompt is for the model.
Result<std::string> RenderChat(const ChatPrompt& prompt, const ModelContext& model);
// Refuses text that is too long for the context whatever its tokens are, before tokenising it.
Result<std::vector<TokenId>> EncodePrompt(const std::string& text, bool add_special_tokens, const std::string& param,
                                          const ModelContext& model);

}  // namespace quire::server
