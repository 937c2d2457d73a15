#include "server/choice_output.h"

#include <algorithm>

namespace quire::server {

std::size_t CountCodePoints(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

ChoiceOutput::ChoiceOutput(const ChoiceOptions& options, std::span<const TokenId> prompt)
    : decoder_(options.tokenizer, prompt, options.skip_special_tokens),
      matcher_(options.stops, options.include_stop),
      include_stop_(options.include_stop),
      keep_tokens_(options.keep_tokens),
      min_tokens_(options.min_tokens),
      text_offset_(options.text_offset) {}

void ChoiceOutput::PushText(const std::string& piece) {
  text_offset_ += CountCodePoints(piece);
  text_ += num_tokens_ > min_tokens_ ? matcher_.Push(piece) : matcher_.PushWithoutMatch(piece);
}

void ChoiceOutput::Push(const EngineEvent& event) {
  if (finish_reason_ != FinishReason::kNone) return;
  for (std::size_t i = 0; i < event.tokens.size(); ++i) {
    const TokenId id = event.tokens[i];
    const bool is_last = i + 1 == event.tokens.size();
    const bool is_stop_token = is_last && event.finish_reason == FinishReason::kStop && !event.ended_by_text;
    ++num_tokens_;
    if (keep_tokens_) {
      OutputToken& token = tokens_.emplace_back(OutputToken{.id = id, .text_offset = text_offset_, .logprobs = {}});
      if (i < event.logprobs.size()) token.logprobs = event.logprobs[i];
    }
    // The token that ended the choice is counted, but its text is no part of the answer unless that is asked
    // for.
    if (!is_stop_token || include_stop_) PushText(decoder_.Push(id));
    if (matcher_.matched()) break;
  }
  if (event.finish_reason != FinishReason::kNone && !matcher_.matched()) {
    PushText(decoder_.Finish());
    if (!matcher_.matched()) text_ += matcher_.Finish();
    finish_reason_ = event.finish_reason;
    if (event.stop_token) stop_reason_ = *event.stop_token;
  }
  if (matcher_.matched()) {
    // A stop string wins over a length that was reached with the same token.
    finish_reason_ = FinishReason::kStop;
    stop_reason_ = *matcher_.matched();
  }
}

}  // namespace quire::server
