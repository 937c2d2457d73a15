// Arbitrary bytes as a tokenizer.json, and, when one loads, as text and as ids. The input is cut at the first NUL:
// the file before it, the text behind it. An input without a NUL is a text for a fixed tokenizer.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace {

using quire::TokenId;

constexpr std::string_view kFixed = R"({
  "added_tokens": [{"id": 8, "content": "<s>", "special": true, "lstrip": true, "rstrip": true},
                   {"id": 9, "content": "xy", "special": false, "normalized": true, "single_word": true}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Prepend", "prepend": "▁"},
                 {"type": "Replace", "pattern": {"Regex": " +"}, "content": "▁"}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, {"type": "Digits"},
                 {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]},
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                 {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "▁": 1, "a": 2, "b": 3, "ab": 4, "▁ab": 5, "<0x0A>": 6, "<0xC3>": 7},
            "merges": ["a b", "▁ ab"]}})";

void Exercise(const quire::text::Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, {});
  if (!ids.has_value()) return;
  for (const bool skip : {false, true}) {
    quire::text::StreamDecoder decoder(&tokenizer, {}, skip);
    std::string streamed;
    for (const TokenId id : *ids) streamed.append(decoder.Push(id));
    streamed.append(decoder.Finish());
    CHECK(streamed == quire::SanitizeUtf8(tokenizer.Decode(*ids, skip)));
  }
  std::vector<TokenId> arbitrary;
  for (const char c : text) arbitrary.emplace_back(static_cast<signed char>(c));
  (void)tokenizer.Decode(arbitrary, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  if (end == std::string_view::npos) {
    static const auto fixed = quire::text::LoadTokenizerJson(kFixed, "fixed").value();
    Exercise(*fixed, input);
    return 0;
  }
  const auto tokenizer = quire::text::LoadTokenizerJson(input.substr(0, end), "fuzz");
  if (tokenizer.has_value()) Exercise(**tokenizer, input.substr(end + 1));
  return 0;
}
