// The normalizer of a tokenizer: steps that rewrite the text before it is cut into words. Immutable after
// construction.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace quire::text {

struct LowercaseStep {};
struct StripAccentsStep {};  // removes all marks
struct ByteAlphabetStep {};  // every byte becomes a character of the byte alphabet
struct PrependStep {
  std::string text;  // before a text that is not empty
};
struct StripStep {
  bool left = false, right = false;  // white space
};
// White space (U+0020) at both ends vanishes, runs of it become one.
struct CollapseSpacesStep {};
struct ReplaceStep {
  Pattern pattern;
  std::string content;
};

using NormalizerStep = std::variant<NormalForm, LowercaseStep, StripAccentsStep, ByteAlphabetStep, PrependStep,
                                    StripStep, CollapseSpacesStep, ReplaceStep>;

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  // The normalised text: `text` itself when nothing changes, else a view into `buffer`. `at_origin` becomes
  // false when characters at the start are removed: what is left then does not begin where the input begins.
  Result<std::string_view> Apply(std::string_view text, std::string* buffer, bool* at_origin) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace quire::text
