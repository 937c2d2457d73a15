#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace quire::text {

void StopMatcher::Stop::Advance(char c) {
  while (matched_bytes > 0 && text[matched_bytes] != c) matched_bytes = border[matched_bytes];
  if (text[matched_bytes] == c) ++matched_bytes;
}

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop) : include_stop_(include_stop) {
  for (std::string& text : stops) {
    if (text.empty() || !IsValidUtf8(text)) continue;
    std::vector<std::uint32_t> border(text.size() + 1, 0);
    for (std::size_t i = 1; i < text.size(); ++i) {
      std::uint32_t length = border[i];
      while (length > 0 && text[length] != text[i]) length = border[length];
      border[i + 1] = text[length] == text[i] ? length + 1 : 0;
    }
    stops_.push_back({.text = std::move(text), .border = std::move(border)});
  }
}

std::string StopMatcher::Push(std::string_view text) {
  return Append(text, /*may_match=*/true);
}

std::string StopMatcher::PushWithoutMatch(std::string_view text) {
  return Append(text, /*may_match=*/false);
}

std::string StopMatcher::Append(std::string_view text, bool may_match) {
  if (matched_.has_value()) return {};
  const std::size_t held_before = held_.size();
  held_.append(text);
  std::size_t keep = 0;  // bytes at the end that may yet become a stop string
  for (std::size_t i = held_before; i < held_.size(); ++i) {
    keep = 0;
    for (Stop& stop : stops_) {
      stop.Advance(held_[i]);
      if (stop.matched_bytes == stop.text.size()) {
        if (!may_match) {
          stop.matched_bytes = stop.border[stop.matched_bytes];
          keep = std::max<std::size_t>(keep, stop.matched_bytes);
          continue;
        }
        matched_ = stop.text;
        held_.resize(include_stop_ ? i + 1 : i + 1 - stop.text.size());
        return std::exchange(held_, {});
      }
      keep = std::max<std::size_t>(keep, stop.matched_bytes);
    }
  }
  if (text.empty()) return {};
  // A stop string that is shown anyway needs no holding back.
  if (include_stop_) keep = 0;
  DCHECK(keep <= held_.size());
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::Finish() {
  return matched_.has_value() ? std::string() : std::exchange(held_, {});
}

}  // namespace quire::text
