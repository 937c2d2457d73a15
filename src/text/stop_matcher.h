// Finds stop strings in the text of one choice as it grows, and holds back what may yet become one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::text {

class StopMatcher {
 public:
  // `include_stop`: the stop string is part of the output.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  // Appends text; returns what is safe to show now. After a match nothing more is returned.
  std::string Push(std::string_view text);
  // The end of the text: what was held back.
  std::string Finish();

  // The stop string that matched: of all, the one that completes earliest; ties by the order of the list.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  std::size_t hold_back_ = 0;  // the longest stop string's bytes − 1
  std::string held_;           // the text not yet shown
  std::optional<std::string> matched_;
};

}  // namespace quire::text
