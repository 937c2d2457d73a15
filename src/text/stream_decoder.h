// Token ids to text as they come, for one choice. The concatenation of everything that Push and Finish return
// equals the text of the whole sequence, each piece is valid UTF-8, and no piece ends inside a character:
// bytes that do not yet make a character wait. Bytes that can never make one become U+FFFD. Belongs to one
// thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/strong_id.h"
#include "text/tokenizer.h"

namespace quire::text {

class StreamDecoder {
 public:
  // `prompt` is what stands before the output: it decides whether the first piece is at the start of a text.
  // A prompt of ids may end inside a character; output bytes that complete this character are swallowed,
  // because the character began before the output, and if they do not complete it the prompt's bytes vanish:
  // nothing of a prompt is shown.
  StreamDecoder(const Tokenizer* tokenizer, std::span<const TokenId> prompt, bool skip_special_tokens);

  std::string Push(TokenId id);
  // What waits, as U+FFFD if it is not a whole character.
  std::string Finish();

 private:
  void Append(std::string_view bytes, std::string* shown);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  bool at_start_ = true;          // no token with bytes yet: what a decoder strips at the start is stripped
  std::string pending_;           // an incomplete character
  std::size_t prompt_bytes_ = 0;  // how many bytes of `pending_` are the prompt's: all, or those that come first
};

}  // namespace quire::text
