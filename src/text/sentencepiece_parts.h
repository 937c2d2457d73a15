// SentencePiece's BPE, from whichever file it comes (a `.model` file or a GGUF file's "llama" vocabulary).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/pipeline_tokenizer.h"

namespace quire::text {

// The types of pieces; SentencePiece and GGUF number them alike.
enum class PieceType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct SentencePieceVocabulary {
  std::vector<std::string> pieces;
  std::vector<float> scores;     // [pieces]
  std::vector<PieceType> types;  // [pieces]
  std::optional<std::int64_t> bos_id, eos_id, unknown_id;
  bool add_bos = true, add_eos = false;
  bool add_dummy_prefix = true;  // a space before every stretch of ordinary text
  bool remove_extra_whitespaces = false;
  bool escape_whitespaces = true;  // a space is written as U+2581
};

// Checks ids against the vocabulary. `name` stands in errors.
Result<TokenId> CheckedTokenId(std::int64_t id, const Vocabulary& vocabulary, std::string_view what,
                               std::string_view name);

// Pairs are merged in order of the score of the piece that they make, of equal scores the leftmost.
Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(const SentencePieceVocabulary& vocabulary,
                                                              std::string_view name);

}  // namespace quire::text
