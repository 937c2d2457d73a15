#include "server/completion_request.h"

#include <algorithm>
#include <limits>

namespace quire::server {
namespace {

using Request = CompletionRequest;

constexpr std::int64_t kIntMax = std::numeric_limits<std::int32_t>::max();

Result<> ReadLogprobs(const json::value& value, const std::string& path, Request* request) {
  QUIRE_TRY(request->logprobs, ReadInteger(value, path, 0, kIntMax));
  return {};
}

// The prompt needs the size of the vocabulary and is read by itself.
Result<> SkipPrompt(const json::value&, const std::string&, Request*) {
  return {};
}

constexpr FieldSpec<Request> kTable[] = {
    {"prompt", CustomField<Request>{&SkipPrompt}},
    {"logprobs", CustomField<Request>{&ReadLogprobs}},
    {"suffix", UnsupportedField{&IsEmptyValue}},
};

Result<CompletionPrompt> ReadTextPrompt(const json::value& value, const std::string& path) {
  CompletionPrompt prompt;
  QUIRE_TRY(prompt.text, ReadString(value, path, std::numeric_limits<std::size_t>::max()));
  if (prompt.text.empty()) return FailParam(path, "{} must not be empty", path);
  return prompt;
}

Result<CompletionPrompt> ReadIdPrompt(const json::value& value, const std::string& path, const RequestLimits& limits) {
  CompletionPrompt prompt{.text = {}, .ids = {}, .is_text = false};
  // Longer lists are refused for their length, with the context length in the message, after they are read.
  QUIRE_TRY(prompt.ids, ReadTokenIds(value, path, std::numeric_limits<std::size_t>::max(), limits.vocab_size));
  if (prompt.ids.empty()) return FailParam(path, "{} must not be empty", path);
  return prompt;
}

Result<std::vector<CompletionPrompt>> ReadPrompts(const json::value& value, const RequestLimits& limits) {
  const std::string path = "prompt";
  std::vector<CompletionPrompt> prompts;
  if (value.is_string()) {
    QUIRE_TRY(prompts.emplace_back(), ReadTextPrompt(value, path));
    return prompts;
  }
  if (!value.is_array()) {
    return FailParam(path,
                     "prompt must be a string, an array of strings, an array of token ids or an array of those, "
                     "got {}",
                     Preview(value));
  }
  const json::array& items = value.get_array();
  if (items.empty()) return FailParam(path, "prompt must not be empty");
  if (items[0].is_number()) {
    QUIRE_TRY(prompts.emplace_back(), ReadIdPrompt(value, path, limits));
    return prompts;
  }
  if (items.size() > kPromptsMax) {
    return FailParam(path, "prompt has {} prompts; at most {} are allowed", items.size(), kPromptsMax);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string item_path = IndexPath(path, i);
    if (items[i].is_string()) {
      QUIRE_TRY(prompts.emplace_back(), ReadTextPrompt(items[i], item_path));
    } else if (items[i].is_array()) {
      QUIRE_TRY(prompts.emplace_back(), ReadIdPrompt(items[i], item_path, limits));
    } else {
      return FailParam(item_path, "{} must be a string or an array of token ids, got {}", item_path, Preview(items[i]));
    }
  }
  return prompts;
}

Result<> CheckCompletion(const Request& request, const RequestLimits& limits) {
  QUIRE_TRY_VOID(CheckGenerationFields(request, limits));
  if (request.logprobs && *request.logprobs > limits.logprobs_max) {
    return FailParam("logprobs", "logprobs must be an integer from 0 to {}, got {}", limits.logprobs_max,
                     *request.logprobs);
  }
  if (request.min_tokens && request.max_tokens && *request.min_tokens > *request.max_tokens) {
    return FailParam("min_tokens", "min_tokens must not be above max_tokens={}, got {}", *request.max_tokens,
                     *request.min_tokens);
  }
  if (request.max_tokens == 0 && !request.echo && !request.prompt_logprobs) {
    return FailParam("max_tokens", "max_tokens must be at least 1 without echo or prompt_logprobs, got 0");
  }
  const std::int64_t num_candidates = request.num_candidates() * static_cast<std::int64_t>(request.prompts.size());
  if (num_candidates > kPromptsMax) {
    const char* name = request.num_candidates() > request.num_choices() ? "best_of" : "n";
    return FailParam(name, "{} × the number of prompts is {}; at most {} are allowed", name, num_candidates,
                     kPromptsMax);
  }
  return {};
}

}  // namespace

Result<CompletionRequest> ParseCompletionRequest(const json::value& body, const RequestLimits& limits) {
  if (!body.is_object()) return FailParam("", "the request body must be a JSON object, got {}", Preview(body));
  const json::object& members = body.get_object();
  CompletionRequest request;
  std::vector<std::string_view> unknown;
  QUIRE_TRY_VOID(ReadRequestFields<Request>(members, kTable, &request, &unknown));
  request.unknown_fields.assign(unknown.begin(), unknown.end());
  const json::value* prompt = members.if_contains("prompt");
  if (prompt == nullptr || prompt->is_null()) return FailParam("prompt", "prompt is required");
  QUIRE_TRY(request.prompts, ReadPrompts(*prompt, limits));
  QUIRE_TRY_VOID(CheckCompletion(request, limits));
  return request;
}

}  // namespace quire::server
