#include "text/stream_decoder.h"

#include <utility>

#include "base/utf8.h"

namespace quire::text {

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, std::span<const TokenId> prompt, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {
  // A character has at most 4 bytes, so the last 4 bytes of the prompt tell whether it ends inside one.
  std::string tail;
  for (std::size_t i = prompt.size(); i > 0 && tail.size() < 4; --i) {
    const TokenId id = prompt[i - 1];
    if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) continue;
    tail.insert(0, tokenizer_->TokenBytes(id));
  }
  at_start_ = tail.empty();
  prompt_bytes_ = IncompleteUtf8Tail(tail);
  pending_ = tail.substr(tail.size() - prompt_bytes_);
}

std::string StreamDecoder::Push(TokenId id) {
  if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) return {};
  std::string bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return {};
  if (std::exchange(at_start_, false)) bytes = tokenizer_->FirstTokenBytes(id);
  std::string shown;
  Append(bytes, &shown);
  return shown;
}

void StreamDecoder::Append(std::string_view bytes, std::string* shown) {
  pending_.append(bytes);
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Char character = DecodeUtf8(rest);
    if (character.truncated) break;
    if (prompt_bytes_ > 0) {
      // The character that the prompt began: whole now, or broken off where the prompt's bytes end.
      prompt_bytes_ = 0;
    } else if (character.valid) {
      shown->append(rest.substr(0, character.size));
    } else {
      AppendUtf8(kReplacementCharacter, shown);
    }
    rest.remove_prefix(character.size);
  }
  pending_.erase(0, pending_.size() - rest.size());
}

std::string StreamDecoder::Finish() {
  std::string shown;
  if (pending_.size() > prompt_bytes_ && prompt_bytes_ == 0) AppendUtf8(kReplacementCharacter, &shown);
  pending_.clear();
  prompt_bytes_ = 0;
  return shown;
}

}  // namespace quire::text
