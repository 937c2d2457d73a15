#include "text/byte_alphabet.h"

#include "base/utf8.h"

namespace quire::text {

void AppendByteAlphabet(std::string_view bytes, std::string* out) {
  for (const char c : bytes) AppendUtf8(kByteToCodePoint[static_cast<unsigned char>(c)], out);
}

bool AppendFromByteAlphabet(std::string_view characters, std::string* out) {
  const std::size_t size_before = out->size();
  while (!characters.empty()) {
    const Utf8Char character = DecodeUtf8(characters);
    const std::uint32_t c = character.code_point;
    if (!character.valid || c >= kByteAlphabetEnd || kCodePointToByte[c] < 0) {
      out->resize(size_before);
      return false;
    }
    out->push_back(static_cast<char>(kCodePointToByte[c]));
    characters.remove_prefix(character.size);
  }
  return true;
}

}  // namespace quire::text
