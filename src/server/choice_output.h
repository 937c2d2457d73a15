// The output of one choice: token ids come in, text that may be shown comes out. The result does not depend
// on how the tokens are grouped into events, and what a stream shows in pieces is what the whole text is.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "api/events.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace quire::server {

struct OutputToken {
  TokenId id;
  std::size_t text_offset = 0;  // where its text begins, in code points of the choice's text (with the echo)
  bool is_prompt = false;       // of the echo
  std::optional<PositionLogprobs> logprobs;
};

// Why a choice ended, besides its FinishReason: nothing for EOS, the stop string, or the stop token.
using StopReason = std::variant<std::monostate, std::string, TokenId>;

struct ChoiceOptions {
  const text::Tokenizer* tokenizer = nullptr;
  std::vector<std::string> stops;
  bool include_stop = false;
  bool skip_special_tokens = true;
  int min_tokens = 0;           // no stop string ends within the text of the first so many tokens
  bool keep_tokens = false;     // TakeTokens is wanted
  std::size_t text_offset = 0;  // code points of the echo
};

class ChoiceOutput {
 public:
  ChoiceOutput(const ChoiceOptions& options, std::span<const TokenId> prompt);

  // What comes after the end of the choice is ignored.
  void Push(const EngineEvent& event);

  // kNone while it goes on. A stop string, which is then the stop reason, ends a choice before the engine knows.
  FinishReason finish_reason() const { return finish_reason_; }
  const StopReason& stop_reason() const { return stop_reason_; }
  int num_tokens() const { return num_tokens_; }

  bool has_text() const { return !text_.empty(); }
  // What is new since the last call. Tokens whose text is held back come with that text, or at the end.
  std::string TakeText() { return std::exchange(text_, {}); }
  std::vector<OutputToken> TakeTokens() { return std::exchange(tokens_, {}); }

 private:
  void PushText(const std::string& piece);

  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
  const bool include_stop_, keep_tokens_;
  const int min_tokens_;
  int num_tokens_ = 0;
  std::size_t text_offset_;
  std::string text_;  // shown by the matcher, not yet taken
  std::vector<OutputToken> tokens_;
  FinishReason finish_reason_ = FinishReason::kNone;
  StopReason stop_reason_;
};

std::size_t CountCodePoints(std::string_view utf8);

}  // namespace quire::server
