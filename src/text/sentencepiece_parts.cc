#include "text/sentencepiece_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/utf8.h"

namespace quire::text {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// All ways to cut all pieces in two are looked up, which costs the square of a piece's length. The largest known
// vocabulary needs 3e7; a file that asks for more than this is not a vocabulary.
constexpr std::uint64_t kSplitWorkMax = 2'000'000'000;

// rank[i]: the place of piece i in the order of falling scores; equal scores have equal ranks.
std::vector<std::uint32_t> RankByScore(const std::vector<float>& scores) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  std::vector<std::uint32_t> rank(scores.size());
  std::uint32_t current = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) current = static_cast<std::uint32_t>(i);
    rank[order[i]] = current;
  }
  return rank;
}

Result<std::vector<Merge>> MergesFromScores(const SentencePieceVocabulary& pieces, const Vocabulary& vocabulary,
                                            std::string_view name) {
  const std::vector<std::uint32_t> rank = RankByScore(pieces.scores);
  const auto is_normal = [&](std::optional<TokenId> id) {
    return id.has_value() && pieces.types[static_cast<std::size_t>(id->value())] == PieceType::kNormal;
  };
  std::vector<Merge> merges;
  std::uint64_t work = 0;
  for (std::size_t i = 0; i < pieces.pieces.size(); ++i) {
    if (pieces.types[i] != PieceType::kNormal) continue;
    const std::string_view piece = pieces.pieces[i];
    work += std::uint64_t{piece.size()} * piece.size();
    if (work > kSplitWorkMax) {
      return Fail(ErrorCode::kOutOfRange, "{}: the pieces of the vocabulary are too long (piece {} has {} bytes)", name,
                  i, piece.size());
    }
    for (std::size_t cut = DecodeUtf8(piece).size; cut < piece.size(); cut += DecodeUtf8(piece.substr(cut)).size) {
      const std::optional<TokenId> left = vocabulary.Find(piece.substr(0, cut));
      if (!is_normal(left)) continue;
      const std::optional<TokenId> right = vocabulary.Find(piece.substr(cut));
      if (!is_normal(right)) continue;
      merges.push_back({left->value(), right->value(), static_cast<std::int32_t>(i), rank[i]});
    }
  }
  return merges;
}

Result<std::vector<NormalizerStep>> NormalizerOf(const SentencePieceVocabulary& pieces, std::string_view name) {
  std::vector<NormalizerStep> steps;
  if (pieces.remove_extra_whitespaces) steps.emplace_back(CollapseSpacesStep{});
  const std::string_view space = pieces.escape_whitespaces ? kSpaceMark : std::string_view(" ");
  if (pieces.add_dummy_prefix) steps.emplace_back(PrependStep{std::string(space)});
  if (pieces.escape_whitespaces) {
    QUIRE_TRY(Pattern pattern, Pattern::Literal(" ", name));
    steps.emplace_back(ReplaceStep{std::move(pattern), std::string(space)});
  }
  return steps;
}

std::vector<TokenDecoderStep> DecoderOf(const SentencePieceVocabulary& pieces) {
  std::vector<TokenDecoderStep> steps;
  if (pieces.escape_whitespaces) steps.emplace_back(ReplaceTextStep{std::string(kSpaceMark), " "});
  steps.emplace_back(ByteFallbackStep{});
  if (pieces.add_dummy_prefix) steps.emplace_back(StripStartStep{" ", 1});
  return steps;
}

Result<std::unique_ptr<Vocabulary>> VocabularyOf(const SentencePieceVocabulary& pieces, std::string_view name) {
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->Reserve(pieces.pieces.size(), 8 * pieces.pieces.size());
  for (std::size_t i = 0; i < pieces.pieces.size(); ++i) {
    if (!std::isfinite(pieces.scores[i])) {
      return Fail(ErrorCode::kCorrupt, "{}: the score of piece {} is not a number", name, i);
    }
    if (pieces.pieces[i].empty()) continue;  // padding; such an id stands for nothing
    if (!IsValidUtf8(pieces.pieces[i])) {
      return Fail(ErrorCode::kCorrupt, "{}: piece {} is not valid UTF-8", name, i);
    }
    QUIRE_TRY_VOID(vocabulary->Add(static_cast<std::int64_t>(i), pieces.pieces[i], name));
  }
  return vocabulary;
}

}  // namespace

Result<TokenId> CheckedTokenId(std::int64_t id, const Vocabulary& vocabulary, std::string_view what,
                               std::string_view name) {
  if (id >= 0 && id < vocabulary.size()) return TokenId(static_cast<std::int32_t>(id));
  return Fail(ErrorCode::kCorrupt, "{}: {} is {}, but the vocabulary has {} entries", name, what, id,
              vocabulary.size());
}

Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(const SentencePieceVocabulary& pieces,
                                                              std::string_view name) {
  if (pieces.pieces.empty() || pieces.scores.size() != pieces.pieces.size() ||
      pieces.types.size() != pieces.pieces.size()) {
    return Fail(ErrorCode::kCorrupt, "{}: {} pieces, {} scores and {} types; there must be as many of each, and some",
                name, pieces.pieces.size(), pieces.scores.size(), pieces.types.size());
  }
  TokenizerParts parts;
  QUIRE_TRY(parts.vocabulary, VocabularyOf(pieces, name));
  const Vocabulary& vocabulary = *parts.vocabulary;

  BpeOptions& bpe = parts.bpe;
  QUIRE_TRY(bpe.merges, MergesFromScores(pieces, vocabulary, name));
  bpe.fuse_unknown = true;
  bpe.byte_fallback = true;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::optional<TokenId> id = vocabulary.Find(fmt::format("<0x{:02X}>", byte));
    bpe.byte_tokens[byte] = id.has_value() ? id->value() : -1;
  }
  if (pieces.unknown_id.has_value()) {
    QUIRE_TRY(bpe.unknown, CheckedTokenId(*pieces.unknown_id, vocabulary, "the id of the unknown token", name));
  }
  std::optional<TokenId> bos, eos;
  if (pieces.bos_id.has_value()) {
    QUIRE_TRY(bos, CheckedTokenId(*pieces.bos_id, vocabulary, "the BOS id", name));
  }
  if (pieces.eos_id.has_value()) {
    QUIRE_TRY(eos, CheckedTokenId(*pieces.eos_id, vocabulary, "the EOS id", name));
  }
  if ((pieces.add_bos && !bos.has_value()) || (pieces.add_eos && !eos.has_value())) {
    return Fail(ErrorCode::kCorrupt, "{}: BOS or EOS shall be added, but there is no id for it", name);
  }
  if (pieces.add_bos) parts.prefix.push_back(*bos);
  if (pieces.add_eos) parts.suffix.push_back(*eos);

  for (std::size_t i = 0; i < pieces.pieces.size(); ++i) {
    const TokenId id(static_cast<std::int32_t>(i));
    const PieceType type = pieces.types[i];
    const bool special = type == PieceType::kControl || type == PieceType::kUnknown;
    if ((!special && type != PieceType::kUserDefined) || pieces.pieces[i].empty()) continue;
    parts.added_tokens.push_back({.id = id, .content = pieces.pieces[i], .special = special || id == bos || id == eos});
  }
  QUIRE_TRY(std::vector<NormalizerStep> normalizer, NormalizerOf(pieces, name));
  parts.normalizer = Normalizer(std::move(normalizer));
  parts.decoder = TokenDecoder(DecoderOf(pieces));
  return MakePipelineTokenizer(std::move(parts), name);
}

}  // namespace quire::text
