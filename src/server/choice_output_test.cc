#include "server/choice_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "server/testing/byte_tokenizer.h"

namespace quire::server {
namespace {

using testing::ByteTokenizer;

struct Outcome {
  std::string text;
  std::vector<std::string> deltas;
  FinishReason finish = FinishReason::kNone;
  StopReason stop_reason;
  int num_tokens = 0;
  std::size_t num_kept = 0;
};

std::vector<TokenId> Ids(std::string_view text) {
  return *ByteTokenizer().Encode(text, {.add_special_tokens = false, .parse_special_tokens = true});
}

// Runs the ids through a choice, `group` of them to an event; the last event ends with `finish`.
Outcome RunChoice(const ChoiceOptions& options, std::vector<TokenId> ids, std::size_t group,
                  FinishReason finish = FinishReason::kLength, std::vector<TokenId> prompt = {}) {
  ByteTokenizer tokenizer;
  ChoiceOptions all = options;
  all.tokenizer = &tokenizer;
  all.keep_tokens = true;
  ChoiceOutput output(all, prompt);
  Outcome outcome;
  for (std::size_t at = 0; at < ids.size(); at += group) {
    EngineEvent event;
    event.tokens.assign(ids.begin() + static_cast<std::ptrdiff_t>(at),
                        ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), at + group)));
    if (at + group >= ids.size()) event.finish_reason = finish;
    output.Push(event);
    const std::string delta = output.TakeText();
    EXPECT_TRUE(IsValidUtf8(delta)) << delta;
    if (!delta.empty()) outcome.deltas.push_back(delta);
    outcome.text += delta;
    outcome.num_kept += output.TakeTokens().size();
  }
  outcome.finish = output.finish_reason();
  outcome.stop_reason = output.stop_reason();
  outcome.num_tokens = output.num_tokens();
  return outcome;
}

// UTF8-08, STREAM-02, STOP-02, STOP-03, STOP-06: whatever the grouping, the pieces make the same text; each piece is
// valid UTF-8 and none is empty.
TEST(ChoiceOutput, IsIndependentOfTheGrouping) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> alphabet = {"a",  "a", "b",  "?",    "\n",     ".",
                                             "🌶", "ü", "你", "<|im", "_end|>", "\xF0\x9F"};
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (unsigned i = random() % 40; i > 0; --i) text += alphabet[random() % alphabet.size()];
    text += "x";
    ChoiceOptions options;
    for (unsigned i = random() % 3; i > 0; --i) {
      std::string stop;
      for (unsigned j = 1 + random() % 3; j > 0; --j) stop += alphabet[random() % 9];
      options.stops.push_back(stop);
    }
    options.include_stop = random() % 2 == 0;
    options.min_tokens = static_cast<int>(random() % 8);
    const Outcome whole = RunChoice(options, Ids(text), 1000);
    for (std::size_t group = 1; group < 12; ++group) {
      const Outcome pieces = RunChoice(options, Ids(text), group);
      ASSERT_EQ(pieces.text, whole.text) << "text " << text << " group " << group;
      ASSERT_EQ(pieces.finish, whole.finish);
      ASSERT_EQ(pieces.stop_reason, whole.stop_reason);
      ASSERT_EQ(pieces.num_tokens, whole.num_tokens);
      ASSERT_EQ(pieces.num_kept, static_cast<std::size_t>(whole.num_tokens));
    }
  }
}

// Against a plain search in the whole text.
TEST(ChoiceOutput, StopsAtTheMatchThatCompletesFirst) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned i = 1 + random() % 24; i > 0; --i) text += "ab"[random() % 2];
    std::vector<std::string> stops;
    for (unsigned i = 1 + random() % 3; i > 0; --i) {
      std::string stop;
      for (unsigned j = 1 + random() % 4; j > 0; --j) stop += "ab"[random() % 2];
      stops.push_back(stop);
    }
    const auto min_tokens = static_cast<std::size_t>(random() % 6);
    std::optional<std::string> stopped_by;
    std::string expected = text;
    for (std::size_t end = min_tokens + 1; end <= text.size() && !stopped_by; ++end) {
      for (const std::string& stop : stops) {
        if (!std::string_view(text).substr(0, end).ends_with(stop)) continue;
        stopped_by = stop;
        expected = text.substr(0, end - stop.size());
        break;
      }
    }
    const Outcome outcome =
        RunChoice({.stops = stops, .min_tokens = static_cast<int>(min_tokens)}, Ids(text), 1 + random() % 5);
    ASSERT_EQ(outcome.text, expected) << text;
    ASSERT_EQ(outcome.finish, stopped_by ? FinishReason::kStop : FinishReason::kLength);
    if (stopped_by) {
      ASSERT_EQ(std::get<std::string>(outcome.stop_reason), *stopped_by);
    }
  }
}

// STOP-02: text before the stop inside the same token is delivered.
TEST(ChoiceOutput, DeliversTextBeforeTheStop) {
  EXPECT_EQ(RunChoice({.stops = {"\n"}}, Ids("why?\nmore"), 6).text, "why?");
  EXPECT_EQ(RunChoice({.stops = {"\n"}, .include_stop = true}, Ids("why?\nmore"), 6).text, "why?\n");
}

// STOP-03: a partial match that begins anew inside itself.
TEST(ChoiceOutput, FindsOverlappingStops) {
  EXPECT_EQ(RunChoice({.stops = {"aab"}}, Ids("aaab!"), 1).text, "a");
}

// STREAM-03: while text is held back nothing is sent.
TEST(ChoiceOutput, HeldBackTextMakesNoEmptyDeltas) {
  const Outcome outcome = RunChoice({.stops = {"STOP"}}, Ids("STORY"), 1);
  EXPECT_THAT(outcome.deltas, ::testing::ElementsAre("STOR", "Y"));
}

// UTF8-02: the end of the generation in the middle of a character gives one U+FFFD.
TEST(ChoiceOutput, IncompleteTailBecomesOneReplacementCharacter) {
  EXPECT_EQ(RunChoice({}, Ids("ok \xF0\x9F\x8C"), 1).text, "ok \uFFFD");
}

// UTF8-04, UTF8-05: bytes that are no UTF-8 at all.
TEST(ChoiceOutput, InvalidBytesBecomeReplacementCharacters) {
  EXPECT_EQ(RunChoice({}, Ids("a\x80\xFFz"), 1).text, "a\uFFFD\uFFFDz");
}

// UTF8-01: a prompt that ends inside a character is no part of the output.
TEST(ChoiceOutput, DanglingPromptBytesAreNotShown) {
  const std::string pepper = "🌶";
  const Outcome completed =
      RunChoice({}, Ids(pepper.substr(2) + "hot"), 1, FinishReason::kLength, Ids("eat " + pepper.substr(0, 2)));
  EXPECT_EQ(completed.text, "hot");
  const Outcome broken = RunChoice({}, Ids("hot"), 1, FinishReason::kLength, Ids("eat " + pepper.substr(0, 2)));
  EXPECT_THAT(broken.text, ::testing::AnyOf("hot", "\uFFFDhot"));
}

// STOP-05: a stop token removes no visible text, and its own is not shown unless it is asked for.
TEST(ChoiceOutput, StopTokenIsCountedAndNotShown) {
  std::vector<TokenId> ids = Ids("done.");
  ids.push_back(ByteTokenizer::kImEnd);
  const Outcome skipped = RunChoice({}, ids, 2, FinishReason::kStop);
  EXPECT_EQ(skipped.text, "done.");
  EXPECT_EQ(skipped.num_tokens, 6);
  EXPECT_EQ(RunChoice({.skip_special_tokens = false}, ids, 2, FinishReason::kStop).text, "done.");
  EXPECT_EQ(RunChoice({.include_stop = true, .skip_special_tokens = false}, ids, 2, FinishReason::kStop).text,
            "done.<|im_end|>");
  EXPECT_EQ(RunChoice({.include_stop = true}, ids, 2, FinishReason::kStop).text, "done.");
}

// A stop string that completes with the last allowed token is the reason, not the length.
TEST(ChoiceOutput, StopStringWinsOverLength) {
  const Outcome outcome = RunChoice({.stops = {"end"}}, Ids("the end"), 1);
  EXPECT_EQ(outcome.finish, FinishReason::kStop);
  EXPECT_EQ(outcome.text, "the ");
}

// STOP-06: EOS-like text of ordinary characters never shows its beginning.
TEST(ChoiceOutput, HoldsBackTextThatLooksLikeTheStop) {
  const std::vector<TokenId> ids =
      *ByteTokenizer().Encode("bye<|im_end|>and more", {.add_special_tokens = false, .parse_special_tokens = false});
  for (std::size_t group = 1; group < 12; ++group) {
    const Outcome outcome = RunChoice({.stops = {"<|im_end|>"}}, ids, group);
    EXPECT_EQ(outcome.text, "bye");
  }
}

TEST(ChoiceOutput, TextOffsetsCountCodePoints) {
  ByteTokenizer tokenizer;
  ChoiceOutput output({.tokenizer = &tokenizer, .keep_tokens = true, .text_offset = 3}, {});
  EngineEvent event;
  const std::vector<TokenId> ids = Ids("üx");
  event.tokens.assign(ids.begin(), ids.end());
  output.Push(event);
  const auto tokens = output.TakeTokens();
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0].text_offset, 3u);
  EXPECT_EQ(tokens[1].text_offset, 3u);  // the character is not complete before it
  EXPECT_EQ(tokens[2].text_offset, 4u);
}

// The engine looks for stop strings of beams itself: the last token completes one, and its text counts.
TEST(ChoiceOutput, ABeamThatATextHasEnded) {
  ByteTokenizer tokenizer;
  ChoiceOutput output({.tokenizer = &tokenizer, .stops = {"lo"}}, {});
  EngineEvent event;
  const auto hear = [&event](std::string_view text) {
    const std::vector<TokenId> ids = Ids(text);
    event.tokens.assign(ids.begin(), ids.end());
  };
  hear("Hel");
  output.Push(event);
  EXPECT_EQ(output.TakeText(), "He") << "an l may begin the stop string";
  hear("lo");
  event.finish_reason = FinishReason::kStop;
  event.ended_by_text = true;
  output.Push(event);
  EXPECT_EQ(output.TakeText(), "l");
  EXPECT_EQ(output.finish_reason(), FinishReason::kStop);
  EXPECT_EQ(std::get<std::string>(output.stop_reason()), "lo");
}

}  // namespace
}  // namespace quire::server
