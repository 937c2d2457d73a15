#include "text/jinja/lexer.h"

#include <array>
#include <charconv>
#include <optional>

#include "base/utf8.h"
#include "text/jinja/python_str.h"

namespace quire::text::jinja {
namespace {

// Longest first, so that "//" is not read as two "/".
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

std::string NormalizeNewlines(std::string_view text) {
  std::string normal;
  normal.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      normal.push_back(text[i]);
      continue;
    }
    normal.push_back('\n');
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  return normal;
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// The escapes of a Python string literal. Unknown ones stay as they are.
class Unescaper {
 public:
  Unescaper(std::string_view text, int line) : text_(text), line_(line) {}

  Result<std::string> Run() {
    std::string out;
    while (position_ < text_.size()) {
      const char c = text_[position_++];
      if (c != '\\') {
        out.push_back(c);
      } else {
        QUIRE_TRY_VOID(Escape(&out));
      }
    }
    return out;
  }

 private:
  Result<> Escape(std::string* out) {
    if (position_ == text_.size()) return SyntaxError(line_, "\\ at end of string");
    const char c = text_[position_];
    if (static_cast<unsigned char>(c) >= 0x80) {
      BackslashBeforeNonAscii(out);
      return {};
    }
    ++position_;
    switch (c) {
      case '\n':
        return {};
      case '\\':
      case '\'':
      case '"':
        out->push_back(c);
        return {};
      case 'a':
        out->push_back('\a');
        return {};
      case 'b':
        out->push_back('\b');
        return {};
      case 'f':
        out->push_back('\f');
        return {};
      case 'n':
        out->push_back('\n');
        return {};
      case 'r':
        out->push_back('\r');
        return {};
      case 't':
        out->push_back('\t');
        return {};
      case 'v':
        out->push_back('\v');
        return {};
      case 'x':
        return Hexadecimal(2, out);
      case 'u':
        return Hexadecimal(4, out);
      case 'U':
        return Hexadecimal(8, out);
      case 'N':
        return SyntaxError(line_, "\\N{{…}} escapes are not supported; write the character or \\uXXXX");
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      std::uint32_t code = static_cast<std::uint32_t>(c - '0');
      for (int i = 0; i < 2 && position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '7'; ++i) {
        code = code * 8 + static_cast<std::uint32_t>(text_[position_++] - '0');
      }
      AppendUtf8(code, out);
      return {};
    }
    out->push_back('\\');
    out->push_back(c);
    return {};
  }

  // jinja2 turns the character into an escape of its own first, whose backslash the one before it then swallows:
  // what is left is a backslash and the escape's letters.
  void BackslashBeforeNonAscii(std::string* out) {
    const Utf8Char character = DecodeUtf8(text_.substr(position_));
    position_ += character.size;
    const std::uint32_t code = character.code_point;
    out->append(code < 0x100     ? fmt::format("\\x{:02x}", code)
                : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                 : fmt::format("\\U{:08x}", code));
  }

  Result<> Hexadecimal(std::size_t digits, std::string* out) {
    const std::string_view text = text_.substr(position_, digits);
    std::uint32_t code = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code, 16);
    if (error != std::errc() || text.size() < digits || end != text.data() + digits) {
      return SyntaxError(line_, "truncated \\x, \\u or \\U escape");
    }
    if (code > 0x10FFFF) return SyntaxError(line_, "illegal Unicode character");
    position_ += digits;
    // A lone surrogate cannot be sent to anyone; it becomes what it would become on the way out.
    AppendUtf8(code >= 0xD800 && code < 0xE000 ? kReplacementCharacter : code, out);
    return {};
  }

  std::string_view text_;
  int line_;
  std::size_t position_ = 0;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(SanitizeUtf8(source))) {
    if (source_.ends_with('\n')) source_.pop_back();
  }

  Result<std::vector<Token>> Run() {
    while (position_ < source_.size()) QUIRE_TRY_VOID(Root());
    Push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(position_); }
  char At(std::size_t index) const { return index < source_.size() ? source_[index] : '\0'; }

  void Push(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }

  // Moves on, counting lines.
  void Advance(std::size_t end) {
    for (; position_ < end; ++position_) line_ += source_[position_] == '\n';
    line_starting_ = position_ > 0 && source_[position_ - 1] == '\n';
  }

  void SkipSpace() { Advance(position_ + LeadingSpace(Rest())); }

  // Text up to the next tag, then the tag's beginning.
  Result<> Root() {
    std::size_t tag = position_;
    while ((tag = source_.find('{', tag)) != std::string::npos) {
      const char next = At(tag + 1);
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == std::string::npos) {
      Push(TokenKind::kData, std::string(Rest()));
      Advance(source_.size());
      return {};
    }
    const char type = source_[tag + 1];
    const char sign = At(tag + 2) == '-' || At(tag + 2) == '+' ? source_[tag + 2] : '\0';
    EmitData(std::string_view(source_).substr(position_, tag - position_), sign, type != '{');
    if (const auto raw_end = type == '%' ? RawTagEnd(tag, "raw") : std::nullopt) {
      Advance(*raw_end);
      return Raw();
    }
    Advance(tag + (sign != '\0' ? 3 : 2));
    if (type == '#') return Comment();
    Push(type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    return Tag(type == '{' ? '}' : '%');
  }

  // `is_block`: the tag after the text is one that lstrip_blocks applies to. Does not move.
  void EmitData(std::string_view text, char sign, bool is_block) {
    if (sign == '-') {
      text = text.substr(0, text.size() - TrailingSpace(text));
    } else if (sign != '+' && is_block) {
      const std::size_t line_start = text.rfind('\n') + 1;  // 0 when there is no newline
      if ((line_start > 0 || line_starting_) && LeadingSpace(text.substr(line_start)) == text.size() - line_start) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) Push(TokenKind::kData, std::string(text));
  }

  // Where `{%- raw -%}` or the like ends, its stripping included; nullopt when the tag at `tag` is another one.
  std::optional<std::size_t> RawTagEnd(std::size_t tag, std::string_view name) const {
    const std::string_view source = source_;
    std::size_t p = tag + 2;
    if (At(p) == '-' || At(p) == '+') ++p;
    p += LeadingSpace(source.substr(p));
    if (!source.substr(p).starts_with(name)) return std::nullopt;
    p += name.size();
    p += LeadingSpace(source.substr(p));
    if (source.substr(p).starts_with("-%}")) return p + 3 + LeadingSpace(source.substr(p + 3));
    if (name == "endraw" && source.substr(p).starts_with("+%}")) return p + 3;
    if (!source.substr(p).starts_with("%}")) return std::nullopt;
    return p + 2 + (name == "endraw" && At(p + 2) == '\n' ? 1 : 0);
  }

  Result<> Raw() {
    for (std::size_t tag = position_; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      const auto end = RawTagEnd(tag, "endraw");
      if (!end) continue;
      const char sign = At(tag + 2) == '-' || At(tag + 2) == '+' ? source_[tag + 2] : '\0';
      EmitData(std::string_view(source_).substr(position_, tag - position_), sign, /*is_block=*/true);
      Advance(*end);
      return {};
    }
    if (position_ == source_.size()) return {};  // as in Comment()
    return SyntaxError(line_, "Missing end of raw directive");
  }

  Result<> Comment() {
    const std::size_t end = source_.find("#}", position_);
    if (position_ == source_.size()) return {};  // jinja2 misses what is not closed when nothing at all follows
    if (end == std::string::npos) return SyntaxError(line_, "Missing end of comment tag");
    const char sign = end > position_ ? source_[end - 1] : '\0';
    Advance(end + 2);
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && At(position_) == '\n') {
      Advance(position_ + 1);
    }
    return {};
  }

  // The inside of {{ … }} (`closer` is '}') or {% … %} (`closer` is '%').
  Result<> Tag(char closer) {
    std::string open_brackets;
    while (true) {
      SkipSpace();
      if (position_ >= source_.size()) return {};  // the parser reports the end of the template
      if (open_brackets.empty() && TagEnd(closer)) return {};
      QUIRE_TRY_VOID(Lexeme(&open_brackets));
    }
  }

  bool TagEnd(char closer) {
    const char end[] = {closer, '}', '\0'};
    const char sign = At(position_);
    const bool signed_end = (sign == '-' || (sign == '+' && closer == '%')) && Rest().substr(1).starts_with(end);
    if (!signed_end && !Rest().starts_with(end)) return false;
    Push(closer == '}' ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    Advance(position_ + (signed_end ? 3 : 2));
    if (signed_end && sign == '-') {
      SkipSpace();
    } else if (!signed_end && closer == '%' && At(position_) == '\n') {
      Advance(position_ + 1);
    }
    return true;
  }

  Result<> Lexeme(std::string* open_brackets) {
    const char c = source_[position_];
    if (IsDigit(c)) return Number();
    if (const std::size_t size = IdentifierSize(Rest())) {
      Push(TokenKind::kName, std::string(Rest().substr(0, size)));
      if (!IsIdentifier(tokens_.back().text)) return SyntaxError(line_, "Invalid character in identifier");
      Advance(position_ + size);
      return {};
    }
    if (c == '\'' || c == '"') return StringLiteral(c);
    for (const std::string_view symbol : kOperators) {
      if (!Rest().starts_with(symbol)) continue;
      QUIRE_TRY_VOID(Balance(c, open_brackets));
      Push(TokenKind::kOperator, std::string(symbol));
      Advance(position_ + symbol.size());
      return {};
    }
    const Utf8Char character = DecodeUtf8(Rest());
    return SyntaxError(line_, "unexpected char '{}'", Rest().substr(0, character.size));
  }

  Result<> Balance(char c, std::string* open_brackets) {
    if (c == '{') open_brackets->push_back('}');
    if (c == '(') open_brackets->push_back(')');
    if (c == '[') open_brackets->push_back(']');
    if (c != '}' && c != ')' && c != ']') return {};
    if (open_brackets->empty()) return SyntaxError(line_, "unexpected '{}'", c);
    const char expected = open_brackets->back();
    open_brackets->pop_back();
    if (expected != c) return SyntaxError(line_, "unexpected '{}', expected '{}'", c, expected);
    return {};
  }

  Result<> StringLiteral(char quote) {
    std::size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return SyntaxError(line_, "unexpected char '{}'", quote);
    QUIRE_TRY(std::string text,
              Unescaper(std::string_view(source_).substr(position_ + 1, end - position_ - 1), line_).Run());
    Push(TokenKind::kString, std::move(text));
    Advance(end + 1);
    return {};
  }

  // Digits with single underscores between them; the end of the run that begins at `p`.
  std::size_t DigitsEnd(std::size_t p) const {
    if (!IsDigit(At(p))) return p;
    while (IsDigit(At(p)) || (At(p) == '_' && IsDigit(At(p + 1)))) ++p;
    return p;
  }

  Result<> Number() {
    const std::size_t whole = DigitsEnd(position_);
    std::size_t end = whole;
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    if (!after_dot) {
      if (At(end) == '.') end = DigitsEnd(end + 1) > end + 1 ? DigitsEnd(end + 1) : whole;
      if (At(end) == 'e' || At(end) == 'E') {
        const std::size_t exponent = end + (At(end + 1) == '+' || At(end + 1) == '-' ? 2 : 1);
        if (DigitsEnd(exponent) > exponent) end = DigitsEnd(exponent);
      }
    }
    return end > whole ? FloatLiteral(end) : IntegerLiteral(whole);
  }

  std::string WithoutUnderscores(std::size_t end) const {
    std::string text = source_.substr(position_, end - position_);
    std::erase(text, '_');
    return text;
  }

  Result<> FloatLiteral(std::size_t end) {
    const std::string text = WithoutUnderscores(end);
    Push(TokenKind::kFloat, text);
    double& real = tokens_.back().real;
    const auto outcome = std::from_chars(text.data(), text.data() + text.size(), real);
    if (outcome.ec == std::errc::result_out_of_range) real = std::strtod(text.c_str(), nullptr);  // 0 or infinity
    Advance(end);
    return {};
  }

  Result<> IntegerLiteral(std::size_t end) {
    int base = 10;
    std::size_t digits = position_;
    if (source_[position_] == '0') {
      const char prefix = static_cast<char>(At(position_ + 1) | 0x20);
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
      const auto is_digit = [&](char c) {
        const int value = IsDigit(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : 99;
        return value < base;
      };
      std::size_t p = position_ + 2;
      while (base != 10 && (is_digit(At(p)) || (At(p) == '_' && is_digit(At(p + 1))))) ++p;
      if (base == 10 || p == position_ + 2) {  // a zero, or zeros; further digits are the next token
        base = 10;
        end = position_ + 1;
        while (At(end) == '0' || (At(end) == '_' && At(end + 1) == '0')) ++end;
      } else {
        digits = position_ + 2;
        end = p;
      }
    }
    std::string text = source_.substr(digits, end - digits);
    std::erase(text, '_');
    Int value = 0;
    for (const char c : text) {
      const int digit = IsDigit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
      if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{digit}, &value)) {
        return SyntaxError(line_, "the number {} is too large", text);
      }
    }
    Push(TokenKind::kInteger, text);
    tokens_.back().integer = value;
    Advance(end);
    return {};
  }

  std::string source_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template data / text";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return token.text;
    case TokenKind::kString:
      return "string";
    case TokenKind::kInteger:
      return "integer";
    case TokenKind::kFloat:
      return "float";
    case TokenKind::kEnd:
      return "end of template";
  }
  return "";
}

}  // namespace quire::text::jinja
