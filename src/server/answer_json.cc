#include "server/answer_json.h"

#include "server/logprobs_json.h"

namespace quire::server {
namespace {

std::string_view FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    // These never reach a choice that is written: they become error objects.
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kShed:
      return "shed";
  }
  return "";
}

void WriteUsage(JsonWriter* writer, const Usage& usage) {
  writer->BeginObject();
  writer->Key("prompt_tokens").Int(usage.prompt_tokens);
  writer->Key("completion_tokens").Int(usage.completion_tokens);
  writer->Key("total_tokens").Int(usage.prompt_tokens + usage.completion_tokens);
  writer->Key("prompt_tokens_details").BeginObject().Key("cached_tokens").Int(usage.cached_tokens).EndObject();
  writer->EndObject();
}

}  // namespace

void AnswerJson::BeginObject(JsonWriter* writer, std::string_view object) const {
  writer->BeginObject();
  writer->Key("id").String(spec_->id);
  writer->Key("object").String(object);
  writer->Key("created").Int(spec_->created);
  writer->Key("model").String(spec_->model);
  writer->Key("system_fingerprint").String(spec_->system_fingerprint);
}

void AnswerJson::WriteChunkUsage(JsonWriter* writer, const std::optional<Usage>& usage) const {
  if (!spec_->include_usage) return;
  writer->Key("usage");
  usage ? WriteUsage(writer, *usage) : void(writer->Null());
}

void AnswerJson::WriteTokenIds(JsonWriter* writer, std::string_view key, std::span<const TokenId> ids) const {
  writer->Key(key).BeginArray();
  for (const TokenId id : ids) writer->Int(id.value());
  writer->EndArray();
}

void AnswerJson::WriteFinish(JsonWriter* writer, const ChoiceView& choice) const {
  writer->Key("finish_reason");
  if (choice.finish_reason == FinishReason::kNone) {
    writer->Null();
    return;
  }
  writer->String(FinishName(choice.finish_reason));
  writer->Key("stop_reason");
  if (choice.stop_reason == nullptr || std::holds_alternative<std::monostate>(*choice.stop_reason)) {
    writer->Null();
  } else if (const auto* text = std::get_if<std::string>(choice.stop_reason)) {
    writer->String(*text);
  } else {
    writer->Int(std::get<TokenId>(*choice.stop_reason).value());
  }
}

void AnswerJson::WriteChoice(JsonWriter* writer, const ChoiceView& choice, bool is_chunk) const {
  const LogprobStyle style{.tokenizer = tokenizer_,
                           .num_top = spec_->logprobs.value_or(0),
                           .tokens_as_ids = spec_->return_tokens_as_token_ids};
  writer->BeginObject().Key("index").Int(choice.index);
  if (!spec_->is_chat) {
    writer->Key("text").String(choice.text);
  } else if (is_chunk) {
    writer->Key("delta").BeginObject();
    if (!choice.text.empty()) writer->Key("content").String(choice.text);
    writer->EndObject();
  } else {
    writer->Key("message").BeginObject();
    writer->Key("role").String("assistant");
    writer->Key("content").String(choice.text);
    writer->Key("refusal").Null();
    writer->EndObject();
  }
  writer->Key("logprobs");
  if (!spec_->logprobs || (is_chunk && choice.tokens.empty())) {
    writer->Null();
  } else if (spec_->is_chat) {
    WriteChatLogprobs(choice.tokens, style, writer);
  } else {
    WriteCompletionLogprobs(choice.tokens, style, writer);
  }
  WriteFinish(writer, choice);
  if (spec_->return_token_ids) {
    if (!spec_->is_chat && !choice.prompt_ids.empty()) WriteTokenIds(writer, "prompt_token_ids", choice.prompt_ids);
    // The echoed prompt is among the tokens of the first chunk, but not among the generated ids.
    std::vector<TokenId> ids;
    for (const OutputToken& token : choice.tokens) {
      if (!token.is_prompt) ids.push_back(token.id);
    }
    WriteTokenIds(writer, "token_ids", ids);
  }
  if (choice.prompt_logprobs != nullptr && !spec_->is_chat) {
    LogprobStyle prompt_style = style;
    prompt_style.num_top = spec_->prompt_logprobs.value_or(0);
    writer->Key("prompt_logprobs");
    WritePromptLogprobs(*choice.prompt_logprobs, prompt_style, writer);
  }
  if (choice.timings != nullptr) {
    writer->Key("timings");
    WriteTimings(*choice.timings, *arrival_, writer);
  }
  writer->EndObject();
}

std::string AnswerJson::RoleChunk(const ChoiceView& choice, const std::optional<Usage>& usage) const {
  std::string text;
  JsonWriter writer(&text);
  BeginObject(&writer, "chat.completion.chunk");
  writer.Key("choices").BeginArray().BeginObject();
  writer.Key("index").Int(choice.index);
  writer.Key("delta").BeginObject().Key("role").String("assistant").Key("content").String("").EndObject();
  writer.Key("logprobs").Null().Key("finish_reason").Null();
  writer.EndObject().EndArray();
  if (spec_->return_token_ids) WriteTokenIds(&writer, "prompt_token_ids", choice.prompt_ids);
  WriteChunkUsage(&writer, usage);
  writer.EndObject();
  return text;
}

std::string AnswerJson::Chunk(const ChoiceView& choice, const std::optional<Usage>& usage) const {
  std::string text;
  JsonWriter writer(&text);
  BeginObject(&writer, spec_->is_chat ? "chat.completion.chunk" : "text_completion");
  writer.Key("choices").BeginArray();
  WriteChoice(&writer, choice, /*is_chunk=*/true);
  writer.EndArray();
  WriteChunkUsage(&writer, usage);
  writer.EndObject();
  return text;
}

std::string AnswerJson::UsageChunk(const Usage& usage) const {
  std::string text;
  JsonWriter writer(&text);
  BeginObject(&writer, spec_->is_chat ? "chat.completion.chunk" : "text_completion");
  writer.Key("choices").BeginArray().EndArray();
  WriteChunkUsage(&writer, usage);
  writer.EndObject();
  return text;
}

std::string AnswerJson::Body(std::span<const ChoiceView> choices, const Usage& usage) const {
  std::string text;
  JsonWriter writer(&text);
  BeginObject(&writer, spec_->is_chat ? "chat.completion" : "text_completion");
  writer.Key("choices").BeginArray();
  for (const ChoiceView& choice : choices) WriteChoice(&writer, choice, /*is_chunk=*/false);
  writer.EndArray();
  writer.Key("usage");
  WriteUsage(&writer, usage);
  if (spec_->is_chat && spec_->return_token_ids) {
    WriteTokenIds(&writer, "prompt_token_ids", choices.front().prompt_ids);
  }
  if (spec_->is_chat && choices.front().prompt_logprobs != nullptr) {
    writer.Key("prompt_logprobs");
    WritePromptLogprobs(*choices.front().prompt_logprobs,
                        {.tokenizer = tokenizer_,
                         .num_top = spec_->prompt_logprobs.value_or(0),
                         .tokens_as_ids = spec_->return_tokens_as_token_ids},
                        &writer);
  }
  writer.EndObject();
  return text;
}

}  // namespace quire::server
