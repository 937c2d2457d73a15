// The merge machine against the definition of byte-pair encoding.
#include "text/bpe_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace quire::text {
namespace {

// Merges the pair of the smallest rank, of equal ranks the leftmost, until there is none.
std::vector<TokenId> Naive(std::vector<std::int32_t> symbols, const std::vector<Merge>& merges) {
  while (true) {
    const Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (const Merge& merge : merges) {
        if (merge.left != symbols[i] || merge.right != symbols[i + 1]) continue;
        if (best == nullptr || merge.rank < best->rank) best = &merge, at = i;
      }
    }
    if (best == nullptr) break;
    symbols[at] = best->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::int32_t symbol : symbols) ids.emplace_back(symbol);
  return ids;
}

// A random vocabulary over three letters and the space mark. Ranks may be equal, as SentencePiece's scores may be.
TEST(BpeModel, MergesAsTheDefinitionSays) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> letters = {"a", "b", "c", "\u2581"};
    Vocabulary vocabulary;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      ASSERT_TRUE(vocabulary.Add(static_cast<std::int64_t>(i), letters[i], "test").has_value());
    }
    // Every second vocabulary keeps space marks in front, so that words are cut before them.
    const bool marks_in_front = round % 2 == 0;
    const unsigned rank_bound = 1 + static_cast<unsigned>(random() % 40);
    BpeOptions options;
    for (int i = 0; i < 40; ++i) {
      const auto left = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary.size()));
      const auto right = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary.size()));
      const std::string text =
          std::string(vocabulary.Text(TokenId(left))) + std::string(vocabulary.Text(TokenId(right)));
      if (marks_in_front && text.find("\u2581", text.find_first_not_of("\u2581")) != std::string::npos) continue;
      std::optional<TokenId> result = vocabulary.Find(text);
      if (!result.has_value()) {
        result = TokenId(vocabulary.size());
        ASSERT_TRUE(vocabulary.Add(result->value(), text, "test").has_value());
      }
      const auto same_pair = [&](const Merge& merge) { return merge.left == left && merge.right == right; };
      if (std::ranges::any_of(options.merges, same_pair)) continue;
      options.merges.push_back({left, right, result->value(), static_cast<std::uint32_t>(random() % rank_bound)});
    }
    const BpeModel model(&vocabulary, options, /*words_are_bytes=*/false);
    BpeModel::Scratch scratch;
    for (int i = 0; i < 40; ++i) {
      std::string word;
      std::vector<std::int32_t> symbols;
      // Up to three times the length at which the model turns to its heap.
      for (std::size_t length = 1 + random() % 120; length > 0; --length) {
        symbols.push_back(static_cast<std::int32_t>(random() % letters.size()));
        word.append(letters[static_cast<std::size_t>(symbols.back())]);
      }
      std::vector<TokenId> ids;
      model.Encode(word, &scratch, &ids);
      ASSERT_EQ(ids, Naive(symbols, options.merges)) << word;
    }
  }
}

}  // namespace
}  // namespace quire::text
