// Byte-pair encoding: cuts one word (a piece that the pre-tokenizer made) into tokens of the vocabulary by
// applying merges in order of their rank. The same machine serves byte-level BPE (GPT-2 and its kind), BPE
// over characters with byte fallback (Llama 2, Gemma) and SentencePiece's score-based BPE, whose scores
// become ranks. Immutable after construction.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong_id.h"
#include "text/vocabulary.h"

namespace quire::text {

// Two neighbours that become one token; the smallest rank is merged first, of equal ranks the leftmost pair.
struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
  std::uint32_t rank = 0;
};

struct BpeOptions {
  std::vector<Merge> merges;       // of two with the same pair the later one counts
  bool ignore_merges = false;      // a word that is an entry is that token, whatever the merges say
  bool fuse_unknown = false;       // neighbouring unknown characters are one unknown token
  std::optional<TokenId> unknown;  // without it unknown characters are dropped
  // The tokens for single bytes ("<0x0A>") of characters that are not in the vocabulary; −1: there is none.
  bool byte_fallback = false;
  std::array<std::int32_t, 256> byte_tokens = {};
  std::string continuing_subword_prefix, end_of_word_suffix;
};

class BpeModel {
 public:
  // Room that Encode works in; one for each thread, kept between words so that nothing is allocated for each.
  struct Scratch {
    struct Candidate {
      std::uint32_t rank = 0, position = 0;
      std::int32_t result = 0;
    };
    std::vector<std::int32_t> symbols;
    std::vector<std::uint32_t> previous, next;  // a linked list over `symbols`, for long words
    std::vector<Candidate> heap;
  };

  // `vocabulary` outlives the model. `words_are_bytes`: words come as raw bytes, which the vocabulary writes
  // in the byte alphabet; CanTakeBytes() must hold.
  BpeModel(const Vocabulary* vocabulary, BpeOptions options, bool words_are_bytes);

  // Whether every byte has an entry of its own and no option looks at a word's characters, so that the detour
  // over the byte alphabet can be left out.
  static bool CanTakeBytes(const Vocabulary& vocabulary, const BpeOptions& options);

  void Encode(std::string_view word, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  // A merge by its pair, in an open-addressing table.
  struct Slot {
    std::uint64_t pair = kNoPair;
    std::uint32_t rank = 0;
    std::int32_t result = 0;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  void BuildMergeTable();
  void FindWholeWords();
  void FindCharactersBeforeSpaceMarks();
  std::size_t FirstPart(std::string_view word) const;
  const Slot* FindMerge(std::int32_t left, std::int32_t right) const;
  std::optional<TokenId> FindWord(std::string_view word) const;
  void EncodeChunk(std::string_view chunk, Scratch* scratch, std::vector<TokenId>* out) const;
  void AppendSymbols(std::string_view chunk, std::vector<std::int32_t>* symbols) const;
  std::int32_t FindSymbol(std::string_view character, bool first, bool last) const;
  void MergeShort(std::vector<std::int32_t>* symbols) const;
  void MergeLong(Scratch* scratch) const;

  const Vocabulary* vocabulary_;
  BpeOptions options_;
  bool words_are_bytes_;
  bool splits_before_space_mark_ = false;
  std::vector<std::uint32_t> joins_space_mark_;  // characters that entries have right before a space mark
  std::vector<Slot> merges_;
  std::array<std::int32_t, 256> byte_symbols_ = {};   // words_are_bytes_: the entry of each byte
  std::array<std::int32_t, 128> ascii_symbols_ = {};  // otherwise: the entry of each ASCII character, or −1
  Vocabulary byte_words_;                             // words_are_bytes_: the entries as raw bytes
  std::vector<std::uint8_t> is_whole_;                // by id: the merges make this entry out of its own text
};

}  // namespace quire::text
