#include "text/normalizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "text/byte_alphabet.h"

namespace quire::text {
namespace {

// One step: the new text, or nothing when it stays as it is.
struct StepRunner {
  std::string_view text;
  bool* at_origin;
  using Change = Result<std::optional<std::string>>;

  Change operator()(NormalForm form) const {
    if (IsQuicklyInForm(form, text)) return std::nullopt;
    return Normalize(form, text);
  }
  Change operator()(const LowercaseStep&) const {
    return ForEachCharacter([](std::uint32_t c, std::string* out) { AppendLowercase(c, out); });
  }
  Change operator()(const StripAccentsStep&) const {
    return ForEachCharacter([](std::uint32_t c, std::string* out) {
      if (!IsMark(c)) AppendUtf8(c, out);
    });
  }
  Change operator()(const ByteAlphabetStep&) const {
    std::string out;
    AppendByteAlphabet(text, &out);
    return out;
  }
  Change operator()(const PrependStep& step) const {
    if (text.empty()) return std::nullopt;
    return step.text + std::string(text);
  }
  Change operator()(const StripStep& step) const {
    std::string_view kept = text;
    std::size_t end = 0;  // behind the last character that is not white space
    std::size_t begin = text.size();
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Char character = DecodeUtf8(text.substr(i));
      if (!IsWhiteSpace(character.code_point)) {
        begin = std::min(begin, i);
        end = i + character.size;
      }
      i += character.size;
    }
    if (step.right) kept = kept.substr(0, end);
    if (step.left) {
      begin = std::min(begin, kept.size());
      if (begin > 0) *at_origin = false;
      kept.remove_prefix(begin);
    }
    return std::string(kept);
  }
  Change operator()(const CollapseSpacesStep&) const {
    std::string out;
    for (const char c : text) {
      if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
    }
    if (out.ends_with(' ')) out.pop_back();
    return out;
  }
  Change operator()(const ReplaceStep& step) const {
    std::vector<Span> matches;
    QUIRE_TRY_VOID(step.pattern.FindAll(text, &matches));
    if (matches.empty()) return std::nullopt;
    std::string out;
    std::size_t done = 0;
    for (const Span& match : matches) {
      out.append(text, done, match.begin - done);
      out.append(step.content);
      done = match.end;
      if (out.size() > kTextBytesMax) {
        return Fail(ErrorCode::kOutOfRange, "the normalizer's replacements make the text longer than {} bytes",
                    kTextBytesMax);
      }
    }
    out.append(text, done);
    if (matches[0].begin == 0 && matches[0].end > 0 && step.content.empty()) *at_origin = false;
    return out;
  }

  template <typename Function>
  std::string ForEachCharacter(const Function& append) const {
    std::string out;
    out.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Char character = DecodeUtf8(rest);
      append(character.code_point, &out);
      rest.remove_prefix(character.size);
    }
    return out;
  }
};

}  // namespace

Result<std::string_view> Normalizer::Apply(std::string_view text, std::string* buffer, bool* at_origin) const {
  for (const NormalizerStep& step : steps_) {
    QUIRE_TRY(std::optional<std::string> changed, std::visit(StepRunner{text, at_origin}, step));
    if (!changed.has_value()) continue;
    *buffer = *std::move(changed);
    text = *buffer;
  }
  return text;
}

}  // namespace quire::text
