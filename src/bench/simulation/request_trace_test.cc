#include "bench/simulation/request_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

namespace quire::bench {
namespace {

std::filesystem::path WriteTrace(std::string_view name, std::string_view text) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(path) << text;
  return path;
}

TEST(RequestTrace, ReadsTracesByArrivalAndWithTheirPrefixes) {
  const std::filesystem::path path =
      WriteTrace("mooncake.jsonl",
                 "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 2]}\n"
                 "{\"timestamp\": 1000, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [0, 1]}\n");
  const auto trace = ReadTrace(path);
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->description, "mooncake.jsonl");
  const TraceRequest& first = trace->requests[0];
  EXPECT_EQ(first.arrival_seconds, 0);
  EXPECT_EQ(first.num_output_tokens, 7);
  EXPECT_EQ(first.num_prompt_tokens(), 1100);
  EXPECT_EQ(trace->requests[1].arrival_seconds, 2);
  EXPECT_EQ(trace->requests[1].num_prompt_tokens(), 600);
  const GenerateRequest a = MakeRequest(first, 1, 1000), b = MakeRequest(trace->requests[1], 2, 1000);
  EXPECT_EQ(std::ranges::mismatch(a.prompt, b.prompt).in1 - a.prompt.begin(), 512);
}

TEST(RequestTrace, ErrorsNameTheFileAndTheLine) {
  const auto trace = ReadTrace(WriteTrace("wrong.csv",
                                          "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                          "2023-11-16 18:17:03,5,5\n"
                                          "2023-11-16 18:17,5,5\n"));
  ASSERT_FALSE(trace.has_value());
  EXPECT_NE(trace.error().message.find("wrong.csv: line 3"), std::string::npos) << trace.error().message;
}

TEST(RequestTrace, BeamsAreAskedForWithoutADraw) {
  const GenerateRequest made = MakeRequest({.segments = {{1, 4}}, .num_output_tokens = 3, .beam_width = 4}, 1, 100);
  EXPECT_EQ(made.sampling.beam, BeamParams{.width = 4});
  EXPECT_EQ(made.sampling.temperature, 0);
  EXPECT_EQ(made.sampling.n, 1);
}

TEST(RequestTrace, TheRateStretchesTheGaps) {
  RequestTrace trace = MakeTrace({.num_prompts = 101});
  trace.SetRate(4);
  EXPECT_NEAR(trace.rate(), 4, 1e-9);
  EXPECT_NEAR(trace.requests.back().arrival_seconds, 25, 1e-6);
  trace.SetRate(0);
  EXPECT_EQ(trace.requests.back().arrival_seconds, 0);
  EXPECT_EQ(trace.rate(), 0);
}

TEST(RequestTrace, ATraceThatIsTooShortComesAgainWithOtherContents) {
  RequestTrace trace{.description = "two",
                     .requests = {{.segments = {{7, 3}}}, {.arrival_seconds = 2, .segments = {{7, 3}}}}};
  trace.SetCount(5);
  ASSERT_EQ(trace.requests.size(), 5u);
  std::vector<double> arrivals;
  std::set<std::uint64_t> contents;
  for (const TraceRequest& request : trace.requests) {
    arrivals.push_back(request.arrival_seconds);
    contents.insert(request.segments[0].content);
  }
  EXPECT_EQ(arrivals, (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(contents.size(), 3u);  // one for each round
  trace.SetCount(1);
  EXPECT_EQ(trace.requests.size(), 1u);
}

TEST(RequestTrace, MadeUpLengthsHaveTheirMeanAndSpread) {
  const RequestTrace same = MakeTrace({.num_prompts = 10, .input_len = 30, .output_len = 5, .prefix_len = 20});
  for (const TraceRequest& request : same.requests) {
    EXPECT_EQ(request.num_prompt_tokens(), 30);
    EXPECT_EQ(request.num_output_tokens, 5);
    EXPECT_EQ(request.segments[0].content, same.requests[0].segments[0].content);
    EXPECT_EQ(request.segments[0].num_tokens, 20);
  }
  const RequestTrace spread = MakeTrace({.num_prompts = 20000, .input_len = 500, .output_len = 100, .length_cv = 1});
  double sum = 0, squares = 0;
  for (const TraceRequest& request : spread.requests) {
    sum += request.num_prompt_tokens();
    squares += double{1} * request.num_prompt_tokens() * request.num_prompt_tokens();
  }
  const double mean = sum / 20000;
  EXPECT_NEAR(mean, 500, 15);
  EXPECT_NEAR(std::sqrt(squares / 20000 - mean * mean) / mean, 1, 0.1);
}

TEST(RequestTrace, WrongSizesAreRefused) {
  EXPECT_EQ(SyntheticTraceConfig{.num_prompts = 0}.Validate().error().param, "num_prompts");
  EXPECT_EQ((SyntheticTraceConfig{.input_len = 10, .prefix_len = 10}.Validate().error().param), "prefix_len");
  EXPECT_EQ(SyntheticTraceConfig{.length_cv = -1}.Validate().error().param, "length_cv");
  EXPECT_EQ(SyntheticTraceConfig{.burstiness = 0}.Validate().error().param, "burstiness");
}

TEST(RequestTrace, ReadsTheTracesThatAreShared) {
  const std::filesystem::path folder = std::filesystem::path(QUIRE_SOURCE_DIR) / "../shared/workloads";
  if (!std::filesystem::exists(folder)) {
    std::printf("the shared workloads are absent: nothing of them is read\n");
    GTEST_SKIP();
  }
  const auto conversations = ReadTrace(folder / "AzureLLMInferenceTrace_conv.csv");
  ASSERT_TRUE(conversations.has_value()) << conversations.error().message;
  EXPECT_EQ(conversations->requests.size(), 19366u);
  EXPECT_NEAR(conversations->rate(), 5.5, 0.5);
  const auto mooncake = ReadTrace(folder / "mooncake_conversation_trace.jsonl");
  ASSERT_TRUE(mooncake.has_value()) << mooncake.error().message;
  EXPECT_EQ(mooncake->requests.size(), 12031u);
}

}  // namespace
}  // namespace quire::bench
