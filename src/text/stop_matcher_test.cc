// Stop strings: what is shown and when, against a search of the whole text.
#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"

namespace quire::text {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> matched;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// The definition: of all stop strings the one that completes earliest, ties by the order of the list.
Outcome Expected(const std::string& text, const std::vector<std::string>& stops, bool include_stop) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    for (const std::string& stop : stops) {
      if (stop.empty() || !std::string_view(text).substr(0, end).ends_with(stop)) continue;
      return {text.substr(0, include_stop ? end : end - stop.size()), stop};
    }
  }
  return {text, std::nullopt};
}

// Pushes the text in pieces that end at the given offsets.
Outcome Streamed(const std::string& text, const std::vector<std::size_t>& cuts, const std::vector<std::string>& stops,
                 bool include_stop) {
  StopMatcher matcher(stops, include_stop);
  std::string shown;
  std::size_t begin = 0;
  for (const std::size_t end : cuts) {
    shown.append(matcher.Push(std::string_view(text).substr(begin, end - begin)));
    EXPECT_TRUE(IsValidUtf8(shown)) << shown;
    begin = end;
  }
  shown.append(matcher.Push(std::string_view(text).substr(begin)));
  shown.append(matcher.Finish());
  return {shown, matcher.matched()};
}

TEST(StopMatcher, ShowsTheTextBeforeTheStopInTheSamePiece) {  // STOP-02
  StopMatcher matcher({"\n"}, false);
  EXPECT_EQ(matcher.Push("Why"), "Why");
  EXPECT_EQ(matcher.Push("?\n"), "?");
  EXPECT_EQ(matcher.matched(), "\n");
  EXPECT_EQ(matcher.Push("more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, OverlapsOfPartialMatches) {  // STOP-03
  EXPECT_EQ(Streamed("aaab", {1, 2, 3}, {"aab"}, false), (Outcome{"a", "aab"}));
  EXPECT_EQ(Streamed("aabaab", {1, 2, 3, 4}, {"aabab"}, false), (Outcome{"aabaab", std::nullopt}));
  EXPECT_EQ(Streamed("xababab!", {2, 4, 6}, {"abab!"}, false), (Outcome{"xab", "abab!"}));
}

TEST(StopMatcher, MatchesInsideAPiece) {  // STOP-05
  StopMatcher matcher({"END"}, false);
  EXPECT_EQ(matcher.Push("the E"), "the ");
  EXPECT_EQ(matcher.Push("NDing"), "");
  EXPECT_EQ(matcher.matched(), "END");
}

TEST(StopMatcher, HoldsBackWhatBeginsAStop) {  // STOP-06
  StopMatcher matcher({"<|im_end|>"}, false);
  EXPECT_EQ(matcher.Push("hi<|im_"), "hi");
  EXPECT_EQ(matcher.Push("end|"), "");
  EXPECT_EQ(matcher.Push(">x"), "");
  EXPECT_EQ(matcher.matched(), "<|im_end|>");
  StopMatcher other({"<|im_end|>"}, false);
  EXPECT_EQ(other.Push("a<|im_"), "a");
  EXPECT_EQ(other.Push("start"), "<|im_start");
  EXPECT_EQ(other.Push("<|"), "");
  EXPECT_EQ(other.Finish(), "<|");
  EXPECT_EQ(other.matched(), std::nullopt);
}

TEST(StopMatcher, HoldsBackNoMoreThanItMust) {
  StopMatcher matcher({std::string(100, '#')}, false);
  EXPECT_EQ(matcher.Push("nothing to hold"), "nothing to hold");
  EXPECT_EQ(matcher.Push(" ##"), " ");
  EXPECT_EQ(matcher.Push("."), "##.");
  // What is shown anyway need not wait.
  StopMatcher including({"stop"}, true);
  EXPECT_EQ(including.Push("now st"), "now st");
  EXPECT_EQ(including.Push("op it"), "op");
  EXPECT_EQ(including.matched(), "stop");
}

TEST(StopMatcher, TiesGoByTheOrderOfTheList) {
  EXPECT_EQ(Streamed("xab", {1, 2}, {"b", "ab"}, false), (Outcome{"xa", "b"}));
  EXPECT_EQ(Streamed("xab", {1, 2}, {"ab", "b"}, false), (Outcome{"x", "ab"}));
  EXPECT_EQ(Streamed("abcd", {2}, {"abcd", "bc"}, false), (Outcome{"a", "bc"}));
}

TEST(StopMatcher, IgnoresStopsThatCannotStandInText) {
  EXPECT_EQ(Streamed("é", {}, {"", "\xA9"}, false), (Outcome{"é", std::nullopt}));
}

TEST(StopMatcher, TheStreamEqualsTheSearchOfTheWholeText) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  static constexpr std::string_view kCharacters[] = {"a", "a", "b", "é", "ê", "🙂", "🙃"};
  const auto random_text = [&](std::size_t length) {
    std::string text;
    for (; length > 0; --length) text.append(kCharacters[random() % std::size(kCharacters)]);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) stop = random_text(1 + random() % 5);
    const std::string text = random_text(random() % 24);
    std::vector<std::size_t> cuts;
    for (std::size_t at = 0; at < text.size(); at += DecodeUtf8(std::string_view(text).substr(at)).size) {
      if (random() % 3 == 0) cuts.push_back(at);
    }
    const bool include_stop = random() % 4 == 0;
    ASSERT_EQ(Streamed(text, cuts, stops, include_stop), Expected(text, stops, include_stop)) << text;
  }
}

}  // namespace
}  // namespace quire::text
