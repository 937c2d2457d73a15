// POST /v1/chat/completions as a typed request.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/generation_fields.h"

namespace quire::server {

// What a template is rendered from; /tokenize takes the same members.
struct ChatPrompt {
  json::array messages;         // as NormalizeMessages gives them; at least one
  json::value tools = nullptr;  // array, or null
  json::object template_kwargs;
  std::optional<bool> add_generation_prompt;  // default: true, unless the final message is continued
  bool continue_final_message = false;
};

struct ChatRequest : GenerationFields, ChatPrompt {
  std::optional<std::int64_t> max_completion_tokens;  // wins over max_tokens
  bool logprobs = false;
  std::optional<std::int64_t> top_logprobs;
  std::vector<std::string> unknown_fields;
};

// Errors name the field; the model's name is not looked at.
Result<ChatRequest> ParseChatRequest(const json::value& body, const RequestLimits& limits);

// The lines of the table that a ChatPrompt is read by, and the check afterwards.
std::span<const FieldSpec<ChatPrompt>> ChatPromptTable();
Result<> CheckChatPrompt(const ChatPrompt& prompt);

}  // namespace quire::server
