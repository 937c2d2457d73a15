// The regular expressions of real tokenizers, run without a regular-expression engine. They are all of one
// kind: alternatives of character classes with repetitions, small groups and one-character lookaheads. Such a
// pattern becomes a small graph that is walked with ordered backtracking, exactly as Perl, PCRE and Oniguruma
// do it; the classes are bit sets, so that a walk costs a few nanoseconds a word. Patterns with anything else
// are refused and go to Oniguruma (see pattern.h). Immutable after construction.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/span.h"
#include "text/unicode.h"

namespace quire::text {

// A set of characters.
class CharacterClass {
 public:
  void AddCharacter(std::uint32_t code_point) { AddRange(code_point, code_point); }
  void AddRange(std::uint32_t first, std::uint32_t last);
  void AddCategories(CategoryMask categories);
  void AddWhiteSpace();
  void Negate();
  // Adds the other case of every letter; false, and nothing added, when the set reaches beyond ASCII.
  bool FoldAsciiCase();

  bool ContainsAscii(unsigned char c) const { return (ascii_[c >> 6] >> (c & 63) & 1) != 0; }
  bool Contains(std::uint32_t code_point) const {
    return code_point < 0x80 ? ContainsAscii(static_cast<unsigned char>(code_point)) : ContainsBeyondAscii(code_point);
  }
  // Whether any character above U+007F may be in the set.
  bool ReachesBeyondAscii() const { return negated_ || categories_ != 0 || !ranges_.empty(); }

 private:
  bool ContainsBeyondAscii(std::uint32_t code_point) const;

  std::array<std::uint64_t, 2> ascii_ = {};
  // Above U+007F: the categories and the ranges, or what is in neither when `negated_`.
  CategoryMask categories_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges_;
  bool negated_ = false;
};

class SplitLexer {
 public:
  // Nothing when the pattern holds something that this lexer does not know, or can match the empty text.
  static std::optional<SplitLexer> Compile(std::string_view pattern);

  // All matches in `text` (valid UTF-8), leftmost first, without overlap, appended. False: more steps than
  // `steps_max`.
  bool FindAll(std::string_view text, std::uint64_t steps_max, std::vector<Span>* matches) const;

 private:
  friend class SplitLexerParser;

  enum class Kind : std::uint8_t {
    kClass,         // characters of `char_class`, `min` to `max` of them, as many as possible; then `next`
    kPossessive,    // the same, but never gives one back
    kChoice,        // the first of `branches` that leads to a match; each goes on at `next` by itself
    kLookahead,     // `branches`[0] must match here; then `next`
    kNotLookahead,  // `branches`[0] must not match here; then `next`
    kAccept,
  };
  struct Node {
    Kind kind = Kind::kAccept;
    std::uint32_t char_class = 0;
    std::uint32_t min = 1, max = 1;
    std::int32_t next = -1;
    std::vector<std::int32_t> branches = {};
  };
  // What can begin a branch.
  struct FirstSet {
    std::array<std::uint64_t, 2> ascii = {};
    bool beyond_ascii = false;
    bool empty = false;  // can be passed without a character
  };
  struct Walk {
    std::string_view text;
    std::uint64_t steps_left;
  };
  static constexpr std::size_t kFailed = static_cast<std::size_t>(-1);

  FirstSet First(std::int32_t node) const;
  bool PrepareDispatch();
  std::size_t Match(std::int32_t node, std::size_t at, Walk* walk) const;
  std::size_t MatchRepeat(const Node& node, std::size_t at, Walk* walk) const;
  std::size_t MatchAt(std::size_t at, Walk* walk) const;

  std::vector<Node> nodes_;
  std::vector<CharacterClass> classes_;
  std::vector<std::int32_t> branches_;  // the pattern's alternatives
  // Bit i: branches_[i] can begin with this ASCII character, or with one above.
  std::array<std::uint64_t, 128> ascii_dispatch_ = {};
  std::uint64_t beyond_ascii_dispatch_ = 0;
};

}  // namespace quire::text
