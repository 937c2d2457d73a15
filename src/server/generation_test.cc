// The generating routes from outside: whole answers and streams of a server over a scripted engine.
#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include "server/testing/server_fixture.h"

namespace quire::server::testing {
namespace {

// For all tests of this program: the log is made before there are threads, as in quire itself. Its library is not
// instrumented, so that ThreadSanitizer takes the first use of it by two threads at once for a race.
[[maybe_unused]] const spdlog::logger* const kLog = spdlog::default_logger_raw();

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GenerationTest : public ServerFixture {};

TEST_F(GenerationTest, Completion) {
  Start();
  const HttpAnswer answer = Post("/v1/completions", R"({"model":"fake","prompt":"Hi","max_tokens":50})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value body = Parse(answer.body);
  EXPECT_THAT(std::string(body.at("id").as_string()), StartsWith("cmpl-"));
  EXPECT_EQ(body.at("object"), "text_completion");
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "Hello there.");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_TRUE(choice.at("stop_reason").is_null());
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 3) << "BOS and two bytes (TMPL-01)";
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 13) << "EOS is counted";
}

TEST_F(GenerationTest, CompletionDefaultsToSixteenTokens) {
  Start();
  ASSERT_EQ(Post("/v1/completions", R"({"prompt":"Hi"})").status, 200) << "the model's name may be left out";
  EXPECT_EQ(engine->last_request()->stop.max_tokens, 16);
}

TEST_F(GenerationTest, ChatUsesTheRestOfTheContextAndOneTemplate) {
  Start();
  const HttpAnswer answer =
      Post("/v1/chat/completions", R"({"model":"org/alias","messages":[{"role":"user","content":"Hi"}]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value body = Parse(answer.body);
  EXPECT_EQ(body.at("model"), "org/alias");
  const json::value& message = body.at("choices").at(0).at("message");
  EXPECT_EQ(message.at("role"), "assistant");
  EXPECT_EQ(message.at("content"), "Hello there.");
  EXPECT_TRUE(message.at("refusal").is_null());
  const auto request = engine->last_request();
  EXPECT_EQ(request->stop.max_tokens, 512 - static_cast<int>(request->prompt.size()));
  // TMPL-01: the template says everything, BOS too; the tokenizer adds none of its own.
  EXPECT_EQ(ByteTokenizer().Decode(request->prompt, false),
            "<s><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(GenerationTest, ContinuesTheFinalMessage) {
  Start();
  ASSERT_EQ(Post("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"Count."},{"role":"assistant","content":"One, two "}],
                     "continue_final_message":true})")
                .status,
            200);
  EXPECT_EQ(ByteTokenizer().Decode(engine->last_request()->prompt, false),
            "<s><|im_start|>user\nCount.<|im_end|>\n<|im_start|>assistant\nOne, two ");
  const HttpAnswer echoed =
      Post("/v1/chat/completions",
           R"({"messages":[{"role":"assistant","content":"One,"}],"continue_final_message":true,"echo":true})");
  EXPECT_EQ(Parse(echoed.body).at("choices").at(0).at("message").at("content"), "One,Hello there.");
}

TEST_F(GenerationTest, ChatStream) {
  Start();
  const HttpAnswer answer = Post("/v1/chat/completions",
                                 R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,
                                     "stream_options":{"include_usage":true}})");
  ASSERT_EQ(answer.status, 200);
  EXPECT_THAT(answer.header("content-type"), StartsWith("text/event-stream"));
  const auto events = answer.Events();
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  const json::value first = Parse(events.front());
  EXPECT_EQ(ToJson(first.at("choices").at(0)),
            R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})");
  EXPECT_EQ(StreamedText(answer), "Hello there.");
  int finishes = 0;
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const json::value chunk = Parse(events[i]);
    EXPECT_TRUE(chunk.at("usage").is_null());
    if (!chunk.at("choices").at(0).at("finish_reason").is_null()) ++finishes;
    // STREAM-03: no empty deltas but the first.
    if (i > 0 && chunk.at("choices").at(0).at("finish_reason").is_null()) {
      EXPECT_FALSE(chunk.at("choices").at(0).at("delta").at("content").as_string().empty());
    }
  }
  EXPECT_EQ(finishes, 1);
  const json::value usage = Parse(events[events.size() - 2]);
  EXPECT_TRUE(usage.at("choices").as_array().empty());
  EXPECT_EQ(usage.at("usage").at("completion_tokens"), 13);
}

TEST_F(GenerationTest, FirstChunkComesWithTheFirstOutput) {
  Start();
  engine->Hold(true);
  HttpClient client = Connect();
  client.Send(
      HttpClient::PostBytes("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}],"stream":true})"));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 1; }));
  engine->HoldAfter(1);
  const HttpAnswer partial = client.ReadUntil("\"H\"");
  EXPECT_THAT(partial.body, StartsWith("data: "));
  EXPECT_EQ(StreamedText(partial), "H");
  engine->Hold(false);
  EXPECT_EQ(StreamedText(client.Read()), "Hello there.");
}

TEST_F(GenerationTest, ContinuousUsage) {
  Start();
  const HttpAnswer answer = Post("/v1/chat/completions",
                                 R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,
                                     "stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  const auto events = answer.Events();
  EXPECT_EQ(Parse(events[0]).at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(Parse(events[1]).at("usage").at("completion_tokens"), 1);
  EXPECT_EQ(Parse(events[events.size() - 3]).at("usage").at("completion_tokens"), 13);
}

// UTF8-08, STREAM-02, STOP-02: for every grouping of tokens, stream and whole answer are the same text.
TEST_F(GenerationTest, StreamEqualsWholeAnswer) {
  Start();
  for (const char* stop : {"null", R"("\n")", R"(["aab","你"])", R"("🌶")"}) {
    for (int group = 1; group < 9; ++group) {
      engine->set_scripter(Says("ü🌶 aaab why?\n你好!", group));
      const std::string members = fmt::format(R"("prompt":"x","max_tokens":100,"n":2,"stop":{})", stop);
      const HttpAnswer whole = Post("/v1/completions", "{" + members + "}");
      const HttpAnswer stream = Post("/v1/completions", "{" + members + ",\"stream\":true}");
      ASSERT_EQ(whole.status, 200) << whole.body;
      const json::value body = Parse(whole.body);
      for (int index = 0; index < 2; ++index) {
        EXPECT_EQ(std::string(body.at("choices").at(static_cast<std::size_t>(index)).at("text").as_string()),
                  StreamedText(stream, index));
      }
    }
  }
}

TEST_F(GenerationTest, StopStringEndsTheRequestInTheEngine) {
  Start({}, {.step_time = std::chrono::milliseconds(1)});
  engine->set_scripter(Says("one two three four five six"));
  const HttpAnswer answer =
      Post("/v1/completions", R"({"prompt":"x","max_tokens":400,"ignore_eos":true,"stop":["three","nine"]})");
  const json::value body = Parse(answer.body);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "one two ");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("choices").at(0).at("stop_reason"), "three");
  EXPECT_TRUE(engine->WaitFor([&] { return engine->num_running() == 0; }));
  EXPECT_EQ(engine->aborted().size(), 1u);
}

TEST_F(GenerationTest, MinTokensHoldsForStopStrings) {
  Start();
  engine->set_scripter(Says("a.b.c.d"));
  const HttpAnswer answer = Post("/v1/completions", R"({"prompt":"x","stop":".","min_tokens":3})");
  EXPECT_EQ(Parse(answer.body).at("choices").at(0).at("text"), "a.b");
}

TEST_F(GenerationTest, StopTokenIds) {
  Start();
  const HttpAnswer answer = Post("/v1/completions", R"({"prompt":"x","stop_token_ids":[111]})");
  const json::value body = Parse(answer.body);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "Hell") << "111 is the letter o";
  EXPECT_EQ(body.at("choices").at(0).at("stop_reason"), 111);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 5);
  const HttpAnswer included =
      Post("/v1/completions", R"({"prompt":"x","stop_token_ids":[111],"include_stop_str_in_output":true})");
  EXPECT_EQ(Parse(included.body).at("choices").at(0).at("text"), "Hello");
}

TEST_F(GenerationTest, SeveralPromptsAndChoices) {
  Start();
  engine->set_scripter([](const GenerateRequest& request, int choice) {
    return Script{.tokens = Ids(fmt::format("{}/{}", request.prompt.size(), choice))};
  });
  const HttpAnswer answer = Post("/v1/completions", R"({"prompt":["a","bcd"],"n":2})");
  const json::value body = Parse(answer.body);
  ASSERT_EQ(body.at("choices").as_array().size(), 4u);
  const char* expected[] = {"2/0", "2/1", "4/0", "4/1"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body.at("choices").at(i).at("index"), static_cast<int>(i));
    EXPECT_EQ(body.at("choices").at(i).at("text"), expected[i]);
  }
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 6) << "each prompt is counted once";
  const HttpAnswer stream = Post("/v1/completions", R"({"prompt":["a","bcd"],"n":2,"stream":true})");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(StreamedText(stream, i), expected[i]);
}

// The scripted engine says that a token is as likely as its id is small.
TEST_F(GenerationTest, BestOfReturnsTheLikeliest) {
  Start();
  engine->set_scripter([](const GenerateRequest& request, int choice) {
    constexpr const char* kTexts[] = {"zz", "bb", "aaaaaaaa", "ac", "yy"};
    const std::string text = kTexts[static_cast<std::size_t>(choice)];
    return Script{.tokens = Ids(request.prompt.size() == 2 ? text : text + "-")};
  });
  const HttpAnswer answer =
      Post("/v1/completions", R"({"prompt":["a","bcd"],"n":2,"best_of":5,"stop":"q","return_token_ids":true})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(engine->last_request()->sampling.n, 5);
  const json::value body = Parse(answer.body);
  ASSERT_EQ(body.at("choices").as_array().size(), 4u);
  const char* expected[] = {"bb", "ac", "bb-", "ac-"};  // b + b = a + c, and the first of equals
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body.at("choices").at(i).at("index"), static_cast<int>(i));
    EXPECT_EQ(body.at("choices").at(i).at("text"), expected[i]);
    EXPECT_TRUE(body.at("choices").at(i).at("logprobs").is_null()) << "nobody asked for them";
  }
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 2 * (4 * 3 + 9) + 5) << "all that were computed";
}

// What a choice would have said behind its stop string does not count.
TEST_F(GenerationTest, BestOfCountsUpToTheStopString) {
  Start();
  engine->set_scripter([](const GenerateRequest&, int choice) {
    return Script{.tokens = Ids(choice == 0 ? "bbbb" : "az~~~~~~~~"), .tokens_per_event = 10};
  });
  const HttpAnswer answer = Post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"best_of":2,"stop":"z","logprobs":true})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value body = Parse(answer.body);
  ASSERT_EQ(body.at("choices").as_array().size(), 1u);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "a");
  EXPECT_EQ(body.at("choices").at(0).at("stop_reason"), "z");
  EXPECT_EQ(body.at("choices").at(0).at("logprobs").at("content").as_array().size(), 2u);
}

TEST_F(GenerationTest, BeamsReachTheEngine) {
  Start();
  for (const char* target : {"/v1/completions", "/v1/chat/completions"}) {
    const HttpAnswer answer = Post(
        target, R"({"prompt":"a","messages":[{"role":"user","content":"a"}],"use_beam_search":true,"n":2,"best_of":4,
                    "length_penalty":0.5,"early_stopping":"never","temperature":0,"stop":["x"],"max_tokens":5,
                    "skip_special_tokens":false})");
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(Parse(answer.body).at("choices").as_array().size(), 2u);
    const auto request = engine->last_request();
    EXPECT_EQ(request->sampling.n, 2);
    EXPECT_EQ(request->sampling.beam,
              (BeamParams{.width = 4, .length_penalty = 0.5, .early_stopping = EarlyStopping::kNever}));
    EXPECT_THAT(request->stop.stop_strings, ElementsAre("x"));
    EXPECT_FALSE(request->stop.skip_special_tokens);
  }
  Post("/v1/completions", R"({"prompt":"a","stop":["x"],"max_tokens":5})");
  EXPECT_TRUE(engine->last_request()->stop.stop_strings.empty()) << "the front end looks for them";
}

// LOGP-03: the legacy layout on completions, as long as the tokens counted.
TEST_F(GenerationTest, CompletionLogprobs) {
  Start();
  const HttpAnswer answer = Post("/v1/completions", R"({"prompt":"x","logprobs":2,"max_tokens":3})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value logprobs = Parse(answer.body).at("choices").at(0).at("logprobs");
  EXPECT_EQ(ToJson(logprobs.at("tokens")), R"(["H","e","l"])");
  EXPECT_EQ(ToJson(logprobs.at("text_offset")), "[0,1,2]");
  EXPECT_EQ(logprobs.at("token_logprobs").as_array().size(), 3u);
  // LOGP-01: minus infinity is floored, and nothing is written that JSON does not know.
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).at("I"), -9999.0);
}

TEST_F(GenerationTest, ChatLogprobs) {
  Start();
  const HttpAnswer answer = Post("/v1/chat/completions",
                                 R"({"messages":[{"role":"user","content":"Hi"}],"logprobs":true,"top_logprobs":2,
                                     "max_tokens":2})");
  const json::value content = Parse(answer.body).at("choices").at(0).at("logprobs").at("content");
  ASSERT_EQ(content.as_array().size(), 2u);
  EXPECT_EQ(content.at(0).at("token"), "H");
  EXPECT_EQ(ToJson(content.at(0).at("bytes")), "[72]");
  EXPECT_EQ(content.at(0).at("top_logprobs").at(1).at("logprob"), -9999.0);
  const HttpAnswer named = Post("/v1/chat/completions",
                                R"({"messages":[{"role":"user","content":"Hi"}],"logprobs":true,"max_tokens":1,
                                    "return_tokens_as_token_ids":true})");
  EXPECT_EQ(Parse(named.body).at("choices").at(0).at("logprobs").at("content").at(0).at("token"), "token_id:72");
}

// Two halves of a character are one key: it may stand only once.
TEST_F(GenerationTest, TopLogprobsHaveNoKeyTwice) {
  Start();
  engine->set_scripter(Says("ü"));
  const HttpAnswer answer = Post("/v1/completions", R"({"prompt":"x","logprobs":5,"max_tokens":1})");
  ASSERT_TRUE(ParseJson(answer.body, "answer", {.refuse_duplicate_keys = true}).has_value()) << answer.body;
}

// Every token's logprobs come, also while its text is held back.
TEST_F(GenerationTest, StreamedLogprobsAreComplete) {
  Start();
  engine->set_scripter(Says("ü STOR 🌶 STOP never"));
  const std::string members = R"("prompt":"x","max_tokens":60,"logprobs":1,"stop":"STOP")";
  const json::value whole = Parse(Post("/v1/completions", "{" + members + "}").body);
  const HttpAnswer stream = Post("/v1/completions", "{" + members + ",\"stream\":true}");
  json::array tokens, offsets;
  for (const std::string& event : stream.Events()) {
    if (event == "[DONE]") continue;
    const json::value chunk = Parse(event);
    const json::value& logprobs = chunk.at("choices").at(0).at("logprobs");
    for (const json::value& token : logprobs.at("tokens").as_array()) tokens.push_back(token);
    for (const json::value& offset : logprobs.at("text_offset").as_array()) offsets.push_back(offset);
  }
  EXPECT_EQ(tokens, whole.at("choices").at(0).at("logprobs").at("tokens"));
  EXPECT_EQ(offsets, whole.at("choices").at(0).at("logprobs").at("text_offset"));
  EXPECT_EQ(static_cast<std::int64_t>(tokens.size()), whole.at("usage").at("completion_tokens").as_int64());
}

TEST_F(GenerationTest, EchoPutsThePromptFirst) {
  Start();
  const json::value body =
      Parse(Post("/v1/completions", R"({"prompt":"üb","echo":true,"max_tokens":2,"logprobs":1})").body);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "übHe");
  const json::value& logprobs = body.at("choices").at(0).at("logprobs");
  EXPECT_EQ(ToJson(logprobs.at("text_offset")), "[0,0,0,1,2,3]");
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("token_logprobs").at(1).is_double());
  const HttpAnswer stream = Post("/v1/completions", R"({"prompt":"üb","echo":true,"max_tokens":2,"stream":true})");
  EXPECT_EQ(StreamedText(stream), "übHe");
  EXPECT_EQ(Parse(stream.Events().front()).at("choices").at(0).at("text"), "übH");
  const HttpAnswer ids = Post("/v1/completions", R"({"prompt":[72,105],"echo":true,"max_tokens":2})");
  EXPECT_EQ(Parse(ids.body).at("choices").at(0).at("text"), "HiHe");
  const HttpAnswer cut =
      Post("/v1/completions", R"({"prompt":"abc","echo":true,"max_tokens":2,"truncate_prompt_tokens":2})");
  EXPECT_EQ(Parse(cut.body).at("choices").at(0).at("text"), "bcHe") << "what was computed, not what was sent";
}

// BAD-07: a scoring request has prompt logprobs and no completion.
TEST_F(GenerationTest, EchoWithoutTokensScoresThePrompt) {
  Start();
  const HttpAnswer scored = Post("/v1/completions", R"({"prompt":"abc","echo":true,"logprobs":1,"max_tokens":0})");
  ASSERT_EQ(scored.status, 200) << scored.body;
  const json::value body = Parse(scored.body);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "abc");
  EXPECT_EQ(body.at("choices").at(0).at("logprobs").at("tokens").as_array().size(), 4u);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 0);
  const int submitted = engine->num_submitted();
  for (const char* stream : {"false", "true"}) {
    const HttpAnswer echoed =
        Post("/v1/completions", fmt::format(R"({{"prompt":"abc","echo":true,"max_tokens":0,"stream":{}}})", stream));
    EXPECT_EQ(echoed.status, 200);
    EXPECT_THAT(echoed.body, HasSubstr("\"text\":\"abc\""));
    EXPECT_THAT(echoed.body, HasSubstr("\"finish_reason\":\"length\""));
  }
  EXPECT_EQ(engine->num_submitted(), submitted) << "the engine has nothing to do";
}

// LOGP-06: as many entries as the prompt has tokens, the first null.
TEST_F(GenerationTest, PromptLogprobs) {
  Start();
  const json::value body =
      Parse(Post("/v1/completions", R"({"prompt":"abc","prompt_logprobs":1,"max_tokens":1})").body);
  const json::value& prompt_logprobs = body.at("choices").at(0).at("prompt_logprobs");
  ASSERT_EQ(prompt_logprobs.as_array().size(), 4u);
  EXPECT_TRUE(prompt_logprobs.at(0).is_null());
  EXPECT_EQ(prompt_logprobs.at(1).at("97").at("decoded_token"), "a");
  EXPECT_EQ(prompt_logprobs.at(1).at("97").at("rank"), 1);
  const json::value chat = Parse(
      Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"prompt_logprobs":0,"max_tokens":1})")
          .body);
  EXPECT_TRUE(chat.at("prompt_logprobs").at(0).is_null());
}

TEST_F(GenerationTest, ReturnTokenIds) {
  Start();
  const json::value body =
      Parse(Post("/v1/completions", R"({"prompt":"a","max_tokens":2,"return_token_ids":true,"echo":true,"logprobs":1})")
                .body);
  EXPECT_EQ(ToJson(body.at("choices").at(0).at("token_ids")), "[72,101]");
  EXPECT_EQ(ToJson(body.at("choices").at(0).at("prompt_token_ids")), "[256,97]");
  const HttpAnswer stream = Post("/v1/chat/completions",
                                 R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"stream":true,
                                     "return_token_ids":true})");
  const auto events = stream.Events();
  EXPECT_TRUE(Parse(events[0]).at("prompt_token_ids").is_array());
  EXPECT_EQ(ToJson(Parse(events[1]).at("choices").at(0).at("token_ids")), "[72]");
}

// UTF8-01, UTF8-02, UTF8-04: broken characters never break the answer.
TEST_F(GenerationTest, BrokenCharactersAreReplaced) {
  Start();
  engine->set_scripter([](const GenerateRequest&, int) { return Script{.tokens = Ids("ok\x80 \xF0\x9F")}; });
  const HttpAnswer answer = Post("/v1/completions", R"({"prompt":[240,159],"max_tokens":6,"stream":true})");
  EXPECT_EQ(StreamedText(answer), "ok\uFFFD \uFFFD");
  EXPECT_THAT(answer.body, HasSubstr("\"finish_reason\":\"length\""));
}

// CTX-01, CTX-03: too long is a 400 that says how long.
TEST_F(GenerationTest, RefusesWhatDoesNotFit) {
  Start();
  const HttpAnswer both = Post("/v1/completions", R"({"prompt":"abc","max_tokens":509})");
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(ErrorParam(both), "max_tokens");
  EXPECT_THAT(both.body, HasSubstr("512 tokens"));
  EXPECT_THAT(both.body, HasSubstr("513"));
  EXPECT_THAT(both.body, HasSubstr("context_length_exceeded"));
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","max_tokens":508})").status, 200);
  const std::string long_text(600, 'a');
  EXPECT_EQ(ErrorParam(Post("/v1/completions", fmt::format(R"({{"prompt":"{}"}})", long_text))), "prompt");
  const HttpAnswer chat =
      Post("/v1/chat/completions", fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]}})", long_text));
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(ErrorParam(chat), "messages");
  const HttpAnswer huge = Post("/v1/completions", R"({"prompt":"abc","max_tokens":100000000})");
  EXPECT_EQ(huge.status, 400);
  // CTX-04: cut only when that is asked for, and counted as it was used.
  const HttpAnswer cut =
      Post("/v1/completions", fmt::format(R"({{"prompt":"{}","truncate_prompt_tokens":10}})", long_text));
  EXPECT_EQ(cut.status, 200);
  EXPECT_EQ(Parse(cut.body).at("usage").at("prompt_tokens"), 10);
}

TEST_F(GenerationTest, RefusesChatWithoutTemplate) {
  Start({}, {}, /*with_template=*/false);
  const HttpAnswer answer = Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"a"})").status, 200);
}

// STOP-08: stop strings work where the client sends ids and wants ids back.
TEST_F(GenerationTest, StopStringsWorkWithTokenIds) {
  Start();
  const HttpAnswer answer =
      Post("/v1/completions", R"({"prompt":[65,66],"return_token_ids":true,"stop":"lo","max_tokens":50})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value choice = Parse(answer.body).at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "Hel");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("token_ids").as_array().size(), 5u);
}

// STOP-09: whatever a field asks for reaches the engine, on both routes.
TEST_F(GenerationTest, FieldsReachTheEngine) {
  Start();
  const std::string fields = R"("temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"repetition_penalty":1.5,
    "presence_penalty":0.5,"frequency_penalty":-0.5,"seed":42,"n":2,"min_tokens":1,"max_tokens":9,"ignore_eos":true,
    "stop_token_ids":[3],"logit_bias":{"5":-3},"cache_salt":"salt",
    "prompt_cache_key":"k","prompt_cache_retention":"24h")";
  for (const std::string& body :
       {"{\"prompt\":\"a\"," + fields + "}", R"({"messages":[{"role":"user","content":"a"}],)" + fields + "}"}) {
    const std::string target = body.starts_with("{\"prompt") ? "/v1/completions" : "/v1/chat/completions";
    ASSERT_EQ(Post(target, body).status, 200) << target;
    const auto request = engine->last_request();
    EXPECT_EQ(request->sampling.temperature, 0.5);
    EXPECT_EQ(request->sampling.top_p, 0.25);
    EXPECT_EQ(request->sampling.top_k, 7);
    EXPECT_EQ(request->sampling.min_p, 0.125);
    EXPECT_EQ(request->sampling.repetition_penalty, 1.5);
    EXPECT_EQ(request->sampling.presence_penalty, 0.5);
    EXPECT_EQ(request->sampling.frequency_penalty, -0.5);
    EXPECT_EQ(request->sampling.seed, 42u);
    EXPECT_EQ(request->sampling.n, 2);
    EXPECT_EQ(request->stop.min_tokens, 1);
    EXPECT_EQ(request->stop.max_tokens, 9);
    EXPECT_TRUE(request->stop.ignore_eos);
    EXPECT_THAT(request->stop.stop_token_ids, ElementsAre(TokenId(3)));
    EXPECT_THAT(request->sampling.logit_bias, ElementsAre(std::pair(TokenId(5), -3.0f)));
    EXPECT_EQ(request->cache_salt, "salt");
    EXPECT_EQ(request->cache_retention_s, 24 * 3600);
  }
}

TEST_F(GenerationTest, RequestIdIsEchoed) {
  Start();
  const HttpAnswer answer = Connect().Post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: my-request.7\r\n");
  EXPECT_EQ(answer.header("x-request-id"), "my-request.7");
  EXPECT_EQ(Parse(answer.body).at("id"), "cmpl-my-request.7");
  const HttpAnswer odd = Connect().Post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: <script>\r\n");
  EXPECT_EQ(odd.header("x-request-id").size(), 32u);
}

TEST_F(GenerationTest, Tokenize) {
  Start();
  const HttpAnswer answer = Post("/tokenize", R"({"prompt":"ab","return_token_strs":true})");
  EXPECT_EQ(answer.body, R"({"count":3,"max_model_len":512,"tokens":[256,97,98],"token_strs":["<s>","a","b"]})");
  EXPECT_EQ(Parse(Post("/tokenize", R"({"prompt":"ab","add_special_tokens":false})").body).at("count"), 2);
  const HttpAnswer chat = Post("/tokenize", R"({"messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(Parse(chat.body).at("tokens").at(0), 256);
  EXPECT_EQ(Parse(chat.body).at("tokens").at(1), 258);
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[104,105]})").body, R"({"prompt":"hi"})");
  EXPECT_EQ(ErrorParam(Post("/detokenize", R"({"tokens":[260]})")), "tokens[0]");
  EXPECT_EQ(ErrorParam(Post("/detokenize", R"({"tokens":"hi"})")), "tokens");
  EXPECT_EQ(ErrorParam(Post("/detokenize", R"({})")), "tokens");
  EXPECT_EQ(ErrorParam(Post("/tokenize", R"({"prompt":5})")), "prompt");
  EXPECT_EQ(ErrorParam(Post("/tokenize", R"({})")), "prompt");
}

}  // namespace
}  // namespace quire::server::testing
