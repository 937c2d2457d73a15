// Template text → tokens, with the settings that Hugging Face uses: trim_blocks (the newline after a block tag goes),
// lstrip_blocks (blanks before a block tag that starts a line go), no trailing newline of the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/value.h"

namespace quire::text::jinja {

enum class TokenKind {
  kData,           // text outside of tags
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // `text` is the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text = {};  // data, name, operator, or the value of a string literal
  Int integer = 0;
  double real = 0;

  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool IsOperator(std::string_view symbol) const { return kind == TokenKind::kOperator && text == symbol; }
};

// The last token is kEnd. Invalid UTF-8 in the source is read as U+FFFD.
Result<std::vector<Token>> Tokenize(std::string_view source);

// How a token is named in a message.
std::string Describe(const Token& token);

template <typename... Arguments>
[[nodiscard]] std::unexpected<Error> SyntaxError(int line, fmt::format_string<Arguments...> format,
                                                 Arguments&&... arguments) {
  return Fail(ErrorCode::kInvalidArgument, "chat template, line {}: {}", line,
              fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace quire::text::jinja
