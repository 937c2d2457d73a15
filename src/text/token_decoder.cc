#include "text/token_decoder.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "text/byte_alphabet.h"

namespace quire::text {
namespace {

std::string ReplaceAll(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t match = std::min(text.find(pattern, at), text.size());
    out.append(text, at, match - at);
    if (match < text.size()) out.append(content);
    at = match + pattern.size();
  }
  return out;
}

void StripStart(std::string_view content, std::size_t count, std::string* entry) {
  std::size_t end = 0;
  while (count-- > 0 && std::string_view(*entry).substr(end).starts_with(content)) end += content.size();
  entry->erase(0, end);
}

void StripStop(std::string_view content, std::size_t count, std::string* entry) {
  while (count-- > 0 && entry->ends_with(content)) entry->resize(entry->size() - content.size());
}

std::optional<char> ByteOf(std::string_view entry) {
  if (entry.size() != 6 || !entry.starts_with("<0x") || entry[5] != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(entry.data() + 3, entry.data() + 5, value, 16);
  if (error != std::errc() || end != entry.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

struct StepRunner {
  bool first;
  std::string* entry;

  void operator()(const FromByteAlphabetStep&) const {
    std::string bytes;
    if (AppendFromByteAlphabet(*entry, &bytes)) *entry = std::move(bytes);
  }
  void operator()(const ByteFallbackStep&) const {
    if (const std::optional<char> byte = ByteOf(*entry)) *entry = *byte;
  }
  void operator()(const ReplaceTextStep& step) const { *entry = ReplaceAll(*entry, step.pattern, step.content); }
  void operator()(const StripTextStep& step) const {
    StripStart(step.content, step.start, entry);
    StripStop(step.content, step.stop, entry);
  }
  void operator()(const StripStartStep& step) const {
    if (first) StripStart(step.content, step.count, entry);
  }
  void operator()(const SpaceMarkStep& step) const {
    *entry = ReplaceAll(*entry, step.mark, first && step.drops_in_first ? "" : " ");
  }
  void operator()(const JoinWithSpacesStep&) const {
    if (!first) entry->insert(0, 1, ' ');
  }
};

}  // namespace

std::string TokenDecoder::Decode(std::string_view entry, bool first) const {
  std::string text(entry);
  for (const TokenDecoderStep& step : steps_) std::visit(StepRunner{first, &text}, step);
  return text;
}

bool TokenDecoder::StripsLeadingSpace() const {
  return std::ranges::any_of(steps_, [](const TokenDecoderStep& step) {
    if (const auto* strip = std::get_if<StripStartStep>(&step)) return strip->content == " " && strip->count > 0;
    if (const auto* mark = std::get_if<SpaceMarkStep>(&step)) return mark->drops_in_first;
    return false;
  });
}

}  // namespace quire::text
