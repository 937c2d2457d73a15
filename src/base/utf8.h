// One UTF-8 character at a time, strictly (no overlong forms, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

inline constexpr std::uint32_t kReplacementCharacter = 0xFFFD;

struct Utf8Char {
  std::uint32_t code_point = kReplacementCharacter;
  // Bytes to advance. An invalid sequence is as long as its maximal valid prefix (Unicode, "substitution of maximal
  // subparts"), at least 1: each such part is replaced by one U+FFFD, as Python and Rust do.
  std::uint8_t size = 1;
  bool valid = false;
  bool truncated = false;  // the text ended inside a sequence that was right so far
};

// The first character of a text that is not empty.
Utf8Char DecodeUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);
void AppendUtf8(std::uint32_t code_point, std::string* out);
// `text` with every invalid part replaced by U+FFFD.
std::string SanitizeUtf8(std::string_view text);
// How many bytes at the end of `text` are the beginning of a character that is not complete: 0 to 3.
std::size_t IncompleteUtf8Tail(std::string_view text);

}  // namespace quire
