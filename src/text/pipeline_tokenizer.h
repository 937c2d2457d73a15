// The one implementation of Tokenizer. Text goes through added tokens (before normalisation), the normalizer,
// added tokens (after it), the pre-tokenizer and the model; the loaders (tokenizer.json, GGUF, SentencePiece)
// differ only in the parts that they build it from. Immutable after construction.
#pragma once

#include <memory>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace quire::text {

struct TokenizerParts {
  std::unique_ptr<Vocabulary> vocabulary;  // of the model
  BpeOptions bpe;
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder{{}};
  // What the post-processor puts before and behind a text.
  std::vector<TokenId> prefix, suffix;
};

// `name` stands in errors.
Result<std::unique_ptr<Tokenizer>> MakePipelineTokenizer(TokenizerParts parts, std::string_view name);

}  // namespace quire::text
