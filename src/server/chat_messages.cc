#include "server/chat_messages.h"

#include <algorithm>
#include <limits>
#include <string>

#include "server/fields.h"

namespace quire::server {
namespace {

constexpr std::size_t kPartsMax = 4096;
constexpr std::size_t kToolCallsMax = 256;
constexpr std::size_t kToolsMax = 512;
constexpr std::size_t kMembersMax = 64;
constexpr std::size_t kNameBytesMax = 512;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();  // the body's own limit holds
constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};

const json::value* FindMember(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// One part of a content array, as text.
Result<std::string> ReadPart(const json::value& part, const std::string& path) {
  if (part.is_string()) return std::string(part.get_string());
  QUIRE_TRY(const json::object* members, ReadObject(part, path, kMembersMax));
  const json::value* type = FindMember(*members, "type");
  if (type == nullptr) return FailParam(JoinPath(path, "type"), "{}.type is required", path);
  QUIRE_TRY(const std::string name, ReadString(*type, JoinPath(path, "type"), kNameBytesMax));
  const bool is_refusal = name == "refusal";
  if (name != "text" && name != "input_text" && name != "output_text" && !is_refusal) {
    return FailParam(JoinPath(path, "type"), "{}.type {} is not supported by this model; only text is", path,
                     Preview(*type));
  }
  const std::string text_path = JoinPath(path, is_refusal ? "refusal" : "text");
  const json::value* text = FindMember(*members, is_refusal ? "refusal" : "text");
  if (text == nullptr) return FailParam(text_path, "{} is required", text_path);
  return ReadString(*text, text_path, kNoLimit);
}

Result<std::string> ReadContent(const json::value& content, const std::string& path) {
  if (content.is_string()) return std::string(content.get_string());
  if (!content.is_array()) {
    return FailParam(path, "{} must be a string or an array of content parts, got {}", path, Preview(content));
  }
  QUIRE_TRY(const json::array* parts, ReadArray(content, path, kPartsMax));
  std::string text;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    QUIRE_TRY(const std::string part, ReadPart((*parts)[i], IndexPath(path, i)));
    if (i > 0) text.push_back('\n');
    text.append(part);
  }
  return text;
}

Result<json::value> ReadArguments(const json::object& function, const std::string& path) {
  const json::value* arguments = FindMember(function, "arguments");
  if (arguments == nullptr) return json::value(json::object());
  if (arguments->is_object()) return *arguments;
  QUIRE_TRY(const std::string text, ReadString(*arguments, path, kNoLimit));
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return json::value(json::object());
  auto parsed = ParseJson(text, path);
  if (!parsed) {
    return FailParam(path, "{} must hold a JSON object: {}", path, parsed.error().message);
  }
  if (!parsed->is_object()) return FailParam(path, "{} must hold a JSON object, got {}", path, Preview(*parsed));
  return *std::move(parsed);
}

Result<json::value> ReadToolCall(const json::value& value, const std::string& path) {
  QUIRE_TRY(const json::object* members, ReadObject(value, path, kMembersMax));
  json::object call;
  if (const json::value* id = FindMember(*members, "id")) {
    QUIRE_TRY(const std::string text, ReadString(*id, JoinPath(path, "id"), kNameBytesMax));
    call["id"] = text;
  }
  if (const json::value* type = FindMember(*members, "type")) {
    QUIRE_TRY(const std::string text, ReadString(*type, JoinPath(path, "type"), kNameBytesMax));
    if (text != "function") {
      return FailParam(JoinPath(path, "type"), "{}.type must be \"function\", got {}", path, Preview(*type));
    }
  }
  call["type"] = "function";
  const std::string function_path = JoinPath(path, "function");
  const json::value* function = FindMember(*members, "function");
  if (function == nullptr) return FailParam(function_path, "{} is required", function_path);
  QUIRE_TRY(const json::object* function_members, ReadObject(*function, function_path, kMembersMax));
  const std::string name_path = JoinPath(function_path, "name");
  const json::value* name = FindMember(*function_members, "name");
  if (name == nullptr) return FailParam(name_path, "{} is required", name_path);
  QUIRE_TRY(const std::string name_text, ReadString(*name, name_path, kNameBytesMax));
  QUIRE_TRY(json::value arguments, ReadArguments(*function_members, JoinPath(function_path, "arguments")));
  call["function"] = json::object{{"name", name_text}, {"arguments", std::move(arguments)}};
  return call;
}

// tool_calls, reasoning and the refused members of an assistant message.
Result<> ReadAssistantMembers(const json::object& members, const std::string& path, json::object* message) {
  for (const char* name : {"audio", "function_call"}) {
    if (const json::value* value = FindMember(members, name)) {
      return std::unexpected(UnsupportedFieldError(JoinPath(path, name), *value));
    }
  }
  const char* found_as = nullptr;
  for (const char* name : {"reasoning", "reasoning_content"}) {
    if (FindMember(members, name) != nullptr) found_as = name;
  }
  if (found_as != nullptr) {
    QUIRE_TRY(const std::string text, ReadString(*FindMember(members, found_as), JoinPath(path, found_as), kNoLimit));
    (*message)["reasoning"] = text;
    (*message)["reasoning_content"] = text;
  }
  if (const json::value* value = FindMember(members, "tool_calls")) {
    const std::string calls_path = JoinPath(path, "tool_calls");
    QUIRE_TRY(const json::array* items, ReadArray(*value, calls_path, kToolCallsMax));
    json::array calls;
    for (std::size_t i = 0; i < items->size(); ++i) {
      QUIRE_TRY(json::value call, ReadToolCall((*items)[i], IndexPath(calls_path, i)));
      calls.push_back(std::move(call));
    }
    if (!calls.empty()) (*message)["tool_calls"] = std::move(calls);
  }
  return {};
}

Result<json::value> NormalizeMessage(const json::value& value, const std::string& path) {
  QUIRE_TRY(const json::object* members, ReadObject(value, path, kMembersMax));
  const std::string role_path = JoinPath(path, "role");
  const json::value* role_value = FindMember(*members, "role");
  if (role_value == nullptr) return FailParam(role_path, "{} is required", role_path);
  QUIRE_TRY(const std::string role, ReadString(*role_value, role_path, kNoLimit));
  if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
    return FailParam(role_path, "{} must be system, developer, user, assistant or tool, got {}", role_path,
                     Preview(*role_value));
  }
  json::object message;
  message["role"] = role;
  const json::value* content = FindMember(*members, "content");
  if (content != nullptr) {
    QUIRE_TRY(const std::string text, ReadContent(*content, JoinPath(path, "content")));
    message["content"] = text;
  } else {
    message["content"] = nullptr;
  }
  if (role == "assistant") QUIRE_TRY_VOID(ReadAssistantMembers(*members, path, &message));
  if (content == nullptr && !message.contains("tool_calls")) {
    if (role != "assistant") return FailParam(JoinPath(path, "content"), "{}.content is required", path);
    message["content"] = "";
  }
  for (const char* name : {"name", "tool_call_id"}) {
    if (const json::value* text_value = FindMember(*members, name)) {
      QUIRE_TRY(const std::string text, ReadString(*text_value, JoinPath(path, name), kNameBytesMax));
      message[name] = text;
    }
  }
  return message;
}

}  // namespace

Result<json::array> NormalizeMessages(const json::value& messages, std::string_view path) {
  QUIRE_TRY(const json::array* items, ReadArray(messages, path, kMessagesMax));
  if (items->empty()) return FailParam(std::string(path), "{} must not be empty", path);
  json::array normalized;
  normalized.reserve(items->size());
  for (std::size_t i = 0; i < items->size(); ++i) {
    QUIRE_TRY(json::value message, NormalizeMessage((*items)[i], IndexPath(path, i)));
    normalized.push_back(std::move(message));
  }
  return normalized;
}

Result<json::array> CheckTools(const json::value& tools, std::string_view path) {
  QUIRE_TRY(const json::array* items, ReadArray(tools, path, kToolsMax));
  for (std::size_t i = 0; i < items->size(); ++i) {
    const std::string tool_path = IndexPath(path, i);
    QUIRE_TRY(const json::object* members, ReadObject((*items)[i], tool_path, kMembersMax));
    const json::value* type = FindMember(*members, "type");
    if (type == nullptr || !type->is_string() || type->get_string() != "function") {
      return FailParam(JoinPath(tool_path, "type"), "{}.type must be \"function\", got {}", tool_path,
                       type == nullptr ? "nothing" : Preview(*type));
    }
    const std::string function_path = JoinPath(tool_path, "function");
    const json::value* function = FindMember(*members, "function");
    if (function == nullptr) return FailParam(function_path, "{} is required", function_path);
    QUIRE_TRY(const json::object* function_members, ReadObject(*function, function_path, kMembersMax));
    const json::value* name = FindMember(*function_members, "name");
    const std::string name_path = JoinPath(function_path, "name");
    if (name == nullptr) return FailParam(name_path, "{} is required", name_path);
    QUIRE_TRY([[maybe_unused]] const std::string text, ReadString(*name, name_path, kNameBytesMax));
  }
  return *items;
}

}  // namespace quire::server
