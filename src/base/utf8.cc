#include "base/utf8.h"

namespace quire {

Utf8Char DecodeUtf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {.code_point = lead, .size = 1, .valid = true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  std::uint32_t code_point = lead & (0x7F >> length);
  for (std::uint8_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {.size = i, .truncated = true};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {.size = i};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {.code_point = code_point, .size = length, .valid = true};
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char character = DecodeUtf8(text);
    if (!character.valid) return false;
    text.remove_prefix(character.size);
  }
  return true;
}

void AppendUtf8(std::uint32_t c, std::string* out) {
  const auto push = [&](std::uint32_t value) { out->push_back(static_cast<char>(value)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6), push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12), push(0x80 | (c >> 6 & 0x3F)), push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | c >> 18), push(0x80 | (c >> 12 & 0x3F)), push(0x80 | (c >> 6 & 0x3F)), push(0x80 | (c & 0x3F));
  }
}

std::string SanitizeUtf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char character = DecodeUtf8(text);
    character.valid ? void(clean.append(text.substr(0, character.size))) : void(clean.append("\xEF\xBF\xBD"));
    text.remove_prefix(character.size);
  }
  return clean;
}

std::size_t IncompleteUtf8Tail(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const unsigned char c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xC0) == 0x80) continue;  // a continuation byte: look further left for the lead
    return DecodeUtf8(text.substr(text.size() - back)).truncated ? back : 0;
  }
  return 0;
}

}  // namespace quire
