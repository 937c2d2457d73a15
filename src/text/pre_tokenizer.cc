#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/unicode.h"

namespace quire::text {
namespace {

bool IsOfKind(CharacterKind kind, std::uint32_t c) {
  switch (kind) {
    case CharacterKind::kWhiteSpace:
      return IsWhiteSpace(c);
    case CharacterKind::kPunctuation:
      return IsPunctuation(c);
    case CharacterKind::kNumeric:
      return IsNumeric(c);
  }
  return false;
}

// Fills matches with every single character for which `is_match` holds.
template <typename Predicate>
void FindCharacters(std::string_view text, const Predicate& is_match, std::vector<Span>* matches) {
  matches->clear();
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text.substr(i));
    const std::size_t end = i + character.size;
    if (is_match(character.code_point)) {
      matches->push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(end)});
    }
    i = end;
  }
}

void FindWordRuns(std::string_view text, std::vector<Span>* matches) {
  enum class Run : std::uint8_t { kWhiteSpace, kWord, kOther };
  matches->clear();
  Run run = Run::kWhiteSpace;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text.substr(i));
    const std::uint32_t c = character.code_point;
    const Run now = IsWordCharacter(c) ? Run::kWord : IsWhiteSpace(c) ? Run::kWhiteSpace : Run::kOther;
    const auto begin = static_cast<std::uint32_t>(i);
    i += character.size;
    if (now != Run::kWhiteSpace && now != run) matches->push_back({begin, begin});
    if (now != Run::kWhiteSpace) matches->back().end = static_cast<std::uint32_t>(i);
    run = now;
  }
}

struct MatchFinder {
  std::string_view text;
  std::vector<Span>* matches;

  Result<> operator()(const Pattern& pattern) const { return pattern.FindAll(text, matches); }
  Result<> operator()(CharacterKind kind) const {
    FindCharacters(text, [&](std::uint32_t c) { return IsOfKind(kind, c); }, matches);
    return {};
  }
  Result<> operator()(const OneCharacter& one) const {
    FindCharacters(text, [&](std::uint32_t c) { return c == one.code_point; }, matches);
    return {};
  }
  Result<> operator()(const WordRuns&) const {
    FindWordRuns(text, matches);
    return {};
  }
};

// Appends the pieces that `parts` (matching or not, covering `piece`) become. Pieces that are empty fall
// away.
void AppendMerged(const std::vector<Span>& parts, const std::vector<std::uint8_t>& is_match, SplitBehavior behavior,
                  std::vector<Span>* out) {
  const std::size_t first = out->size();
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      out->insert(out->end(), parts.begin(), parts.end());
      break;
    case SplitBehavior::kRemoved:
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (is_match[i] == 0) out->push_back(parts[i]);
      }
      break;
    case SplitBehavior::kContiguous:
    case SplitBehavior::kMergedWithPrevious:
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const bool match = is_match[i] != 0;
        const bool joins = behavior == SplitBehavior::kContiguous ? match == previous_match : match && !previous_match;
        if (joins && out->size() > first) {
          out->back().end = parts[i].end;
        } else {
          out->push_back(parts[i]);
        }
        previous_match = match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (std::size_t i = parts.size(); i-- > 0;) {
        const bool match = is_match[i] != 0;
        if (match && !previous_match && out->size() > first) {
          out->back().begin = parts[i].begin;
        } else {
          out->push_back(parts[i]);
        }
        previous_match = match;
      }
      std::reverse(out->begin() + static_cast<std::ptrdiff_t>(first), out->end());
      break;
  }
  const auto is_empty = [](const Span& span) { return span.begin == span.end; };
  out->erase(std::remove_if(out->begin() + static_cast<std::ptrdiff_t>(first), out->end(), is_empty), out->end());
}

struct StepRunner {
  PreTokenizer::Pieces* pieces;

  Result<> operator()(const SplitStep& step) const {
    std::vector<Span>& out = pieces->new_spans;
    out.clear();
    const std::uint32_t origin = pieces->spans.empty() ? 0 : pieces->spans[0].begin;
    for (const Span& piece : pieces->spans) {
      QUIRE_TRY_VOID(std::visit(MatchFinder{piece.Of(pieces->text), &pieces->matches}, step.matcher));
      if (step.behavior == SplitBehavior::kIsolated) {
        AppendIsolated(piece, &out);
        continue;
      }
      std::vector<Span>& parts = pieces->parts;
      std::vector<std::uint8_t>& is_match = pieces->part_matches;
      parts.clear();
      is_match.clear();
      std::uint32_t done = piece.begin;
      const auto add = [&](std::uint32_t end, bool match) {
        parts.push_back({done, end});
        is_match.push_back(match != step.invert ? 1 : 0);
        done = end;
      };
      for (const Span& match : pieces->matches) {
        if (piece.begin + match.begin != done) add(piece.begin + match.begin, false);
        add(piece.begin + match.end, true);
      }
      if (done != piece.end) add(piece.end, false);
      AppendMerged(parts, is_match, step.behavior, &out);
    }
    std::swap(pieces->spans, out);
    pieces->first_is_at_origin &= !pieces->spans.empty() && pieces->spans[0].begin == origin;
    return {};
  }

  // The most frequent behavior, without the detour over parts.
  void AppendIsolated(const Span& piece, std::vector<Span>* out) const {
    std::uint32_t done = piece.begin;
    for (const Span& match : pieces->matches) {
      if (piece.begin + match.begin != done) out->push_back({done, piece.begin + match.begin});
      if (match.begin != match.end) out->push_back({piece.begin + match.begin, piece.begin + match.end});
      done = piece.begin + match.end;
    }
    if (done != piece.end) out->push_back({done, piece.end});
  }

  Result<> operator()(const PrefixStep& step) const {
    Rewrite([&](std::string_view piece, bool at_origin, std::string* out) {
      if (!piece.starts_with(step.prefix) && (at_origin || !step.only_at_origin)) out->append(step.prefix);
      out->append(piece);
    });
    return {};
  }

  Result<> operator()(const ReplaceSpacesStep& step) const {
    Rewrite([&](std::string_view piece, bool, std::string* out) {
      for (std::size_t at = 0; at < piece.size();) {
        const std::size_t space = std::min(piece.find(' ', at), piece.size());
        out->append(piece, at, space - at);
        if (space < piece.size()) out->append(step.replacement);
        at = space + 1;
      }
    });
    return {};
  }

  Result<> operator()(const MapBytesStep&) const {
    Rewrite([](std::string_view piece, bool, std::string* out) { AppendByteAlphabet(piece, out); });
    return {};
  }

  template <typename Function>
  void Rewrite(const Function& append) const {
    std::string& out = pieces->new_buffer;
    out.clear();
    bool at_origin = pieces->first_is_at_origin;
    for (Span& piece : pieces->spans) {
      const auto begin = static_cast<std::uint32_t>(out.size());
      append(piece.Of(pieces->text), std::exchange(at_origin, false), &out);
      piece = {begin, static_cast<std::uint32_t>(out.size())};
    }
    std::swap(pieces->buffer, out);
    pieces->text = pieces->buffer;
  }
};

}  // namespace

bool PreTokenizer::TakeFinalByteMapping() {
  if (steps_.empty() || !std::holds_alternative<MapBytesStep>(steps_.back())) return false;
  steps_.pop_back();
  return true;
}

Result<> PreTokenizer::Run(std::string_view text, bool at_origin, Pieces* pieces) const {
  pieces->text = text;
  pieces->spans.assign(1, {0, static_cast<std::uint32_t>(text.size())});
  if (text.empty()) pieces->spans.clear();
  pieces->first_is_at_origin = at_origin;
  for (const PreTokenizerStep& step : steps_) QUIRE_TRY_VOID(std::visit(StepRunner{pieces}, step));
  return {};
}

}  // namespace quire::text
