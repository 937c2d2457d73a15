#include "text/pattern.h"

#include <oniguruma.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/utf8.h"

namespace quire::text {
namespace {

// Steps that one search through a text may take. Honest patterns need a few for each byte.
constexpr std::uint64_t kStepsPerByteMax = 256;
constexpr std::uint64_t kStepsMin = 65536;

// Oniguruma does not say how many steps a search took, so each search begins with a small allowance, which is
// doubled, at the expense of the whole text's allowance, when it did not suffice.
constexpr unsigned long kFirstAllowance = 1024;

// Entries of the backtracking stack, of some 32 bytes each.
constexpr unsigned int kMatchStackMax = 4'000'000;

// Not everything that Oniguruma does counts as a step: a repetition walks forward for free, so that a hostile pattern
// still takes the square of the text's size. Such a search is given up after this time, which is a hundred times what
// an honest pattern needs. It is done in parts of so many start positions that one part cannot take long.
constexpr std::chrono::nanoseconds kTimeMin = std::chrono::seconds(1);
constexpr std::chrono::nanoseconds kTimePerByte = std::chrono::microseconds(2);
constexpr std::size_t kPartWork = std::size_t{8} << 20;

// The longest regular expression that is compiled: the longest known is a tenth of this.
constexpr std::size_t kRegexBytesMax = 16384;

const OnigUChar* Bytes(const char* text) {
  return reinterpret_cast<const OnigUChar*>(text);
}

struct FreeRegion {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};
struct FreeMatchParam {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

}  // namespace

struct Pattern::Compiled {
  regex_t* regex = nullptr;

  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    if (regex != nullptr) onig_free(regex);
  }
};

Pattern::Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Result<Pattern> Pattern::Regex(std::string_view regex, std::string_view name, PatternEngine engine) {
  if (regex.size() > kRegexBytesMax) {
    return Fail(ErrorCode::kOutOfRange, "{}: a regular expression of {} bytes; at most {} are allowed", name,
                regex.size(), kRegexBytesMax);
  }
  Pattern pattern;
  pattern.source_ = regex;
  if (engine == PatternEngine::kBest) pattern.lexer_ = SplitLexer::Compile(regex);
  if (pattern.lexer_.has_value()) return pattern;
  OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
  if (onig_initialize(encodings, 1) != ONIG_NORMAL) {
    return Fail(ErrorCode::kInternal, "the regular-expression library did not start");
  }
  auto compiled = std::make_unique<Compiled>();
  OnigErrorInfo info = {};
  const int status = onig_new(&compiled->regex, Bytes(regex.data()), Bytes(regex.data() + regex.size()),
                              ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
  if (status != ONIG_NORMAL) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN] = {};
    onig_error_code_to_str(message, status, &info);
    return Fail(ErrorCode::kCorrupt, "{}: the regular expression \"{}\" cannot be compiled: {}", name, regex,
                reinterpret_cast<const char*>(message));
  }
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

Result<Pattern> Pattern::Literal(std::string_view text, std::string_view name) {
  if (text.empty()) return Regex(text, name);
  Pattern pattern;
  pattern.source_ = text;
  pattern.is_literal_ = true;
  return pattern;
}

Result<> Pattern::FindAll(std::string_view text, std::vector<Span>* matches) const {
  matches->clear();
  if (text.empty()) return {};
  if (is_literal_) {
    for (std::size_t at = 0; (at = text.find(source_, at)) != std::string_view::npos; at += source_.size()) {
      matches->push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + source_.size())});
    }
    return {};
  }
  if (!lexer_.has_value()) return FindAllByOniguruma(text, matches);
  if (!lexer_->FindAll(text, kStepsMin + kStepsPerByteMax * text.size(), matches)) {
    return Fail(ErrorCode::kOutOfRange, "the regular expression \"{}\" takes too many steps on this text", source_);
  }
  return {};
}

Result<> Pattern::FindAllByOniguruma(std::string_view text, std::vector<Span>* matches) const {
  const std::unique_ptr<OnigRegion, FreeRegion> region(onig_region_new());
  const std::unique_ptr<OnigMatchParam, FreeMatchParam> param(onig_new_match_param());
  CHECK(region != nullptr && param != nullptr);
  const OnigUChar* begin = Bytes(text.data());
  const auto too_much = [&] {
    return Fail(ErrorCode::kOutOfRange, "the regular expression \"{}\" takes too many steps on this text", source_);
  };
  const auto deadline = std::chrono::steady_clock::now() + kTimeMin + kTimePerByte * text.size();
  std::uint64_t steps_left = kStepsMin + kStepsPerByteMax * text.size();
  unsigned long allowance = kFirstAllowance;
  std::size_t last_match_end = static_cast<std::size_t>(-1);
  for (std::size_t at = 0; at <= text.size();) {
    if (std::chrono::steady_clock::now() > deadline) return too_much();
    // Start positions at … part_end, which stands on a character.
    std::size_t part_end = std::min(text.size(), at + 1 + kPartWork / (text.size() - at + 1));
    while (part_end < text.size() && (static_cast<unsigned char>(text[part_end]) & 0xC0) == 0x80) ++part_end;
    onig_initialize_match_param(param.get());
    onig_set_retry_limit_in_match_of_match_param(param.get(), allowance);
    onig_set_retry_limit_in_search_of_match_param(param.get(), allowance);
    onig_set_match_stack_limit_size_of_match_param(param.get(), kMatchStackMax);
    const int found = onig_search_with_param(compiled_->regex, begin, begin + text.size(), begin + at, begin + part_end,
                                             region.get(), ONIG_OPTION_NONE, param.get());
    if (found == ONIG_MISMATCH) {
      if (part_end == text.size()) break;
      at = part_end;
      continue;
    }
    if (found < 0) {
      const bool retry = found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER || found == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
      if (!retry || steps_left < allowance) return too_much();
      steps_left -= allowance;
      allowance *= 2;
      continue;
    }
    allowance = kFirstAllowance;
    const auto first = static_cast<std::size_t>(region->beg[0]);
    const auto last = static_cast<std::size_t>(region->end[0]);
    // An empty match right behind the match before does not count; the search goes on one character further.
    if (first == last && last_match_end == last) {
      if (at >= text.size()) break;
      at += DecodeUtf8(text.substr(at)).size;
      continue;
    }
    matches->push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last)});
    at = last;
    last_match_end = last;
  }
  return {};
}

}  // namespace quire::text
