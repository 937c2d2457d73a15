// GPT-2's way to write any byte as a printable character: bytes that Latin-1 prints are themselves, the
// others stand at U+0100 and up in order of their value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::text {

// One past the last character of the alphabet: 188 bytes print as they are, 68 stand from U+0100 on.
inline constexpr std::uint32_t kByteAlphabetEnd = 0x100 + 68;

constexpr bool PrintsInLatin1(std::uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// The code point that stands for each byte.
inline constexpr std::array<std::uint16_t, 256> kByteToCodePoint = [] {
  std::array<std::uint16_t, 256> table{};
  std::uint16_t next = 0x100;
  for (std::uint16_t byte = 0; byte < 256; ++byte) table[byte] = PrintsInLatin1(byte) ? byte : next++;
  return table;
}();

// The byte that a code point stands for, or −1.
inline constexpr std::array<std::int16_t, kByteAlphabetEnd> kCodePointToByte = [] {
  std::array<std::int16_t, kByteAlphabetEnd> table{};
  for (std::int16_t& byte : table) byte = -1;
  for (std::int16_t byte = 0; byte < 256; ++byte) table[kByteToCodePoint[static_cast<std::size_t>(byte)]] = byte;
  return table;
}();

// Appends the characters that stand for `bytes`.
void AppendByteAlphabet(std::string_view bytes, std::string* out);
// Appends the bytes that `characters` stand for. When one of them is not of the alphabet: false, and nothing
// appended.
bool AppendFromByteAlphabet(std::string_view characters, std::string* out);

}  // namespace quire::text
