// Server-sent events, and what one answer's events come to.
#include <gtest/gtest.h>

#include "bench/load/answer_meter.h"
#include "bench/load/sse_parser.h"

namespace quire::bench::load {
namespace {

std::vector<std::string> EventsOf(std::vector<std::string> pieces) {
  std::vector<std::string> events;
  const auto take = [&](std::string_view data) -> Result<> {
    events.emplace_back(data);
    return {};
  };
  SseParser parser;
  for (const std::string& piece : pieces) EXPECT_TRUE(parser.Feed(piece, take).has_value());
  EXPECT_TRUE(parser.Finish(take).has_value());
  return events;
}

TEST(SseParser, FindsData) {
  using Events = std::vector<std::string>;
  EXPECT_EQ(EventsOf({"data: a\n\ndata: b\n\n"}), (Events{"a", "b"}));
  EXPECT_EQ(EventsOf({"data:a\r\n\r\ndata:  b\r\n\r\n"}), (Events{"a", " b"}));
  EXPECT_EQ(EventsOf({": ping\n\nevent: x\nid: 7\ndata: a\nretry: 5\n\n"}), (Events{"a"}));
  EXPECT_EQ(EventsOf({"data: a\ndata: b\n\n"}), (Events{"a\nb"}));
  EXPECT_EQ(EventsOf({"data\n\n"}), (Events{""}));
  EXPECT_EQ(EventsOf({"\n\n\n"}), (Events{}));
  EXPECT_EQ(EventsOf({"database: a\n\n"}), (Events{}));
  EXPECT_EQ(EventsOf({"data: a"}), (Events{"a"}));  // the body ended before the empty line
  EXPECT_EQ(EventsOf({"da", "ta", ": a", "\n", "\nda", "ta: ü\r", "\n\r\n"}), (Events{"a", "ü"}));
}

TEST(SseParser, HasALimit) {
  const auto take = [](std::string_view) -> Result<> { return {}; };
  SseParser one_line, many_lines;
  EXPECT_FALSE(one_line.Feed("data: " + std::string(SseParser::kEventBytesMax, 'x'), take).has_value());
  Result<> fed;
  for (int i = 0; i < 10 && fed; ++i) fed = many_lines.Feed("data: " + std::string(1 << 20, 'x') + "\n", take);
  EXPECT_FALSE(fed.has_value());
}

TEST(SseParser, StopsAtAnError) {
  SseParser parser;
  int count = 0;
  const auto take = [&](std::string_view) -> Result<> {
    ++count;
    return Fail(ErrorCode::kCorrupt, "no");
  };
  EXPECT_FALSE(parser.Feed("data: a\n\ndata: b\n\n", take).has_value());
  EXPECT_EQ(count, 1);
}

std::string Completion(std::string_view text, std::string_view finish = "null") {
  return fmt::format(R"({{"choices":[{{"text":"{}","finish_reason":{}}}]}})", text, finish);
}
std::string Delta(std::string_view delta, std::string_view finish = "null") {
  return fmt::format(R"({{"choices":[{{"delta":{},"finish_reason":{}}}]}})", delta, finish);
}

TEST(AnswerMeter, CountsFromTheFirstChunkToTheLast) {
  Outcome outcome;
  AnswerMeter meter(/*is_chat=*/false, &outcome);
  ASSERT_TRUE(meter.Take(Completion("a"), 0.5).has_value());
  ASSERT_TRUE(meter.Take(Completion(""), 0.75).has_value());  // a token that is not yet a character
  ASSERT_TRUE(meter.Take(Completion("b", "\"length\""), 1.0).has_value());
  ASSERT_TRUE(meter.Take(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}})", 7.0).has_value());
  ASSERT_TRUE(meter.Take("[DONE]", 8.0).has_value());
  ASSERT_TRUE(meter.Finish().has_value());
  EXPECT_EQ(outcome.ttft_seconds, 0.5);
  EXPECT_EQ(outcome.itl_seconds, (std::vector<double>{0.25, 0.25}));
  EXPECT_EQ(outcome.latency_seconds, 1.0);  // what comes after the last choice does not count
  EXPECT_EQ(outcome.num_output_tokens, 5);
  EXPECT_EQ(outcome.tpot_seconds(), 0.125);  // 0.5 / 4
  EXPECT_EQ(outcome.num_prompt_tokens, 9);
  EXPECT_TRUE(outcome.has_usage);
}

TEST(AnswerMeter, ARoleAloneIsNoToken) {
  Outcome outcome;
  AnswerMeter meter(/*is_chat=*/true, &outcome);
  ASSERT_TRUE(meter.Take(Delta(R"({"role":"assistant","content":""})"), 0.1).has_value());
  ASSERT_TRUE(meter.Take(Delta(R"({"role":"assistant","content":null})"), 0.2).has_value());
  ASSERT_TRUE(meter.Take(Delta(R"({"reasoning_content":"hm"})"), 0.5).has_value());
  ASSERT_TRUE(meter.Take(Delta(R"({"content":"yes"})"), 0.75).has_value());
  ASSERT_TRUE(meter.Take(Delta("{}", "\"stop\""), 1.0).has_value());
  ASSERT_TRUE(meter.Finish().has_value());  // it has ended, though nobody says [DONE]
  EXPECT_EQ(outcome.ttft_seconds, 0.5);
  EXPECT_EQ(outcome.itl_seconds, (std::vector<double>{0.25, 0.25}));
  EXPECT_EQ(outcome.num_output_tokens, 2);  // chunks with text stand for what nobody counted
  EXPECT_FALSE(outcome.has_usage);
}

TEST(AnswerMeter, ARoleWithTextIsAToken) {
  Outcome outcome;
  AnswerMeter meter(/*is_chat=*/true, &outcome);
  ASSERT_TRUE(meter.Take(Delta(R"({"role":"assistant","content":"a"})", "\"stop\""), 0.25).has_value());
  ASSERT_TRUE(meter.Finish().has_value());
  EXPECT_EQ(outcome.ttft_seconds, 0.25);
  EXPECT_EQ(outcome.num_output_tokens, 1);
  EXPECT_EQ(outcome.tpot_seconds(), 0);
}

TEST(AnswerMeter, TakesNonsenseForWhatItIs) {
  for (const char* event : {"", "{", "[]", "null", R"({"choices":[3]})", R"({"error":"bad"})",
                            R"({"error":{"message":"bad","code":500}})"}) {
    Outcome outcome;
    EXPECT_FALSE(AnswerMeter(false, &outcome).Take(event, 1).has_value()) << event;
  }
  for (const char* event : {"{}", R"({"choices":null})", R"({"choices":{}})", R"({"usage":7})", R"({"error":null})",
                            R"({"usage":{"completion_tokens":-5,"prompt_tokens":"x"}})"}) {
    Outcome outcome;
    AnswerMeter meter(false, &outcome);
    EXPECT_TRUE(meter.Take(event, 1).has_value()) << event;
    EXPECT_FALSE(meter.Finish().has_value()) << event;  // no chunk came
  }
}

TEST(AnswerMeter, AnAnswerThatBreaksOffHasFailed) {
  Outcome outcome;
  AnswerMeter meter(false, &outcome);
  ASSERT_TRUE(meter.Take(Completion("a"), 0.5).has_value());
  EXPECT_FALSE(meter.Finish().has_value());
}

}  // namespace
}  // namespace quire::bench::load
