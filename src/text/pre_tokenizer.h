// The pre-tokenizer: cuts a normalised text into words, by the steps of tokenizer.json in their order. Steps
// cut the pieces further or rewrite them; composite components (ByteLevel, Metaspace) are several steps here.
// Immutable after construction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/pattern.h"
#include "text/span.h"

namespace quire::text {

// What becomes of the parts that match: a piece each, nothing, one piece with their equals, or a part of a
// neighbour.
enum class SplitBehavior : std::uint8_t { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

// Matchers that are not patterns.
enum class CharacterKind : std::uint8_t { kWhiteSpace, kPunctuation, kNumeric };
struct OneCharacter {
  std::uint32_t code_point;
};
struct WordRuns {};  // runs of word characters, and runs of what is neither word nor white space

struct SplitStep {
  std::variant<Pattern, CharacterKind, OneCharacter, WordRuns> matcher;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what does not match counts as a match, and the reverse
};
// Puts `prefix` before every piece that does not begin with it, or only before the one at the start of the
// input.
struct PrefixStep {
  std::string prefix;
  bool only_at_origin = false;
};
// Spaces become another character.
struct ReplaceSpacesStep {
  std::string replacement;
};
// Every byte becomes a character of the byte alphabet.
struct MapBytesStep {};

using PreTokenizerStep = std::variant<SplitStep, PrefixStep, ReplaceSpacesStep, MapBytesStep>;

class PreTokenizer {
 public:
  // Room to work in, and the result: the pieces of `text`.
  struct Pieces {
    std::string_view text;
    std::vector<Span> spans;

    bool first_is_at_origin = false;
    std::string buffer, new_buffer;
    std::vector<Span> new_spans, matches, parts;
    std::vector<std::uint8_t> part_matches;
  };

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  // Takes a MapBytesStep off the end, when one stands there: the words are then raw bytes, for a model that
  // does the mapping by itself.
  bool TakeFinalByteMapping();

  // `at_origin`: the text begins where the whole input begins.
  Result<> Run(std::string_view text, bool at_origin, Pieces* pieces) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace quire::text
