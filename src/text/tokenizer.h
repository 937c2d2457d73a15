// Text to token ids and back, exactly as the model's reference tokenizer does. Immutable after construction;
// shared between threads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/gguf_vocabulary.h"
#include "base/result.h"
#include "base/strong_id.h"

namespace quire::text {

struct EncodeOptions {
  bool add_special_tokens = true;    // the BOS / EOS that the tokenizer's post-processor adds
  bool parse_special_tokens = true;  // "<|im_end|>" in the text becomes that token (special tokens only: ordinary
                                     // added tokens are always found); false for text that must stay text
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Invalid UTF-8 is replaced (U+FFFD) before encoding, as the reference does. kOutOfRange: the text is
  // larger than 256 MiB, or a regular expression of the tokenizer's file needs more than its limit of steps
  // on this text.
  virtual Result<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const = 0;

  // The whole text of a sequence of ids, as the reference decodes it. May hold invalid UTF-8 only where the
  // bytes of the tokens do; callers that need text sanitise it. Ids outside the vocabulary are skipped.
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;

  // The bytes that this token adds in the middle of a text ("" for special tokens when they are skipped).
  // Byte-level and byte-fallback tokens give single bytes; concatenation over a sequence equals Decode, but
  // for what a decoder strips at the start of the text (see FirstTokenBytes).
  virtual std::string TokenBytes(TokenId id) const = 0;
  // SentencePiece-style decoders drop one space before the first token of a text.
  virtual bool StripsLeadingSpace() const = 0;
  // What the token adds when no token with bytes stands before it: some decoders drop more than one space.
  virtual std::string FirstTokenBytes(TokenId id) const {
    std::string bytes = TokenBytes(id);
    if (StripsLeadingSpace() && bytes.starts_with(' ')) bytes.erase(0, 1);
    return bytes;
  }

  // The entry as it stands in the vocabulary ("Ġhello", "▁hello", "<0x0A>").
  virtual std::string_view TokenText(TokenId id) const = 0;
  virtual std::optional<TokenId> FindToken(std::string_view token_text) const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;
  // One more than the largest id; the model's embedding may have more rows.
  virtual int vocab_size() const = 0;
};

// From the text of a Hugging Face tokenizer.json. `name` stands in errors.
Result<std::unique_ptr<Tokenizer>> LoadTokenizerJson(std::string_view json_text, std::string_view name);

// From a SentencePiece `.model` (protobuf) file's bytes; `config` as in tokenizer_config.json.
struct SentencePieceOptions {
  bool add_bos = true, add_eos = false;
};
Result<std::unique_ptr<Tokenizer>> LoadSentencePiece(std::string_view bytes, std::string_view name,
                                                     const SentencePieceOptions& options);

// From the vocabulary of a GGUF file. `name` stands in errors.
Result<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(GgufVocabulary vocabulary, std::string_view name);

}  // namespace quire::text
