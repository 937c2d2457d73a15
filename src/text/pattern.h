// A pattern of a tokenizer's file: a regular expression or a plain string. Regular expressions run on the
// SplitLexer when it knows everything in them, else on Oniguruma, the engine of the reference. Immutable
// after construction.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/span.h"
#include "text/split_lexer.h"

namespace quire::text {

// Which engine runs a regular expression; tests compare the two.
enum class PatternEngine : std::uint8_t { kBest, kOniguruma };

class Pattern {
 public:
  // `name` stands in errors (the file).
  static Result<Pattern> Regex(std::string_view regex, std::string_view name,
                               PatternEngine engine = PatternEngine::kBest);
  // Occurrences of a string; the empty string matches between all characters, as the empty regular expression
  // does.
  static Result<Pattern> Literal(std::string_view text, std::string_view name);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // All matches in `text` (valid UTF-8, below 4 GiB), leftmost first, without overlap. kOutOfRange: the
  // matcher went back and forth more often than its limit allows, which grows with the text.
  Result<> FindAll(std::string_view text, std::vector<Span>* matches) const;

  bool uses_lexer() const { return lexer_.has_value(); }

 private:
  struct Compiled;  // Oniguruma's program
  Pattern();

  Result<> FindAllByOniguruma(std::string_view text, std::vector<Span>* matches) const;

  std::string source_;
  bool is_literal_ = false;
  std::optional<SplitLexer> lexer_;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace quire::text
