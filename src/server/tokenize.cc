#include "server/tokenize.h"

#include <limits>

#include "base/utf8.h"
#include "server/chat_request.h"

namespace quire::server {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();  // the body's own limit holds

struct TokenizeRequest : ChatPrompt {
  std::string model;
  std::string prompt;
  std::optional<bool> add_special_tokens;
  bool return_token_strs = false;
};

constexpr FieldSpec<TokenizeRequest> kTokenizeTable[] = {
    {"model", StringField<TokenizeRequest>{&TokenizeRequest::model, 512}},
    {"prompt", StringField<TokenizeRequest>{&TokenizeRequest::prompt, kNoLimit}},
    {"add_special_tokens", OptionalBoolField<TokenizeRequest>{&TokenizeRequest::add_special_tokens}},
    {"return_token_strs", BoolField<TokenizeRequest>{&TokenizeRequest::return_token_strs}},
};

struct DetokenizeRequest {
  std::string model;
};

Result<> SkipTokens(const json::value&, const std::string&, DetokenizeRequest*) {
  return {};
}

constexpr FieldSpec<DetokenizeRequest> kDetokenizeTable[] = {
    {"model", StringField<DetokenizeRequest>{&DetokenizeRequest::model, 512}},
    {"tokens", CustomField<DetokenizeRequest>{&SkipTokens}},
};

Result<TokenizeRequest> ParseTokenize(const json::value& body) {
  if (!body.is_object()) return FailParam("", "the request body must be a JSON object, got {}", Preview(body));
  const json::object& members = body.get_object();
  TokenizeRequest request;
  std::vector<std::string_view> unknown;
  QUIRE_TRY_VOID(ReadFields<ChatPrompt>(members, "", ChatPromptTable(), &request, &unknown));
  unknown.clear();
  QUIRE_TRY_VOID(ReadFields<TokenizeRequest>(members, "", kTokenizeTable, &request, &unknown));
  const json::value* prompt = members.if_contains("prompt");
  const bool has_prompt = prompt != nullptr && !prompt->is_null();
  if (has_prompt == !request.messages.empty()) {
    return FailParam("prompt", "exactly one of prompt and messages is required");
  }
  if (!has_prompt) QUIRE_TRY_VOID(CheckChatPrompt(request));
  return request;
}

}  // namespace

Result<std::string> Tokenize(const json::value& body, const ModelContext& model) {
  QUIRE_TRY(TokenizeRequest request, ParseTokenize(body));
  QUIRE_TRY_VOID(CheckModelName(request.model, model));
  const bool is_chat = !request.messages.empty();
  std::string text = std::move(request.prompt);
  if (is_chat) {
    QUIRE_TRY(text, RenderChat(request, model));
  }
  auto ids = model.tokenizer->Encode(
      text, {.add_special_tokens = request.add_special_tokens.value_or(!is_chat), .parse_special_tokens = true});
  if (!ids) return FailParam(is_chat ? "messages" : "prompt", "{}", ids.error().message);
  std::string reply;
  JsonWriter writer(&reply);
  writer.BeginObject();
  writer.Key("count").Uint(ids->size());
  writer.Key("max_model_len").Int(model.limits.max_model_len);
  writer.Key("tokens").BeginArray();
  for (const TokenId id : *ids) writer.Int(id.value());
  writer.EndArray();
  writer.Key("token_strs");
  if (request.return_token_strs) {
    writer.BeginArray();
    for (const TokenId id : *ids) writer.String(model.tokenizer->TokenText(id));
    writer.EndArray();
  } else {
    writer.Null();
  }
  writer.EndObject();
  return reply;
}

Result<std::string> Detokenize(const json::value& body, const ModelContext& model) {
  if (!body.is_object()) return FailParam("", "the request body must be a JSON object, got {}", Preview(body));
  const json::object& members = body.get_object();
  DetokenizeRequest request;
  std::vector<std::string_view> unknown;
  QUIRE_TRY_VOID(ReadFields<DetokenizeRequest>(members, "", kDetokenizeTable, &request, &unknown));
  QUIRE_TRY_VOID(CheckModelName(request.model, model));
  const json::value* tokens = members.if_contains("tokens");
  if (tokens == nullptr || tokens->is_null()) return FailParam("tokens", "tokens is required");
  QUIRE_TRY(const std::vector<TokenId> ids, ReadTokenIds(*tokens, "tokens", kNoLimit, model.limits.vocab_size));
  std::string reply;
  JsonWriter writer(&reply);
  writer.BeginObject();
  writer.Key("prompt").String(model.tokenizer->Decode(ids, /*skip_special_tokens=*/false));
  writer.EndObject();
  return reply;
}

}  // namespace quire::server
