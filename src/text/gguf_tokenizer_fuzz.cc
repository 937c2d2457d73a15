// Arbitrary bytes as a GGUF vocabulary: lines of tokens, each behind a byte for its type and one for its score, and
// behind an empty line the merges.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static constexpr std::string_view kPre[] = {"default", "gpt-2", "llama-bpe", "qwen2", "deepseek-coder", "nonsense"};
  quire::GgufVocabulary vocabulary;
  vocabulary.model = (data[0] & 1) != 0 ? "llama" : "gpt2";
  vocabulary.pre = kPre[(data[0] >> 1) % std::size(kPre)];
  vocabulary.add_bos = (data[0] & 64) != 0;
  vocabulary.bos_id = static_cast<std::int8_t>(data[1]);
  std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  bool merges = false;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    if (line.empty()) {
      merges = true;
    } else if (merges) {
      vocabulary.merges.emplace_back(line);
    } else if (line.size() >= 2) {
      vocabulary.token_types.push_back(line[0]);
      vocabulary.scores.push_back(line[1]);
      vocabulary.tokens.emplace_back(line.substr(2));
    }
  }
  const auto tokenizer = quire::text::LoadGgufTokenizer(std::move(vocabulary), "fuzz");
  if (!tokenizer.has_value()) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto ids = (*tokenizer)->Encode(text, {});
  if (ids.has_value()) (void)(*tokenizer)->Decode(*ids, true);
  return 0;
}
