// Reads a regular expression into a SplitLexer's graph, in Oniguruma's syntax (which is what tokenizer.json
// files are written for). Whatever is not certain to mean the same here is refused.
#include <optional>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "text/split_lexer.h"

namespace quire::text {

class SplitLexerParser {
 public:
  explicit SplitLexerParser(std::string_view pattern) : rest_(pattern) {}

  std::optional<SplitLexer> Parse() {
    const std::int32_t accept = AddNode({.kind = SplitLexer::Kind::kAccept});
    std::optional<Expression> expression = ParseAlternatives(/*ignore_case=*/false, /*depth=*/0);
    if (!expression.has_value() || !rest_.empty()) return std::nullopt;
    for (const Sequence& sequence : *expression) lexer_.branches_.push_back(Link(sequence, accept));
    if (failed_ || lexer_.nodes_.size() > kNodesMax || !lexer_.PrepareDispatch()) return std::nullopt;
    return std::move(lexer_);
  }

 private:
  // Copying branches could double the graph at every group; real patterns have a few dozen nodes.
  static constexpr std::size_t kNodesMax = 2000;
  static constexpr int kDepthMax = 8;
  static constexpr std::uint32_t kUnbounded = UINT32_MAX;

  struct Item;
  using Sequence = std::vector<Item>;
  using Expression = std::vector<Sequence>;
  // What stands at one place of a sequence.
  struct Item {
    enum class Kind : std::uint8_t { kClass, kGroup, kLookahead, kNotLookahead };
    Kind kind = Kind::kClass;
    std::uint32_t char_class = 0;
    Expression group = {};
    std::uint32_t min = 1, max = 1;
    bool possessive = false;
  };

  bool Take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  std::int32_t AddNode(SplitLexer::Node node) {
    lexer_.nodes_.push_back(std::move(node));
    return static_cast<std::int32_t>(lexer_.nodes_.size() - 1);
  }

  std::uint32_t AddClass(CharacterClass char_class) {
    lexer_.classes_.push_back(std::move(char_class));
    return static_cast<std::uint32_t>(lexer_.classes_.size() - 1);
  }

  // The first node of a sequence that goes on at `next`.
  std::int32_t Link(const Sequence& sequence, std::int32_t next) {
    if (lexer_.nodes_.size() > kNodesMax) {
      failed_ = true;
      return next;
    }
    for (auto item = sequence.rbegin(); item != sequence.rend(); ++item) next = LinkItem(*item, next);
    return next;
  }

  std::int32_t LinkItem(const Item& item, std::int32_t next) {
    using Kind = SplitLexer::Kind;
    if (item.kind == Item::Kind::kClass) {
      const Kind kind = item.possessive ? Kind::kPossessive : Kind::kClass;
      return AddNode({.kind = kind, .char_class = item.char_class, .min = item.min, .max = item.max, .next = next});
    }
    SplitLexer::Node node;
    node.kind = item.kind == Item::Kind::kGroup       ? Kind::kChoice
                : item.kind == Item::Kind::kLookahead ? Kind::kLookahead
                                                      : Kind::kNotLookahead;
    const bool looks = item.kind != Item::Kind::kGroup;
    if (looks) {
      const std::int32_t accept = AddNode({.kind = Kind::kAccept});
      SplitLexer::Node choice{.kind = Kind::kChoice};
      for (const Sequence& sequence : item.group) choice.branches.push_back(Link(sequence, accept));
      node.branches.push_back(AddNode(std::move(choice)));
      node.next = next;
    } else {
      for (const Sequence& sequence : item.group) node.branches.push_back(Link(sequence, next));
      if (item.min == 0) node.branches.push_back(next);
    }
    return AddNode(std::move(node));
  }

  std::optional<Expression> ParseAlternatives(bool ignore_case, int depth) {
    if (depth > kDepthMax) return std::nullopt;
    Expression expression(1);
    while (!rest_.empty() && rest_.front() != ')') {
      if (Take("|")) {
        expression.emplace_back();
        continue;
      }
      std::optional<Item> item = ParseItem(ignore_case, depth);
      if (!item.has_value()) return std::nullopt;
      expression.back().push_back(*std::move(item));
    }
    return expression;
  }

  std::optional<Item> ParseItem(bool ignore_case, int depth) {
    Item item;
    if (Take("(")) {
      if (!ParseGroup(ignore_case, depth, &item)) return std::nullopt;
    } else {
      CharacterClass char_class;
      if (!ParseAtom(ignore_case, &char_class)) return std::nullopt;
      item.char_class = AddClass(std::move(char_class));
    }
    if (!ParseQuantifier(&item)) return std::nullopt;
    return item;
  }

  bool ParseGroup(bool ignore_case, int depth, Item* item) {
    item->kind = Item::Kind::kGroup;
    if (Take("?i:")) {
      ignore_case = true;
    } else if (Take("?=")) {
      item->kind = Item::Kind::kLookahead;
    } else if (Take("?!")) {
      item->kind = Item::Kind::kNotLookahead;
    } else if (!Take("?:") && rest_.starts_with("?")) {
      return false;
    }
    if (ignore_case && HasLiteralsThatFoldTogether()) return false;
    std::optional<Expression> group = ParseAlternatives(ignore_case, depth + 1);
    if (!group.has_value() || !Take(")")) return false;
    item->group = *std::move(group);
    return true;
  }

  // Under (?i) Oniguruma lets one character match several letters: "ß" matches "ss", "ﬁ" matches "fi".
  bool HasLiteralsThatFoldTogether() const {
    for (const std::string_view pair : {"ss", "ff", "fi", "fl", "st"}) {
      std::string lower(rest_);
      for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
      if (lower.find(pair) != std::string::npos) return true;
    }
    return false;
  }

  bool ParseQuantifier(Item* item) {
    std::uint32_t min = 1;
    std::uint32_t max = 1;
    bool braces = false;
    if (Take("*")) {
      min = 0, max = kUnbounded;
    } else if (Take("+")) {
      max = kUnbounded;
    } else if (Take("?")) {
      min = 0;
    } else if (Take("{")) {
      braces = true;
      if (!ParseNumber(&min)) return false;
      max = min;
      if (Take(",") && !ParseNumber(&max)) max = kUnbounded;
      if (!Take("}") || max < min || max == 0) return false;
    } else {
      return true;
    }
    if (item->kind == Item::Kind::kLookahead || item->kind == Item::Kind::kNotLookahead) return false;
    // A group may be optional, but not repeated.
    if (item->kind == Item::Kind::kGroup && max != 1) return false;
    if (!braces && item->kind == Item::Kind::kClass && Take("+")) item->possessive = true;
    item->min = min;
    item->max = max;
    // Lazy and stacked quantifiers.
    return rest_.empty() || std::string_view("*+?{").find(rest_.front()) == std::string_view::npos;
  }

  bool ParseNumber(std::uint32_t* number) {
    const std::string_view before = rest_;
    *number = 0;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9' && before.size() - rest_.size() < 4) {
      *number = *number * 10 + static_cast<std::uint32_t>(rest_.front() - '0');
      rest_.remove_prefix(1);
    }
    return rest_.size() != before.size();
  }

  // One character or class outside brackets, or a bracketed class.
  bool ParseAtom(bool ignore_case, CharacterClass* out) {
    if (Take("[")) return ParseBrackets(out) && (!ignore_case || out->FoldAsciiCase());
    if (rest_.starts_with("\\")) {
      if (!ignore_case && ParseClassEscape(out)) return true;
      const std::optional<std::uint32_t> character = ParseCharacterEscape();
      if (!character.has_value()) return false;
      return AddLiteral(*character, ignore_case, out);
    }
    if (std::string_view(".^$*+?{})]").find(rest_.front()) != std::string_view::npos) return false;
    const Utf8Char character = DecodeUtf8(rest_);
    if (!character.valid) return false;
    rest_.remove_prefix(character.size);
    return AddLiteral(character.code_point, ignore_case, out);
  }

  static bool AddLiteral(std::uint32_t c, bool ignore_case, CharacterClass* out) {
    out->AddCharacter(c);
    return !ignore_case || out->FoldAsciiCase();
  }

  // \p{…}, \P{…}, \s, \S, \d, \D; takes nothing when there is another escape.
  bool ParseClassEscape(CharacterClass* out) {
    if (Take("\\s")) {
      out->AddWhiteSpace();
    } else if (Take("\\S")) {
      out->AddWhiteSpace();
      out->Negate();
    } else if (Take("\\d")) {
      out->AddCategories(CategoriesNamed("Nd"));
    } else if (Take("\\D")) {
      out->AddCategories(~CategoriesNamed("Nd"));
    } else {
      const bool negated = rest_.starts_with("\\P{");
      if (!negated && !rest_.starts_with("\\p{")) return false;
      const std::size_t close = rest_.find('}');
      if (close == std::string_view::npos) return false;
      const CategoryMask categories = CategoriesNamed(rest_.substr(3, close - 3));
      if (categories == 0) return false;
      rest_.remove_prefix(close + 1);
      out->AddCategories(negated ? ~categories : categories);
    }
    return true;
  }

  // \n, \r, \t and escaped punctuation.
  std::optional<std::uint32_t> ParseCharacterEscape() {
    if (rest_.size() < 2) return std::nullopt;
    const char c = rest_[1];
    std::optional<std::uint32_t> character;
    if (c == 'n') character = '\n';
    if (c == 'r') character = '\r';
    if (c == 't') character = '\t';
    if (static_cast<unsigned char>(c) < 0x80 && IsPunctuation(static_cast<unsigned char>(c)) && c != '<' && c != '>') {
      character = static_cast<unsigned char>(c);
    }
    if (character.has_value()) rest_.remove_prefix(2);
    return character;
  }

  // Behind "[", up to and including "]".
  bool ParseBrackets(CharacterClass* out) {
    const bool negated = Take("^");
    bool empty = true;
    while (!Take("]")) {
      if (rest_.empty() || rest_.starts_with("[") || rest_.starts_with("&&")) return false;
      // \S in brackets would have to leave U+0085 out of the controls.
      if (rest_.starts_with("\\S")) return false;
      if (rest_.starts_with("\\") && ParseClassEscape(out)) {
        empty = false;
        if (rest_.starts_with("-") && !rest_.starts_with("-]")) return false;
        continue;
      }
      const std::optional<std::uint32_t> first = ParseBracketCharacter(empty);
      if (!first.has_value()) return false;
      std::uint32_t last = *first;
      if (rest_.starts_with("-") && !rest_.starts_with("-]")) {
        rest_.remove_prefix(1);
        const std::optional<std::uint32_t> end = ParseBracketCharacter(/*first=*/false);
        if (!end.has_value() || *end < *first) return false;
        last = *end;
      }
      out->AddRange(*first, last);
      empty = false;
    }
    if (negated) out->Negate();
    return !empty;
  }

  std::optional<std::uint32_t> ParseBracketCharacter(bool first) {
    if (rest_.empty()) return std::nullopt;
    if (rest_.front() == '\\') return ParseCharacterEscape();
    // A hyphen means itself at the beginning and at the end only.
    if (rest_.front() == '-' && !first && !rest_.starts_with("-]")) return std::nullopt;
    if (rest_.front() == '[' || rest_.front() == ']') return std::nullopt;
    const Utf8Char character = DecodeUtf8(rest_);
    if (!character.valid) return std::nullopt;
    rest_.remove_prefix(character.size);
    return character.code_point;
  }

  std::string_view rest_;
  SplitLexer lexer_;
  bool failed_ = false;
};

std::optional<SplitLexer> SplitLexer::Compile(std::string_view pattern) {
  return SplitLexerParser(pattern).Parse();
}

}  // namespace quire::text
