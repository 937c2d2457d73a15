// Finds stop strings in the text of one choice as it grows, and holds back what may yet become one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::text {

class StopMatcher {
 public:
  // `include_stop`: the stop string is part of the output. Stop strings that are empty or not valid UTF-8
  // never match, because the text is valid UTF-8 and a stop must not cut a character in two.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  // Appends text; returns what is safe to show now. After a match nothing more is returned.
  std::string Push(std::string_view text);
  // The same for text in which no stop string may end (min_tokens); one that begins in it may end later.
  std::string PushWithoutMatch(std::string_view text);
  // The end of the text: what was held back.
  std::string Finish();

  // The stop string that matched: of all, the one that completes earliest; ties by the order of the list.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  // One stop string and how much of it the text ends with (Knuth, Morris and Pratt's automaton).
  struct Stop {
    std::string text;
    std::vector<std::uint32_t> border;  // [i]: the longest proper border of text[0, i), for i in 1..size
    std::uint32_t matched_bytes = 0;

    void Advance(char c);
  };

  std::string Append(std::string_view text, bool may_match);

  std::vector<Stop> stops_;
  bool include_stop_;
  std::string held_;  // the text not yet shown: the longest end of the text that begins a stop string
  std::optional<std::string> matched_;
};

}  // namespace quire::text
