// POST /v1/completions as a typed request.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/generation_fields.h"

namespace quire::server {

struct CompletionPrompt {
  std::string text;          // when is_text
  std::vector<TokenId> ids;  // when not
  bool is_text = true;
};

struct CompletionRequest : GenerationFields {
  std::vector<CompletionPrompt> prompts;  // at least one
  std::optional<std::int64_t> logprobs;   // alternatives for each token; 0: the token's own only
  std::vector<std::string> unknown_fields;
};

inline constexpr int kPromptsMax = 256;

// Errors name the field; the model's name is not looked at.
Result<CompletionRequest> ParseCompletionRequest(const json::value& body, const RequestLimits& limits);

}  // namespace quire::server
