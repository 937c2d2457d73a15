#include "bench/load/answer_meter.h"

#include <algorithm>

namespace quire::bench::load {
namespace {

constexpr std::size_t kQuotedMax = 200;

const json::object* FindObject(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

// A text that is there and not empty.
bool HasText(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() && !value->get_string().empty();
}

bool IsSet(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && !value->is_null();
}

void TakeCount(const json::object& object, std::string_view key, int* count) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_int64()) return;
  *count = static_cast<int>(std::clamp<std::int64_t>(value->get_int64(), 0, 1 << 30));
}

std::string Quoted(std::string_view text) {
  return std::string(text.substr(0, kQuotedMax)) + (text.size() > kQuotedMax ? "…" : "");
}

// {"message": …} or a text.
std::string ErrorText(const json::value& error) {
  if (error.is_object() && HasText(error.get_object(), "message")) {
    const json::string& message = error.get_object().at("message").get_string();
    return Quoted({message.data(), message.size()});
  }
  return Quoted(ToJson(error));
}

}  // namespace

Result<> AnswerMeter::Take(std::string_view data, double now_seconds) {
  if (data == "[DONE]") {
    is_done_ = true;
    return {};
  }
  const Result<json::value> value = ParseJson(data, "an event");
  if (!value) return std::unexpected(value.error());
  if (!value->is_object()) return Fail(ErrorCode::kCorrupt, "an event is no JSON object: {}", Quoted(data));
  const json::object& event = value->get_object();
  if (IsSet(event, "error")) return Fail(ErrorCode::kInternal, "the stream says: {}", ErrorText(event.at("error")));
  if (const json::object* usage = FindObject(event, "usage")) TakeUsage(*usage);
  const json::value* choices = event.if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return {};
  const json::value& choice = choices->get_array().front();
  if (!choice.is_object()) return Fail(ErrorCode::kCorrupt, "a choice is no JSON object: {}", Quoted(data));
  TakeChoice(choice.get_object(), now_seconds);
  return {};
}

void AnswerMeter::TakeChoice(const json::object& choice, double now_seconds) {
  const json::object* delta = is_chat_ ? FindObject(choice, "delta") : nullptr;
  const bool has_text = delta == nullptr ? HasText(choice, "text")
                                         : HasText(*delta, "content") || HasText(*delta, "reasoning_content") ||
                                               HasText(*delta, "reasoning") || IsSet(*delta, "tool_calls");
  const bool is_end = IsSet(choice, "finish_reason");
  is_finished_ = is_finished_ || is_end;
  const bool names_role_only = delta != nullptr && delta->contains("role") && !has_text && !is_end;
  if (names_role_only) return;
  if (num_chunks_ == 0) {
    outcome_->ttft_seconds = now_seconds;
  } else {
    outcome_->itl_seconds.push_back(now_seconds - outcome_->latency_seconds);
  }
  outcome_->latency_seconds = now_seconds;
  ++num_chunks_;
  if (has_text) ++num_texts_;
}

void AnswerMeter::TakeUsage(const json::object& usage) {
  outcome_->has_usage = true;
  TakeCount(usage, "prompt_tokens", &outcome_->num_prompt_tokens);
  TakeCount(usage, "completion_tokens", &outcome_->num_output_tokens);
  if (const json::object* details = FindObject(usage, "prompt_tokens_details")) {
    TakeCount(*details, "cached_tokens", &outcome_->num_cached_tokens);
  }
}

Result<> AnswerMeter::Finish() {
  if (num_chunks_ == 0) return Fail(ErrorCode::kCorrupt, "the answer held no chunk with a choice");
  if (!is_done_ && !is_finished_) return Fail(ErrorCode::kCorrupt, "the stream ended in the middle of the answer");
  if (!outcome_->has_usage || outcome_->num_output_tokens == 0) outcome_->num_output_tokens = num_texts_;
  return {};
}

}  // namespace quire::bench::load
