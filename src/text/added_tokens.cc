#include "text/added_tokens.h"

#include <utility>

#include "base/utf8.h"
#include "text/unicode.h"

namespace quire::text {
namespace {

// The last character of a text that is not empty and valid UTF-8.
Utf8Char LastCharacter(std::string_view text) {
  std::size_t i = text.size() - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return DecodeUtf8(text.substr(i));
}

bool StandsAlone(std::string_view before, std::string_view behind) {
  if (!before.empty() && IsWordCharacter(LastCharacter(before).code_point)) return false;
  return behind.empty() || !IsWordCharacter(DecodeUtf8(behind).code_point);
}

std::size_t WhiteSpaceAtEnd(std::string_view text) {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const Utf8Char character = LastCharacter(text);
    if (!IsWhiteSpace(character.code_point)) break;
    text.remove_suffix(character.size);
  }
  return size - text.size();
}

std::size_t WhiteSpaceAtStart(std::string_view text) {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const Utf8Char character = DecodeUtf8(text);
    if (!IsWhiteSpace(character.code_point)) break;
    text.remove_prefix(character.size);
  }
  return size - text.size();
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens, std::span<const std::string> patterns)
    : tokens_(std::move(tokens)) {
  roots_.fill(-1);
  for (std::size_t i = 0; i < patterns.size(); ++i) Insert(patterns[i], static_cast<std::int32_t>(i));
}

void AddedTokenFinder::Insert(std::string_view pattern, std::int32_t token) {
  std::int32_t node = -1;
  for (const char c : pattern) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::int32_t child = node < 0 ? roots_[byte] : nodes_[static_cast<std::size_t>(node)].first_child;
    while (node >= 0 && child >= 0 && nodes_[static_cast<std::size_t>(child)].byte != byte) {
      child = nodes_[static_cast<std::size_t>(child)].next_sibling;
    }
    if (child < 0) {
      child = static_cast<std::int32_t>(nodes_.size());
      std::int32_t& head = node < 0 ? roots_[byte] : nodes_[static_cast<std::size_t>(node)].first_child;
      const std::int32_t sibling = std::exchange(head, child);
      nodes_.push_back({.next_sibling = node < 0 ? -1 : sibling, .byte = byte});
    }
    node = child;
  }
  if (node >= 0) nodes_[static_cast<std::size_t>(node)].token = token;
}

std::pair<std::int32_t, std::size_t> AddedTokenFinder::LongestMatch(std::string_view text) const {
  std::pair<std::int32_t, std::size_t> longest(-1, 0);
  std::int32_t node = roots_[static_cast<unsigned char>(text[0])];
  for (std::size_t size = 1; node >= 0; ++size) {
    const Node& here = nodes_[static_cast<std::size_t>(node)];
    if (here.token >= 0) longest = {here.token, size};
    if (size == text.size()) break;
    const auto byte = static_cast<std::uint8_t>(text[size]);
    node = here.first_child;
    while (node >= 0 && nodes_[static_cast<std::size_t>(node)].byte != byte) {
      node = nodes_[static_cast<std::size_t>(node)].next_sibling;
    }
  }
  return longest;
}

void AddedTokenFinder::Split(std::string_view text, bool find_special, std::vector<Segment>* segments) const {
  segments->clear();
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    if (roots_[static_cast<unsigned char>(text[at])] < 0) {
      ++at;
      continue;
    }
    const auto [index, size] = LongestMatch(text.substr(at));
    if (index < 0) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + size;
    at = end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    if (token.special && !find_special) continue;
    if (token.single_word && !StandsAlone(text.substr(0, begin), text.substr(end))) continue;
    // White space that the token before has taken is not taken again.
    if (token.lstrip) begin = begin > done ? begin - WhiteSpaceAtEnd(text.substr(done, begin - done)) : done;
    if (token.rstrip) end += WhiteSpaceAtStart(text.substr(end));
    if (done < begin) segments->push_back({.id = std::nullopt, .begin = done, .end = begin});
    segments->push_back({.id = token.id, .begin = begin, .end = end});
    done = end;
  }
  if (done < text.size()) segments->push_back({.id = std::nullopt, .begin = done, .end = text.size()});
}

}  // namespace quire::text
