// Arbitrary bytes as a SentencePiece model; what loads encodes and decodes a text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = quire::text::LoadSentencePiece(input, "fuzz", {});
  if (!tokenizer.has_value()) return 0;
  for (const std::string_view text : {std::string_view("Hello  world \xF0\x9F\xA6\x99 <s>\n"), input}) {
    const auto ids = (*tokenizer)->Encode(text, {});
    if (ids.has_value()) (void)(*tokenizer)->Decode(*ids, false);
  }
  return 0;
}
