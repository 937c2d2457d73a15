// The decoder of a tokenizer: what bytes an entry of the vocabulary stands for. Every step works on one entry
// at a time, so that a sequence can be decoded as it grows; components that would have to see the next token
// are refused when the tokenizer is loaded. Immutable after construction.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quire::text {

struct FromByteAlphabetStep {};  // an entry of the byte alphabet's characters becomes its bytes
struct ByteFallbackStep {};      // "<0x0A>" becomes the byte
struct ReplaceTextStep {
  std::string pattern, content;  // `pattern` is not empty
};
struct StripTextStep {
  std::string content;              // one character
  std::size_t start = 0, stop = 0;  // how many at most, at the two ends of each entry
};
// How many `content` at most are removed at the start of the whole text. Stands behind whatever fuses the
// entries.
struct StripStartStep {
  std::string content;
  std::size_t count = 0;
};
// The mark becomes a space; in the first entry of a text, when `drops_in_first`, it vanishes.
struct SpaceMarkStep {
  std::string mark;
  bool drops_in_first = false;
};
// Without a decoder entries are joined by spaces.
struct JoinWithSpacesStep {};

using TokenDecoderStep = std::variant<FromByteAlphabetStep, ByteFallbackStep, ReplaceTextStep, StripTextStep,
                                      StripStartStep, SpaceMarkStep, JoinWithSpacesStep>;

class TokenDecoder {
 public:
  explicit TokenDecoder(std::vector<TokenDecoderStep> steps) : steps_(std::move(steps)) {}

  // `first`: no entry with bytes stands before this one.
  std::string Decode(std::string_view entry, bool first) const;
  // Whether the first entry of a text loses a leading space.
  bool StripsLeadingSpace() const;

 private:
  std::vector<TokenDecoderStep> steps_;
};

}  // namespace quire::text
