// Token ids to text as they come, for one choice. The concatenation of everything that Push and Finish return equals
// the text of the whole sequence, each piece is valid UTF-8, and no piece ends inside a character: bytes that do not
// yet make a character wait. Bytes that can never make one become U+FFFD.
#pragma once

#include <span>
#include <string>

#include "base/strong_id.h"
#include "text/tokenizer.h"

namespace quire::text {

class StreamDecoder {
 public:
  // `prompt` is what stands before the output: it decides whether the first piece is at the start of a text, and its
  // dangling bytes (a prompt of ids may end inside a character) are completed or replaced, never shown.
  StreamDecoder(const Tokenizer* tokenizer, std::span<const TokenId> prompt, bool skip_special_tokens);

  std::string Push(TokenId id);
  // What waits, as U+FFFD if it is not a whole character.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  bool at_start_;        // nothing visible yet: a SentencePiece space is dropped
  std::string pending_;  // an incomplete character
  bool pending_is_prompt_ = false;
};

}  // namespace quire::text
