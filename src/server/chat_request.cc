#include "server/chat_request.h"

#include <algorithm>
#include <limits>

#include "server/chat_messages.h"

namespace quire::server {
namespace {

constexpr std::int64_t kIntMax = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kKwargsMax = 64;
constexpr std::size_t kDocumentsMax = 1024;

// What the server itself tells a template; a client must not be able to say something else under these names.
constexpr std::string_view kReservedKwargs[] = {
    "messages",      "tools",     "tokenize",  "add_generation_prompt", "continue_final_message",
    "chat_template", "bos_token", "eos_token", "conversation",          "return_dict",
    "documents",
};

Result<> ReadMessages(const json::value& value, const std::string& path, ChatPrompt* prompt) {
  QUIRE_TRY(prompt->messages, NormalizeMessages(value, path));
  return {};
}

Result<> ReadTools(const json::value& value, const std::string& path, ChatPrompt* prompt) {
  QUIRE_TRY(json::array tools, CheckTools(value, path));
  if (!tools.empty()) prompt->tools = std::move(tools);
  return {};
}

Result<> ReadTemplateKwargs(const json::value& value, const std::string& path, ChatPrompt* prompt) {
  QUIRE_TRY(const json::object* members, ReadObject(value, path, kKwargsMax));
  for (const auto& [key, item] : *members) {
    if (std::ranges::find(kReservedKwargs, std::string_view(key)) != std::end(kReservedKwargs)) {
      return FailParam(JoinPath(path, key), "{} must not set {}", path, std::string_view(key));
    }
    prompt->template_kwargs[key] = item;
  }
  return {};
}

Result<> ReadDocuments(const json::value& value, const std::string& path, ChatPrompt* prompt) {
  QUIRE_TRY(const json::array* documents, ReadArray(value, path, kDocumentsMax));
  for (std::size_t i = 0; i < documents->size(); ++i) {
    QUIRE_TRY([[maybe_unused]] const json::object* members, ReadObject((*documents)[i], IndexPath(path, i), 64));
  }
  prompt->template_kwargs["documents"] = *documents;
  return {};
}

Result<> ReadReasoningEffort(const json::value& value, const std::string& path, ChatPrompt* prompt) {
  QUIRE_TRY(const std::string effort, ReadString(value, path, 64));
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (std::ranges::find(kEfforts, effort) == std::end(kEfforts)) {
    return FailParam(path, "{} must be none, minimal, low, medium, high, xhigh or max, got {}", path, Preview(value));
  }
  // Templates know the effort under one of these names. What the client says in chat_template_kwargs wins.
  if (!prompt->template_kwargs.contains("reasoning_effort")) prompt->template_kwargs["reasoning_effort"] = effort;
  if (effort == "none" && !prompt->template_kwargs.contains("enable_thinking")) {
    prompt->template_kwargs["enable_thinking"] = false;
  }
  return {};
}

constexpr FieldSpec<ChatPrompt> kPromptTable[] = {
    {"messages", CustomField<ChatPrompt>{&ReadMessages}},
    {"tools", CustomField<ChatPrompt>{&ReadTools}},
    {"chat_template_kwargs", CustomField<ChatPrompt>{&ReadTemplateKwargs}},
    {"documents", CustomField<ChatPrompt>{&ReadDocuments}},
    {"reasoning_effort", CustomField<ChatPrompt>{&ReadReasoningEffort}},
    {"add_generation_prompt", OptionalBoolField<ChatPrompt>{&ChatPrompt::add_generation_prompt}},
    {"continue_final_message", BoolField<ChatPrompt>{&ChatPrompt::continue_final_message}},
    // A template from a client is a program from a client.
    {"chat_template", UnsupportedField{&IsNever}},
};

bool IsTextOnly(const json::value& value) {
  return value.is_array() && std::ranges::all_of(value.get_array(), [](const json::value& item) {
           return item.is_string() && item.get_string() == "text";
         });
}

bool IsMediumVerbosity(const json::value& value) {
  return value.is_string() && value.get_string() == "medium";
}
bool IsTrue(const json::value& value) {
  return value.is_bool() && value.get_bool();
}
bool IsAutoOrNone(const json::value& value) {
  return value.is_string() && (value.get_string() == "auto" || value.get_string() == "none");
}

// Calls are not parsed yet, so that a call cannot be promised; the tools are shown to the model all the same.
Result<> ReadToolChoice(const json::value& value, const std::string& path, ChatRequest*) {
  if (IsAutoOrNone(value)) return {};
  const bool is_known = value.is_object() || (value.is_string() && value.get_string() == "required");
  if (!is_known) {
    return FailParam(path, "{} must be none, auto, required or a named tool, got {}", path, Preview(value));
  }
  return std::unexpected(
      Error{ErrorCode::kUnsupported,
            fmt::format("{} {} is not supported by this server; only auto and none are", path, Preview(value)), path});
}

constexpr FieldSpec<ChatRequest> kTable[] = {
    {"max_completion_tokens", IntegerField<ChatRequest>{&ChatRequest::max_completion_tokens, 0, kIntMax}},
    {"logprobs", BoolField<ChatRequest>{&ChatRequest::logprobs}},
    {"top_logprobs", IntegerField<ChatRequest>{&ChatRequest::top_logprobs, 0, kIntMax}},
    {"tool_choice", CustomField<ChatRequest>{&ReadToolChoice}},
    {"parallel_tool_calls", NoEffectField{}},
    {"include_reasoning", UnsupportedField{&IsTrue}},
    {"modalities", UnsupportedField{&IsTextOnly}},
    {"verbosity", UnsupportedField{&IsMediumVerbosity}},
    {"audio", UnsupportedField{&IsNever}},
    {"web_search_options", UnsupportedField{&IsNever}},
    {"functions", UnsupportedField{&IsEmptyValue}},
    {"function_call", UnsupportedField{&IsAutoOrNone}},
};

Result<> CheckChat(const ChatRequest& request, const RequestLimits& limits) {
  QUIRE_TRY_VOID(CheckGenerationFields(request, limits));
  QUIRE_TRY_VOID(CheckChatPrompt(request));
  if (request.top_logprobs) {
    if (!request.logprobs) return FailParam("top_logprobs", "top_logprobs needs logprobs=true");
    if (*request.top_logprobs > limits.logprobs_max) {
      return FailParam("top_logprobs", "top_logprobs must be an integer from 0 to {}, got {}", limits.logprobs_max,
                       *request.top_logprobs);
    }
  }
  const auto max_tokens = request.max_completion_tokens ? request.max_completion_tokens : request.max_tokens;
  if (max_tokens == 0 && !request.prompt_logprobs) {
    const char* name = request.max_completion_tokens ? "max_completion_tokens" : "max_tokens";
    return FailParam(name, "{} must be at least 1 without prompt_logprobs, got 0", name);
  }
  if (request.min_tokens && max_tokens && *request.min_tokens > *max_tokens) {
    return FailParam("min_tokens", "min_tokens must not be above the {} tokens that may be generated, got {}",
                     *max_tokens, *request.min_tokens);
  }
  return {};
}

}  // namespace

std::span<const FieldSpec<ChatPrompt>> ChatPromptTable() {
  return kPromptTable;
}

Result<> CheckChatPrompt(const ChatPrompt& prompt) {
  if (prompt.messages.empty()) return FailParam("messages", "messages is required");
  if (!prompt.continue_final_message) return {};
  if (prompt.add_generation_prompt.value_or(false)) {
    return FailParam("continue_final_message", "continue_final_message and add_generation_prompt exclude each other");
  }
  const json::value& content = prompt.messages.back().get_object().at("content");
  if (!content.is_string()) {
    return FailParam("continue_final_message", "continue_final_message needs a final message with content");
  }
  return {};
}

Result<ChatRequest> ParseChatRequest(const json::value& body, const RequestLimits& limits) {
  if (!body.is_object()) return FailParam("", "the request body must be a JSON object, got {}", Preview(body));
  const json::object& members = body.get_object();
  ChatRequest request;
  std::vector<std::string_view> not_of_prompt;
  QUIRE_TRY_VOID(ReadFields<ChatPrompt>(members, "", kPromptTable, &request, &not_of_prompt));
  json::object rest;
  for (const std::string_view name : not_of_prompt) rest[name] = members.at(name);
  std::vector<std::string_view> unknown;
  QUIRE_TRY_VOID(ReadRequestFields<ChatRequest>(rest, kTable, &request, &unknown));
  request.unknown_fields.assign(unknown.begin(), unknown.end());
  QUIRE_TRY_VOID(CheckChat(request, limits));
  return request;
}

}  // namespace quire::server
