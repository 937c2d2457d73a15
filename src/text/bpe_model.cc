#include "text/bpe_model.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"

namespace quire::text {
namespace {

// The mark that SentencePiece writes for a space.
constexpr std::string_view kSpaceMark = "\u2581";

// Up to this many symbols, looking at all pairs for the best one is quicker than keeping a heap.
constexpr std::size_t kShortWord = 40;
constexpr std::uint32_t kNowhere = UINT32_MAX;

// More characters that may stand before a space mark in an entry than this, and looking for them does not pay.
constexpr std::size_t kJoiningCharactersMax = 16;

std::uint64_t PairKey(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t HashPair(std::uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: spreads neighbouring ids over the high bits
  return static_cast<std::size_t>(pair >> 32 ^ pair >> 15);
}

std::string_view FirstCharacter(std::string_view text) {
  return text.substr(0, DecodeUtf8(text).size);
}

// The last character of a text that is not empty.
std::uint32_t LastCharacter(std::string_view text) {
  std::size_t i = text.size() - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return DecodeUtf8(text.substr(i)).code_point;
}

// The offset of the first space mark in `text`, from `begin` on, that stands behind something else, or the size of
// `text`.
std::size_t NextSpaceMark(std::string_view text, std::size_t begin) {
  while (text.substr(begin).starts_with(kSpaceMark)) begin += kSpaceMark.size();
  return std::min(text.find(kSpaceMark, begin), text.size());
}

}  // namespace

BpeModel::BpeModel(const Vocabulary* vocabulary, BpeOptions options, bool words_are_bytes)
    : vocabulary_(vocabulary), options_(std::move(options)), words_are_bytes_(words_are_bytes) {
  BuildMergeTable();
  for (std::size_t c = 0; c < ascii_symbols_.size(); ++c) {
    const char character = static_cast<char>(c);
    const std::optional<TokenId> id = vocabulary_->Find(std::string_view(&character, 1));
    ascii_symbols_[c] = id.has_value() ? id->value() : -1;
  }
  if (words_are_bytes_) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      std::string character;
      AppendUtf8(kByteToCodePoint[byte], &character);
      const std::optional<TokenId> id = vocabulary_->Find(character);
      CHECK(id.has_value());
      byte_symbols_[byte] = id->value();
    }
  } else {
    FindCharactersBeforeSpaceMarks();
  }
  FindWholeWords();
  options_.merges = {};  // the table holds them
}

bool BpeModel::CanTakeBytes(const Vocabulary& vocabulary, const BpeOptions& options) {
  if (!options.continuing_subword_prefix.empty() || !options.end_of_word_suffix.empty()) return false;
  return std::ranges::all_of(kByteToCodePoint, [&](std::uint32_t code_point) {
    std::string character;
    AppendUtf8(code_point, &character);
    return vocabulary.Find(character).has_value();
  });
}

void BpeModel::BuildMergeTable() {
  merges_.resize(std::bit_ceil(2 * options_.merges.size() + 2));
  for (const Merge& merge : options_.merges) {
    const std::uint64_t pair = PairKey(merge.left, merge.right);
    std::size_t i = HashPair(pair) & (merges_.size() - 1);
    while (merges_[i].pair != kNoPair && merges_[i].pair != pair) i = (i + 1) & (merges_.size() - 1);
    merges_[i] = {.pair = pair, .rank = merge.rank, .result = merge.result};
  }
}

// Words of SentencePiece-style models are whole texts. No merge can cross the border between a character and a space
// mark behind it unless some merge makes an entry in which the two are neighbours. Between borders that no merge can
// cross each part can be encoded by itself: shorter words, and most of them are entries.
void BpeModel::FindCharactersBeforeSpaceMarks() {
  if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty()) return;
  if (!vocabulary_->Find(kSpaceMark).has_value()) return;
  for (const Merge& merge : options_.merges) {
    // Tokens that stand for other characters than those of their text would need a closer look.
    const bool stands_for_another = std::ranges::find(options_.byte_tokens, merge.left) != options_.byte_tokens.end() ||
                                    (options_.unknown.has_value() && options_.unknown->value() == merge.left);
    if (options_.byte_fallback && stands_for_another) return;
    const std::string_view text = vocabulary_->Text(TokenId(merge.result));
    for (std::size_t at = NextSpaceMark(text, 0); at < text.size(); at = NextSpaceMark(text, at)) {
      const std::uint32_t before = LastCharacter(text.substr(0, at));
      if (std::ranges::find(joins_space_mark_, before) == joins_space_mark_.end()) joins_space_mark_.push_back(before);
    }
    if (joins_space_mark_.size() > kJoiningCharactersMax) return;
  }
  splits_before_space_mark_ = true;
}

// The size of the first part of `word`; the parts are encoded by themselves.
std::size_t BpeModel::FirstPart(std::string_view word) const {
  std::size_t at = NextSpaceMark(word, 0);
  while (at < word.size() &&
         std::ranges::find(joins_space_mark_, LastCharacter(word.substr(0, at))) != joins_space_mark_.end()) {
    at = NextSpaceMark(word, at);
  }
  return at;
}

void BpeModel::FindWholeWords() {
  const int size = vocabulary_->size();
  is_whole_.assign(static_cast<std::size_t>(size), 0);
  if (words_are_bytes_) byte_words_.Reserve(vocabulary_->count(), 8 * vocabulary_->count());
  // A word with a prefix or a suffix on its characters is never the text of an entry as it stands.
  if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty()) return;
  Scratch scratch;
  std::vector<TokenId> ids;
  std::string bytes;
  for (std::int32_t i = 0; i < size; ++i) {
    std::string_view text = vocabulary_->Text(TokenId(i));
    if (text.empty()) continue;
    if (words_are_bytes_) {
      bytes.clear();
      if (!AppendFromByteAlphabet(text, &bytes)) continue;
      // The alphabet is one to one, so that neither a text nor an id can stand twice.
      CHECK(byte_words_.Add(i, bytes, "vocabulary").has_value());
      text = bytes;
    }
    ids.clear();
    EncodeChunk(text, &scratch, &ids);
    is_whole_[static_cast<std::size_t>(i)] = ids.size() == 1 && ids[0] == TokenId(i);
  }
}

const BpeModel::Slot* BpeModel::FindMerge(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = PairKey(left, right);
  for (std::size_t i = HashPair(pair) & (merges_.size() - 1);; i = (i + 1) & (merges_.size() - 1)) {
    if (merges_[i].pair == pair) return &merges_[i];
    if (merges_[i].pair == kNoPair) return nullptr;
  }
}

std::optional<TokenId> BpeModel::FindWord(std::string_view word) const {
  const Vocabulary& words = words_are_bytes_ ? byte_words_ : *vocabulary_;
  if (word.size() > words.longest_entry_bytes()) return std::nullopt;
  return words.Find(word);
}

void BpeModel::Encode(std::string_view word, Scratch* scratch, std::vector<TokenId>* out) const {
  if (options_.ignore_merges) {
    if (const std::optional<TokenId> id = FindWord(word)) return out->push_back(*id);
  }
  if (!splits_before_space_mark_) return EncodeChunk(word, scratch, out);
  while (!word.empty()) {
    const std::size_t size = FirstPart(word);
    EncodeChunk(word.substr(0, size), scratch, out);
    word.remove_prefix(size);
  }
}

void BpeModel::EncodeChunk(std::string_view chunk, Scratch* scratch, std::vector<TokenId>* out) const {
  if (const std::optional<TokenId> id = FindWord(chunk)) {
    if (is_whole_[static_cast<std::size_t>(id->value())] != 0) return out->push_back(*id);
  }
  std::vector<std::int32_t>& symbols = scratch->symbols;
  symbols.clear();
  AppendSymbols(chunk, &symbols);
  if (symbols.size() <= kShortWord) {
    MergeShort(&symbols);
  } else {
    MergeLong(scratch);
  }
  for (const std::int32_t symbol : symbols) out->push_back(TokenId(symbol));
}

std::int32_t BpeModel::FindSymbol(std::string_view character, bool first, bool last) const {
  const bool plain =
      (first || options_.continuing_subword_prefix.empty()) && (!last || options_.end_of_word_suffix.empty());
  // A single byte may also be a part of an entry that is not UTF-8.
  if (plain && static_cast<unsigned char>(character[0]) < 0x80) {
    return ascii_symbols_[static_cast<unsigned char>(character[0])];
  }
  std::optional<TokenId> id;
  if (plain) {
    id = vocabulary_->Find(character);
  } else {
    std::string text = first ? std::string() : options_.continuing_subword_prefix;
    text.append(character);
    if (last) text.append(options_.end_of_word_suffix);
    id = vocabulary_->Find(text);
  }
  return id.has_value() ? id->value() : -1;
}

void BpeModel::AppendSymbols(std::string_view chunk, std::vector<std::int32_t>* symbols) const {
  if (words_are_bytes_) {
    for (const char c : chunk) symbols->push_back(byte_symbols_[static_cast<unsigned char>(c)]);
    return;
  }
  bool unknown_waits = false;  // an unknown token that later unknown characters may join
  for (bool first = true; !chunk.empty(); first = false) {
    const std::string_view character = FirstCharacter(chunk);
    chunk.remove_prefix(character.size());
    const std::int32_t symbol = FindSymbol(character, first, chunk.empty());
    if (symbol >= 0) {
      if (std::exchange(unknown_waits, false)) symbols->push_back(options_.unknown->value());
      symbols->push_back(symbol);
      continue;
    }
    if (options_.byte_fallback) {
      // The reference falls back on the bytes with the prefix and the suffix; such models have no byte
      // tokens.
      const auto byte_token = [&](char c) { return options_.byte_tokens[static_cast<unsigned char>(c)]; };
      if (std::ranges::all_of(character, [&](char c) { return byte_token(c) >= 0; })) {
        for (const char c : character) symbols->push_back(byte_token(c));
        continue;
      }
    }
    if (!options_.unknown.has_value()) continue;
    if (unknown_waits && !options_.fuse_unknown) symbols->push_back(options_.unknown->value());
    unknown_waits = true;
  }
  if (unknown_waits) symbols->push_back(options_.unknown->value());
}

void BpeModel::MergeShort(std::vector<std::int32_t>* symbols) const {
  std::size_t size = symbols->size();
  if (size < 2) return;
  // ranks[i] and results[i] are of the merge of symbols i and i + 1; kNowhere: they do not merge.
  std::array<std::uint32_t, kShortWord> ranks;
  std::array<std::int32_t, kShortWord> results;
  std::int32_t* const s = symbols->data();
  const auto look_up = [&](std::size_t i) {
    const Slot* merge = FindMerge(s[i], s[i + 1]);
    ranks[i] = merge == nullptr ? kNowhere : merge->rank;
    results[i] = merge == nullptr ? 0 : merge->result;
  };
  for (std::size_t i = 0; i + 1 < size; ++i) look_up(i);
  while (size >= 2) {
    // The smallest rank in one pass and its first place in another: both are loops that become vector code.
    std::uint32_t best = kNowhere;
    for (std::size_t i = 0; i + 1 < size; ++i) best = std::min(best, ranks[i]);
    if (best == kNowhere) break;
    std::size_t at = 0;
    while (ranks[at] != best) ++at;
    s[at] = results[at];
    for (std::size_t i = at + 1; i + 1 < size; ++i) s[i] = s[i + 1];
    for (std::size_t i = at + 1; i + 2 < size; ++i) {
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --size;
    if (at > 0) look_up(at - 1);
    if (at + 1 < size) look_up(at);
  }
  symbols->resize(size);
}

void BpeModel::MergeLong(Scratch* scratch) const {
  std::vector<std::int32_t>& symbols = scratch->symbols;
  const auto size = static_cast<std::uint32_t>(symbols.size());
  scratch->previous.resize(size);
  scratch->next.resize(size);
  std::vector<Scratch::Candidate>& heap = scratch->heap;
  heap.clear();
  // The heap's top is the smallest rank, then the leftmost position.
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return std::pair(a.rank, a.position) > std::pair(b.rank, b.position);
  };
  const auto candidate = [&](std::uint32_t position) -> const Slot* {
    const std::uint32_t next = scratch->next[position];
    return next == kNowhere ? nullptr : FindMerge(symbols[position], symbols[next]);
  };
  for (std::uint32_t i = 0; i < size; ++i) {
    scratch->previous[i] = i == 0 ? kNowhere : i - 1;
    scratch->next[i] = i + 1 == size ? kNowhere : i + 1;
  }
  for (std::uint32_t i = 0; i < size; ++i) {
    if (const Slot* merge = candidate(i)) heap.push_back({merge->rank, i, merge->result});
  }
  std::ranges::make_heap(heap, later);
  const auto push = [&](std::uint32_t position) {
    if (const Slot* merge = candidate(position)) {
      heap.push_back({merge->rank, position, merge->result});
      std::ranges::push_heap(heap, later);
    }
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    // Entries are not taken out of the heap when their symbols change; they are found out of date here.
    if (symbols[top.position] < 0) continue;
    const Slot* merge = candidate(top.position);
    if (merge == nullptr || merge->result != top.result || merge->rank != top.rank) continue;
    const std::uint32_t gone = scratch->next[top.position];
    symbols[top.position] = top.result;
    symbols[gone] = -1;
    scratch->next[top.position] = scratch->next[gone];
    if (scratch->next[gone] != kNowhere) scratch->previous[scratch->next[gone]] = top.position;
    if (scratch->previous[top.position] != kNowhere) push(scratch->previous[top.position]);
    push(top.position);
  }
  std::erase_if(symbols, [](std::int32_t symbol) { return symbol < 0; });
}

}  // namespace quire::text
