// Added tokens ("<|im_start|>", "<think>"): found in the text before the model sees it, by leftmost-longest
// search. Tokens that are `normalized` are searched in the normalised text, the others before normalisation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"

namespace quire::text {

struct AddedToken {
  TokenId id;
  std::string content;
  bool single_word = false;  // only where no word character stands before or behind it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space behind it along
  bool normalized = false;   // is searched in the normalised text
  bool special = false;
};

// Finds one set of added tokens. Immutable after construction.
class AddedTokenFinder {
 public:
  // A part of a text: an added token, or what lies between (`id` is empty).
  struct Segment {
    std::optional<TokenId> id;
    std::size_t begin = 0, end = 0;
  };

  // patterns[i] is what to search for tokens[i], not empty. Of two tokens with the same
  // pattern the last counts.
  AddedTokenFinder() = default;
  AddedTokenFinder(std::vector<AddedToken> tokens, std::span<const std::string> patterns);

  bool empty() const { return tokens_.empty(); }
  // The parts of `text` in order, none empty but those of tokens. `find_special`: false leaves special tokens
  // in the text (but they still hide what begins inside them, as in the reference).
  void Split(std::string_view text, bool find_special, std::vector<Segment>* segments) const;

 private:
  // A node of the trie over the patterns' bytes; children in a list ordered by byte.
  struct Node {
    std::int32_t first_child = -1, next_sibling = -1;
    std::int32_t token = -1;  // index in tokens_ of the pattern that ends here
    std::uint8_t byte = 0;
  };

  void Insert(std::string_view pattern, std::int32_t token);
  // The longest pattern at the start of `text`: its token's index (−1: none) and its size.
  std::pair<std::int32_t, std::size_t> LongestMatch(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> roots_ = {};  // node by first byte, −1: no pattern begins with it
};

}  // namespace quire::text
