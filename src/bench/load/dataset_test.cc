// Requests: where they come from, when they are due, what is sent.
#include "bench/load/dataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "bench/load/arrivals.h"
#include "bench/load/request_body.h"

namespace quire::bench::load {
namespace {

json::value Parse(const std::string& text) {
  const Result<json::value> value = ParseJson(text, "body");
  EXPECT_TRUE(value.has_value()) << text;
  return value ? *value : json::value();
}

std::string Blamed(const DatasetConfig& config) {
  const Result<> valid = config.Validate();
  return valid ? "" : valid.error().param;
}

TEST(MakeUpPrompts, HaveTheirLengthsAndShareTheirPrefixes) {
  const DatasetConfig config{.kind = DatasetKind::kSharedPrefix,
                             .num_prompts = 6,
                             .input_len = 20,
                             .output_len = 9,
                             .prefix_len = 12,
                             .num_prefixes = 2};
  const Dataset dataset = MakeUpPrompts(config, 0);
  ASSERT_EQ(dataset.requests.size(), 6);
  const BodyStyle style{.vocab_size = 1000, .seed = 3};
  std::vector<std::vector<std::int64_t>> prompts;
  for (const Request& request : dataset.requests) {
    EXPECT_EQ(request.max_tokens, 9);
    EXPECT_EQ(request.num_prompt_tokens(), 20);
    std::vector<std::int64_t>& prompt = prompts.emplace_back();
    const json::value body = Parse(MakeBody(request, 0, style));
    for (const json::value& id : body.at("prompt").as_array()) prompt.push_back(id.as_int64());
    ASSERT_EQ(prompt.size(), 20);
    EXPECT_GE(std::ranges::min(prompt), 0);
    EXPECT_LT(std::ranges::max(prompt), 1000);
  }
  const auto common = [&](std::size_t a, std::size_t b) {
    return std::ranges::mismatch(prompts[a], prompts[b]).in1 - prompts[a].begin();
  };
  EXPECT_EQ(common(0, 2), 12);
  EXPECT_EQ(common(1, 5), 12);
  EXPECT_LT(common(0, 1), 3);
}

TEST(MakeUpPrompts, VaryByTheRatio) {
  const DatasetConfig config{.num_prompts = 2000, .input_len = 100, .output_len = 10, .range_ratio = 0.2};
  int least = 1000, most = 0;
  for (const Request& request : MakeUpPrompts(config, 0).requests) {
    least = std::min(least, request.num_prompt_tokens());
    most = std::max(most, request.num_prompt_tokens());
    EXPECT_GE(request.max_tokens, 8);
    EXPECT_LE(request.max_tokens, 12);
  }
  EXPECT_EQ(least, 80);
  EXPECT_EQ(most, 120);
}

TEST(MakeDataset, IsAFunctionOfTheSeed) {
  const auto bodies = [](int seed) {
    const DatasetConfig config{.num_prompts = 20, .range_ratio = 0.5, .seed = seed};
    std::string all;
    for (const Request& request : MakeDataset(config)->requests) {
      all += MakeBody(request, 0, {.vocab_size = 5000, .seed = seed});
    }
    return all;
  };
  EXPECT_EQ(bodies(1), bodies(1));
  EXPECT_NE(bodies(1), bodies(2));
}

TEST(DatasetConfig, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(Blamed({}), "");
  EXPECT_EQ(Blamed({.num_prompts = 0}), "num-prompts");
  EXPECT_EQ(Blamed({.input_len = 0}), "input-len");
  EXPECT_EQ(Blamed({.output_len = 0}), "output-len");
  EXPECT_EQ(Blamed({.input_len = 5, .prefix_len = 6}), "prefix-len");
  EXPECT_EQ(Blamed({.num_prefixes = 0}), "num-prefixes");
  EXPECT_EQ(Blamed({.range_ratio = 1}), "range-ratio");
  EXPECT_EQ(Blamed({.length_scale = 0}), "length-scale");
  EXPECT_EQ(Blamed({.trace_speed = -1}), "trace-speed");
  EXPECT_EQ(Blamed({.max_total_len = -1}), "max-total-len");
  EXPECT_EQ(Blamed({.seed = -1}), "seed");
  EXPECT_EQ(Blamed({.path = "x"}), "dataset-path");
  EXPECT_EQ(Blamed({.kind = DatasetKind::kTrace}), "dataset-path");
  EXPECT_EQ(Blamed({.kind = DatasetKind::kTrace, .path = "x", .num_prompts = 0}), "");
  EXPECT_EQ(Blamed({.kind = DatasetKind::kJsonl, .path = "x", .input_len = 5}), "input-len");
}

TEST(ParsePrompts, ReadsWhatFilesOfPromptsLookLike) {
  const DatasetConfig config{.kind = DatasetKind::kJsonl, .num_prompts = 0};
  const Result<Dataset> dataset = ParsePrompts(
      R"({"prompt": "one", "output_tokens": 11}

{"question": "two", "answer": "12345678"}
{"turns": ["three", "more"]}
{"messages": [{"role": "user", "content": "four"}, {"role": "assistant", "content": "1234567890123456"}]}
{"conversations": [{"from": "human", "value": "five"}, {"from": "gpt", "value": "12345"}]}
{"nothing": 1})",
      config);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message;
  EXPECT_EQ(dataset->num_left_out, 1);
  std::map<std::string, int> tokens;  // of the prompt as it is sent; the order is shuffled
  for (const Request& request : dataset->requests) tokens[request.prompt_json] = request.max_tokens;
  EXPECT_EQ(tokens, (std::map<std::string, int>{{"\"one\"", 11},
                                                {"\"two\"", 2},
                                                {"\"three\"", 128},
                                                {R"([{"role":"user","content":"four"}])", 4},
                                                {"\"five\"", 2}}));
}

TEST(ParsePrompts, ReadsAnArray) {
  const auto dataset = ParsePrompts(R"([{"prompt": "a"}, {"prompt": "b"}])", {.num_prompts = 1, .output_len = 7});
  ASSERT_TRUE(dataset.has_value());
  ASSERT_EQ(dataset->requests.size(), 1);
  EXPECT_EQ(dataset->requests[0].max_tokens, 7);
}

TEST(ParsePrompts, SaysWhichLineIsWrong) {
  const auto error = [](std::string_view text, DatasetConfig config = {.num_prompts = 0}) {
    const Result<Dataset> dataset = ParsePrompts(text, config);
    return dataset ? std::string() : dataset.error().message;
  };
  EXPECT_NE(error("{\"prompt\": \"a\"}\n{").find("line 2"), std::string::npos);
  EXPECT_NE(error("7").find("line 1"), std::string::npos);
  EXPECT_NE(error("[7]").find("item 0"), std::string::npos);
  EXPECT_NE(error("").find("no prompts"), std::string::npos);
  EXPECT_NE(error(R"({"prompt": "a long prompt", "output_tokens": 90})", {.max_total_len = 50}).find("longer"),
            std::string::npos);
}

TEST(ParseChats, MakesARequestOfEachAnswer) {
  const Result<Dataset> dataset = ParseChats(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
{"role": "assistant", "content": "12345678"}, {"role": "user", "content": "b"}]})"
      "",
      {.kind = DatasetKind::kChats, .num_prompts = 0});
  EXPECT_FALSE(dataset.has_value());  // an object is a line
  const std::string chat = R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, )"
                           R"({"role": "assistant", "content": "12345678"}, {"role": "user", "content": "b"}]})";
  const Result<Dataset> two = ParseChats(chat + "\n" + chat, {.kind = DatasetKind::kChats, .num_prompts = 3});
  ASSERT_TRUE(two.has_value()) << two.error().message;
  ASSERT_EQ(two->requests.size(), 3);
  EXPECT_EQ(Parse(two->requests[0].prompt_json).as_array().size(), 2);
  EXPECT_EQ(two->requests[0].max_tokens, 2);
  EXPECT_EQ(two->requests[0].after, -1);
  EXPECT_EQ(Parse(two->requests[1].prompt_json).as_array().size(), 4);
  EXPECT_EQ(two->requests[1].max_tokens, 128);
  EXPECT_EQ(two->requests[1].after, 0);
  EXPECT_EQ(two->requests[2].after, -1);
}

constexpr const char* kAzure =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 23:59:59.5000000,374,44\r\n"
    "2023-11-17 00:00:01.0000000,9,0\r\n"
    "2023-11-17 00:00:01.2500000,8000,10\r\n";

TEST(ParseTrace, ReadsAzure) {
  const Result<Dataset> dataset =
      ParseTrace(kAzure, {.kind = DatasetKind::kTrace, .num_prompts = 0, .trace_speed = 2, .max_total_len = 4096});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message;
  EXPECT_TRUE(dataset->has_arrivals);
  EXPECT_EQ(dataset->num_left_out, 1);
  ASSERT_EQ(dataset->requests.size(), 2);
  EXPECT_EQ(dataset->requests[0].arrival_seconds, 0);
  EXPECT_NEAR(dataset->requests[1].arrival_seconds, 0.75, 1e-6);
  EXPECT_EQ(dataset->requests[0].num_prompt_tokens(), 374);
  EXPECT_EQ(dataset->requests[0].max_tokens, 44);
  EXPECT_EQ(dataset->requests[1].max_tokens, 1);  // nothing cannot be asked for
}

constexpr const char* kMooncake =
    R"({"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 4000, "input_length": 1536, "output_length": 7, "hash_ids": [0, 1, 9]}
{"timestamp": 4000, "input_length": 600, "output_length": 7, "hash_ids": [0]}
)";

TEST(ParseTrace, ReadsMooncakeWithItsPrefixes) {
  const Result<Dataset> dataset = ParseTrace(kMooncake, {.kind = DatasetKind::kTrace, .num_prompts = 0});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message;
  ASSERT_EQ(dataset->requests.size(), 3);
  EXPECT_EQ(dataset->requests[1].arrival_seconds, 3);
  std::vector<json::array> prompts;
  for (const Request& request : dataset->requests) {
    prompts.push_back(Parse(MakeBody(request, 0, {.vocab_size = 32000})).at("prompt").as_array());
  }
  EXPECT_EQ(prompts[0].size(), 1100);
  EXPECT_EQ(prompts[1].size(), 1536);
  EXPECT_EQ(prompts[2].size(), 600);
  const auto common = [&](std::size_t a, std::size_t b) {
    return std::ranges::mismatch(prompts[a], prompts[b]).in1 - prompts[a].begin();
  };
  EXPECT_EQ(common(0, 1), 1024);
  EXPECT_EQ(common(0, 2), 512);
}

TEST(ParseTrace, ScalesLengthsAndKeepsPrefixes) {
  const Result<Dataset> dataset =
      ParseTrace(kMooncake, {.kind = DatasetKind::kTrace, .num_prompts = 0, .length_scale = 0.1});
  ASSERT_TRUE(dataset.has_value());
  EXPECT_EQ(dataset->requests[0].num_prompt_tokens(), 110);
  EXPECT_EQ(dataset->requests[1].num_prompt_tokens(), 154);
  EXPECT_EQ(dataset->requests[0].max_tokens, 1);
  EXPECT_EQ(dataset->requests[0].parts[1].stream, dataset->requests[1].parts[1].stream);
  EXPECT_EQ(dataset->requests[0].parts[0].num_tokens, 51);
  EXPECT_EQ(dataset->requests[0].parts[1].num_tokens, dataset->requests[1].parts[1].num_tokens);
}

TEST(ParseTrace, SaysWhichLineIsWrong) {
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (const std::string& text :
       {head + "yesterday,1,2", head + "2023-11-16 18:17:03.9,1", head + "2023-11-16 18:17:03.9,1,-2",
        head + "2023-13-16 18:17:03.9,1,2", head + "2023-11-16 18:17:03.9,1,2,3", head + ",", head, std::string("{}"),
        std::string(R"({"timestamp": -1, "input_length": 1, "output_length": 1})"),
        std::string(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": ["a"]})"),
        std::string("[")}) {
    EXPECT_FALSE(ParseTrace(text, {.kind = DatasetKind::kTrace, .num_prompts = 0}).has_value()) << text;
  }
}

// The public files themselves, where they are.
TEST(MakeDataset, ReadsThePublicTraces) {
  const std::filesystem::path folder = std::filesystem::path(QUIRE_SOURCE_DIR).parent_path() / "shared" / "workloads";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "../shared/workloads is absent";
  struct File {
    DatasetKind kind;
    const char* name;
    std::size_t num_requests;
  };
  for (const File& file : {File{DatasetKind::kTrace, "AzureLLMInferenceTrace_code.csv", 8819},
                           File{DatasetKind::kTrace, "AzureLLMInferenceTrace_conv.csv", 19366},
                           File{DatasetKind::kTrace, "mooncake_conversation_trace.jsonl", 12031},
                           File{DatasetKind::kJsonl, "gsm8k_test.jsonl", 1319},
                           File{DatasetKind::kJsonl, "mt_bench_question.jsonl", 80}}) {
    const Result<Dataset> dataset = MakeDataset({.kind = file.kind, .path = folder / file.name, .num_prompts = 0});
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message;
    EXPECT_EQ(dataset->requests.size(), file.num_requests) << file.name;
    EXPECT_TRUE(std::ranges::is_sorted(dataset->requests, {}, &Request::arrival_seconds));
  }
  const auto chats =
      MakeDataset({.kind = DatasetKind::kChats, .path = folder / "sgd_chats_sample.jsonl", .num_prompts = 200});
  ASSERT_TRUE(chats.has_value()) << chats.error().message;
  EXPECT_EQ(chats->requests.size(), 200);
  EXPECT_TRUE(std::ranges::any_of(chats->requests, [](const Request& request) { return request.after >= 0; }));
}

std::vector<double> ArrivalsOf(int count, const TrafficConfig& traffic, int seed = 1) {
  std::vector<Request> requests(static_cast<std::size_t>(count));
  AssignArrivals(requests, traffic, seed);
  std::vector<double> at;
  for (const Request& request : requests) at.push_back(request.arrival_seconds);
  return at;
}

// Squared standard deviation of the gaps over their squared mean: 1 / shape for a gamma distribution.
double Variability(const std::vector<double>& at) {
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double gap = at[i] - (i == 0 ? 0 : at[i - 1]);
    sum += gap;
    squares += gap * gap;
  }
  const double count = static_cast<double>(at.size()), mean = sum / count;
  return (squares / count - mean * mean) / (mean * mean);
}

TEST(Arrivals, KeepTheRateAndTheirDistribution) {
  for (const double shape : {0.25, 0.5, 1.0, 2.0, 8.0}) {
    const std::vector<double> at = ArrivalsOf(20000, {.request_rate = 50, .burstiness = shape});
    EXPECT_TRUE(std::ranges::is_sorted(at));
    EXPECT_NEAR(at.back(), 400, 1e-9);
    // The estimate of 1 / shape from 20,000 gaps is good to some percent; a seed is fixed, so this cannot flicker.
    EXPECT_NEAR(Variability(at) * shape, 1, 0.08) << shape;
  }
}

TEST(Arrivals, CanBeEvenOrAtOnce) {
  const std::vector<double> even =
      ArrivalsOf(4, {.request_rate = 2, .burstiness = std::numeric_limits<double>::infinity()});
  EXPECT_EQ(even, (std::vector<double>{0.5, 1, 1.5, 2}));
  EXPECT_EQ(ArrivalsOf(3, {}), (std::vector<double>{0, 0, 0}));
}

TEST(Arrivals, AreAFunctionOfTheSeed) {
  const TrafficConfig traffic{.request_rate = 3, .burstiness = 0.5};
  EXPECT_EQ(ArrivalsOf(50, traffic, 4), ArrivalsOf(50, traffic, 4));
  EXPECT_NE(ArrivalsOf(50, traffic, 4), ArrivalsOf(50, traffic, 5));
}

TEST(RequestBody, SpeaksBothRoutes) {
  Request text, chat, made_up;
  text.prompt_json = R"("hi")";
  chat.prompt_json = R"([{"role":"user","content":"hi"}])";
  chat.is_chat = true;
  made_up.parts = {{.stream = 5, .num_tokens = 40}};
  const BodyStyle completions{.model = "m"}, chats{.model = "m", .is_chat = true};
  EXPECT_EQ(Parse(MakeBody(text, 0, completions)).at("prompt"), "hi");
  EXPECT_EQ(Parse(MakeBody(text, 0, chats)).at("messages").at(0).at("content"), "hi");
  EXPECT_EQ(Parse(MakeBody(chat, 0, chats)).at("messages").as_array().size(), 1);
  const auto words_of = [](const json::value& value) { return std::ranges::count(value.as_string(), ' ') + 1; };
  EXPECT_EQ(words_of(Parse(MakeBody(made_up, 0, completions)).at("prompt")), 40);
  EXPECT_EQ(words_of(Parse(MakeBody(made_up, 0, chats)).at("messages").at(0).at("content")), 40);
  BodyStyle counted = completions;
  counted.words_per_token = 0.5;
  EXPECT_EQ(words_of(Parse(MakeBody(made_up, 0, counted)).at("prompt")), 20);
}

TEST(RequestBody, SamplesWithASeedOfItsOwn) {
  Request request;
  request.prompt_json = R"("hi")";
  const BodyStyle style{.model = "m", .temperature = 0.7, .ignore_eos = false, .seed = 2};
  const json::value first = Parse(MakeBody(request, 0, style)), second = Parse(MakeBody(request, 1, style));
  EXPECT_NE(first.at("seed"), second.at("seed"));
  EXPECT_FALSE(first.as_object().contains("ignore_eos"));
}

}  // namespace
}  // namespace quire::bench::load
