// Typed requests from JSON: defaults, and refusals that name the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/chat_request.h"
#include "server/completion_request.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;

const RequestLimits kLimits{.vocab_size = 1000, .max_model_len = 512, .logprobs_max = 20, .scheduling_policy = "fcfs"};

Result<CompletionRequest> Completion(const std::string& members, const RequestLimits& limits = kLimits) {
  auto body = ParseJson("{\"prompt\":\"x\"" + (members.empty() ? "" : "," + members) + "}", "request body");
  EXPECT_TRUE(body.has_value()) << members;
  return ParseCompletionRequest(*body, limits);
}

Result<ChatRequest> Chat(const std::string& members,
                         const std::string& messages = R"([{"role":"user","content":"x"}])") {
  auto body = ParseJson("{\"messages\":" + messages + (members.empty() ? "" : "," + members) + "}", "request body");
  EXPECT_TRUE(body.has_value()) << members << body.error().message;
  return ParseChatRequest(*body, kLimits);
}

struct Refusal {
  const char* members;
  const char* param;
};

// Security checklist 1, 2 and 4; BAD-02, BAD-04, BAD-06: ranges, kinds and ids of the fields that both routes have.
constexpr Refusal kCommonRefusals[] = {
    {R"("temperature":-1)", "temperature"},
    {R"("temperature":"hot")", "temperature"},
    {R"("temperature":true)", "temperature"},
    {R"("temperature":1e309)", "temperature"},
    {R"("temperature":[1])", "temperature"},
    {R"("top_p":1.5)", "top_p"},
    {R"("top_p":-0.1)", "top_p"},
    {R"("top_k":-2)", "top_k"},
    {R"("top_k":1.5)", "top_k"},
    {R"("top_k":2147483648)", "top_k"},
    {R"("min_p":2)", "min_p"},
    {R"("repetition_penalty":0)", "repetition_penalty"},
    {R"("presence_penalty":-2.1)", "presence_penalty"},
    {R"("frequency_penalty":3)", "frequency_penalty"},
    {R"("seed":"1")", "seed"},
    {R"("seed":9223372036854775808)", "seed"},
    {R"("seed":1e30)", "seed"},
    {R"("n":0)", "n"},
    {R"("n":-1)", "n"},
    {R"("n":129)", "n"},
    {R"("n":2147483648)", "n"},
    {R"("n":"2")", "n"},
    {R"("max_tokens":-1)", "max_tokens"},
    {R"("max_tokens":9223372036854775807)", "max_tokens"},
    {R"("max_tokens":18446744073709551615)", "max_tokens"},
    {R"("max_tokens":0)", "max_tokens"},
    {R"("max_tokens":1.5)", "max_tokens"},
    {R"("min_tokens":-1)", "min_tokens"},
    {R"("min_tokens":9,"max_tokens":8)", "min_tokens"},
    {R"("stop":"")", "stop"},
    {R"("stop":[""])", "stop[0]"},
    {R"("stop":["a",1])", "stop[1]"},
    {R"("stop":{"a":1})", "stop"},
    {R"("stop":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])", "stop"},
    {R"("stop_token_ids":[1000])", "stop_token_ids"},
    {R"("stop_token_ids":[-1])", "stop_token_ids[0]"},
    {R"("stop_token_ids":["1"])", "stop_token_ids[0]"},
    {R"("logit_bias":{"191222":-100})", "logit_bias"},
    {R"("logit_bias":{"-1":1})", "logit_bias"},
    {R"("logit_bias":{"x":1})", "logit_bias"},
    {R"("logit_bias":{"05":1})", "logit_bias"},
    {R"("logit_bias":{"1.5":1})", "logit_bias"},
    {R"("logit_bias":{"99999999999999999999":1})", "logit_bias"},
    {R"("logit_bias":{"5":101})", "logit_bias.5"},
    {R"("logit_bias":{"5":"1"})", "logit_bias.5"},
    {R"("logit_bias":{"5":1e999})", "logit_bias.5"},
    {R"("logit_bias":[1])", "logit_bias"},
    {R"("prompt_logprobs":21)", "prompt_logprobs"},
    {R"("prompt_logprobs":-2)", "prompt_logprobs"},
    {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs"},
    {R"("stream":"yes")", "stream"},
    {R"("stream_options":{"include_usage":true})", "stream_options"},
    {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
    {R"("stream":true,"stream_options":[])", "stream_options"},
    {R"("ignore_eos":1)", "ignore_eos"},
    {R"("cache_salt":"")", "cache_salt"},
    {R"("cache_salt":"a@b")", "cache_salt"},
    {R"("cache_salt":"a\u0000b")", "cache_salt"},
    {R"("prompt_cache_key":5)", "prompt_cache_key"},
    {R"("prompt_cache_retention":"48h")", "prompt_cache_retention"},
    {R"("prompt_cache_retention":24)", "prompt_cache_retention"},
    {R"("priority":"high")", "priority"},
    {R"("priority":2147483648)", "priority"},
    {R"("priority":3)", "priority"},  // needs its policy
    {R"("ttft_ms":100)", "ttft_ms"},  // likewise
    {R"("tpot_ms":0.5)", "tpot_ms"},
    {R"("ttft_ms":-1)", "ttft_ms"},
    {R"("tpot_ms":1e9)", "tpot_ms"},
    {R"("queue_timeout_ms":-1)", "queue_timeout_ms"},
    {R"("queue_timeout_ms":1.5)", "queue_timeout_ms"},
    {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
    {R"("model":5)", "model"},
    {R"("n":1000000)", "n"},
    {R"("best_of":-1)", "best_of"},
    {R"("best_of":21)", "best_of"},
    {R"("best_of":1000000)", "best_of"},
    {R"("best_of":2,"n":3)", "best_of"},
    {R"("best_of":2,"stream":true)", "best_of"},
    {R"("best_of":true)", "best_of"},
    {R"("use_beam_search":1)", "use_beam_search"},
    {R"("length_penalty":"1")", "length_penalty"},
    {R"("length_penalty":0.5)", "length_penalty"},
    {R"("early_stopping":true)", "early_stopping"},
    {R"("early_stopping":"never")", "early_stopping"},
    {R"("early_stopping":1)", "early_stopping"},
    {R"("use_beam_search":true,"early_stopping":"always")", "early_stopping"},
    {R"("use_beam_search":true,"length_penalty":11)", "length_penalty"},
    {R"("use_beam_search":true,"length_penalty":1e309)", "length_penalty"},
    {R"("use_beam_search":true,"best_of":129)", "best_of"},
    {R"("use_beam_search":true,"best_of":2,"n":3)", "best_of"},
    {R"("use_beam_search":true,"temperature":0.7)", "temperature"},
    {R"("use_beam_search":true,"top_p":0.9)", "top_p"},
    {R"("use_beam_search":true,"top_k":5)", "top_k"},
    {R"("use_beam_search":true,"min_p":0.1)", "min_p"},
    {R"("use_beam_search":true,"repetition_penalty":1.1)", "repetition_penalty"},
    {R"("use_beam_search":true,"presence_penalty":0.1)", "presence_penalty"},
    {R"("use_beam_search":true,"frequency_penalty":-0.1)", "frequency_penalty"},
    // Understood, with an effect, and not built: refused by name.
    {R"("response_format":{"type":"json_object"})", "response_format"},
    {R"("response_format":{"type":"json_schema"})", "response_format"},
    {R"("structured_outputs":{"regex":"a"})", "structured_outputs"},
    {R"("guided_json":{})", "guided_json"},
    {R"("guided_regex":"a")", "guided_regex"},
    {R"("guided_choice":["a"])", "guided_choice"},
    {R"("allowed_token_ids":[1])", "allowed_token_ids"},
    {R"("bad_words":["a"])", "bad_words"},
    {R"("logits_processors":["a"])", "logits_processors"},
    {R"("kv_transfer_params":{"a":1})", "kv_transfer_params"},
    {R"("stop_regex":"a+")", "stop_regex"},
    {R"("lora_path":"a")", "lora_path"},
    {R"("samplers":["top_k"])", "samplers"},
    {R"("repeat_penalty":1.1)", "repeat_penalty"},
    {R"("dry_multiplier":0.8)", "dry_multiplier"},
    {R"("xtc_probability":0.5)", "xtc_probability"},
    {R"("mirostat":2)", "mirostat"},
};

TEST(Requests, RefuseWrongValuesByName) {
  for (const Refusal& refusal : kCommonRefusals) {
    const auto completion = Completion(refusal.members);
    ASSERT_FALSE(completion.has_value()) << refusal.members;
    EXPECT_EQ(completion.error().param, refusal.param) << refusal.members;
    EXPECT_THAT(completion.error().message, HasSubstr(refusal.param));
    const auto chat = Chat(refusal.members);
    ASSERT_FALSE(chat.has_value()) << refusal.members;
    EXPECT_EQ(chat.error().param, refusal.param) << refusal.members;
  }
}

TEST(Requests, TermsAreForThePolicyThatHonoursThem) {
  RequestLimits limits = kLimits;
  limits.scheduling_policy = "priority";
  EXPECT_EQ(Completion(R"("priority":-3)", limits)->priority, -3);
  EXPECT_EQ(Completion(R"("ttft_ms":100)", limits).error().param, "ttft_ms");
  limits.scheduling_policy = "slo";
  const auto targets = Completion(R"("ttft_ms":100,"tpot_ms":12.5,"queue_timeout_ms":3000,"priority":0)", limits);
  ASSERT_TRUE(targets.has_value()) << targets.error().message;
  EXPECT_EQ(targets->ttft_ms, 100);
  EXPECT_EQ(targets->tpot_ms, 12.5);
  EXPECT_EQ(targets->queue_timeout_ms, 3000);
  const auto refused = Completion(R"("priority":1)", limits);
  EXPECT_THAT(refused.error().message, HasSubstr("--scheduling-policy priority"));
  EXPECT_THAT(refused.error().message, HasSubstr("slo"));
}

constexpr Refusal kCompletionRefusals[] = {
    {R"("logprobs":21)", "logprobs"},
    {R"("logprobs":-1)", "logprobs"},
    {R"("logprobs":true)", "logprobs"},
    {R"("prompt":["a","b","c","d","e","f","g","h","i","j","k","l","m"],"best_of":20)", "best_of"},
    {R"("prompt":["a","b","c"],"best_of":100,"use_beam_search":true)", "best_of"},
    {R"("suffix":"x")", "suffix"},
    {R"("prompt":null)", "prompt"},
    {R"("prompt":"")", "prompt"},
    {R"("prompt":[])", "prompt"},
    {R"("prompt":[""])", "prompt[0]"},
    {R"("prompt":[[]])", "prompt[0]"},
    {R"("prompt":[-1])", "prompt[0]"},
    {R"("prompt":[1,1000])", "prompt[1]"},
    {R"("prompt":[1,"a"])", "prompt[1]"},
    {R"("prompt":[1,2147483648])", "prompt[1]"},
    {R"("prompt":[[1],[5,-3]])", "prompt[1][1]"},
    {R"("prompt":["a",5])", "prompt[1]"},
    {R"("prompt":{"a":1})", "prompt"},
    {R"("prompt":5)", "prompt"},
    {R"("prompt":["a","b","c"],"n":100)", "n"},
};

// BAD-03, BAD-06.
TEST(CompletionRequest, RefusesByName) {
  for (const Refusal& refusal : kCompletionRefusals) {
    const auto request = Completion(refusal.members);
    ASSERT_FALSE(request.has_value()) << refusal.members;
    EXPECT_EQ(request.error().param, refusal.param) << refusal.members;
  }
}

TEST(CompletionRequest, ReadsEveryFormOfPrompt) {
  EXPECT_EQ(Completion("")->prompts[0].text, "x");
  EXPECT_EQ(Completion(R"("prompt":["a","b"])")->prompts[1].text, "b");
  const auto ids = Completion(R"("prompt":[1,2])");
  ASSERT_EQ(ids->prompts.size(), 1u);
  EXPECT_THAT(ids->prompts[0].ids, ::testing::ElementsAre(TokenId(1), TokenId(2)));
  const auto lists = Completion(R"("prompt":[[1],[2,3],"mixed"])");
  ASSERT_EQ(lists->prompts.size(), 3u);
  EXPECT_EQ(lists->prompts[1].ids.size(), 2u);
  EXPECT_TRUE(lists->prompts[2].is_text);
}

TEST(CompletionRequest, NullMeansAbsent) {
  const auto request = Completion(
      R"("temperature":null,"n":null,"stop":null,"logprobs":null,"max_tokens":null,"stream_options":null,
         "logit_bias":null,"suffix":null,"best_of":null,"user":null,"response_format":null)");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_FALSE(request->temperature.has_value());
}

TEST(CompletionRequest, AcceptsWhatHasNoEffect) {
  const auto request = Completion(
      R"("user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto","best_of":1,"use_beam_search":false,
         "response_format":{"type":"text"},"priority":0,"bad_words":[],"suffix":"","never_heard_of":{"x":1})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_THAT(request->unknown_fields, ::testing::ElementsAre("never_heard_of"));
}

TEST(CompletionRequest, BestOfAndBeams) {
  const auto sampling = [](const char* members) {
    const auto request = Completion(members);
    EXPECT_TRUE(request.has_value()) << members;
    return ResolveSampling(*request, {.temperature = 0.7, .top_k = 50}, 1);
  };
  for (const char* members : {R"("best_of":0)", R"("best_of":1)", R"("length_penalty":1,"early_stopping":false)"}) {
    EXPECT_EQ(sampling(members).n, 1) << members;
    EXPECT_FALSE(sampling(members).beam.has_value()) << members;
  }
  EXPECT_EQ(sampling(R"("best_of":1,"n":3)").n, 3);
  EXPECT_EQ(sampling(R"("best_of":5,"n":2)").n, 5) << "the engine computes all of them";
  EXPECT_EQ(sampling(R"("best_of":5,"n":2)").temperature, 0.7);

  const SamplingParams beams = sampling(R"("use_beam_search":true,"best_of":50,"n":3,"stream":true,"top_k":-1)");
  EXPECT_EQ(beams.n, 3);
  EXPECT_EQ(beams.beam, (BeamParams{.width = 50}));
  EXPECT_EQ(beams.temperature, 0) << "the model's recommendation is for sampling";
  EXPECT_EQ(beams.top_k, 0);
  EXPECT_EQ(sampling(R"("use_beam_search":true,"n":4,"temperature":0,"length_penalty":-1,"early_stopping":true)").beam,
            (BeamParams{.width = 4, .length_penalty = -1, .early_stopping = EarlyStopping::kOnceFull}));
  EXPECT_EQ(sampling(R"("use_beam_search":true,"early_stopping":"never")").beam->early_stopping, EarlyStopping::kNever);
  EXPECT_EQ(sampling(R"("use_beam_search":true)").beam->width, 1);
}

TEST(CompletionRequest, ReadsValues) {
  const auto request = Completion(
      R"("temperature":0.5,"top_k":5.0,"seed":-9223372036854775808,"n":2,"stop":["a","b"],"logit_bias":{"5":-100},
         "stop_token_ids":[7],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->temperature, 0.5);
  EXPECT_EQ(request->top_k, 5);
  EXPECT_EQ(request->seed, std::numeric_limits<std::int64_t>::min());
  EXPECT_THAT(request->stop, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(request->logit_bias[0].first, TokenId(5));
  EXPECT_TRUE(request->continuous_usage_stats);
}

TEST(Requests, ErrorsShowTheValueButNotAllOfIt) {
  const auto request = Completion("\"temperature\":\"" + std::string(5000, 'z') + "\"");
  ASSERT_FALSE(request.has_value());
  EXPECT_LT(request.error().message.size(), 400u);
  EXPECT_THAT(request.error().message, HasSubstr("from 0 to 100"));
  const auto cut = Completion("\"temperature\":\"" + std::string(199, 'z') + "🌶\"");
  EXPECT_THAT(cut.error().message, HasSubstr("z\"…")) << "not cut inside a character";
}

TEST(Sampling, RequestWinsOverRecommendationOverNeutral) {
  const GenerationDefaults defaults{
      .temperature = 0.7, .top_p = 0.9, .min_p = {}, .repetition_penalty = 1.1, .top_k = 40};
  const SamplingParams plain = ResolveSampling(*Completion(""), defaults, 99);
  EXPECT_EQ(plain.temperature, 0.7);
  EXPECT_EQ(plain.top_k, 40);
  EXPECT_EQ(plain.min_p, 0.0);
  EXPECT_EQ(plain.repetition_penalty, 1.1);
  EXPECT_EQ(plain.seed, 99u);
  const SamplingParams own = ResolveSampling(*Completion(R"("temperature":1.5,"top_k":-1,"seed":-1)"), defaults, 99);
  EXPECT_EQ(own.temperature, 1.5);
  EXPECT_EQ(own.top_k, 0);
  EXPECT_EQ(own.top_p, 0.9);
  EXPECT_EQ(own.seed, ~std::uint64_t{0});
  const SamplingParams greedy = ResolveSampling(*Completion(R"("top_p":0)"), defaults, 99);
  EXPECT_EQ(greedy.temperature, 0);
  EXPECT_GT(greedy.top_p, 0);
}

constexpr Refusal kChatRefusals[] = {
    {R"("top_logprobs":2)", "top_logprobs"},
    {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
    {R"("logprobs":5)", "logprobs"},
    {R"("max_completion_tokens":0)", "max_completion_tokens"},
    {R"("max_completion_tokens":-1)", "max_completion_tokens"},
    {R"("tool_choice":"required")", "tool_choice"},
    {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
    {R"("tool_choice":"maybe")", "tool_choice"},
    {R"("tools":{})", "tools"},
    {R"("tools":[5])", "tools[0]"},
    {R"("tools":[{"type":"custom"}])", "tools[0].type"},
    {R"("tools":[{"type":"function"}])", "tools[0].function"},
    {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
    {R"("chat_template":"{{ 1 }}")", "chat_template"},
    {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages"},
    {R"("chat_template_kwargs":{"bos_token":"x"})", "chat_template_kwargs.bos_token"},
    {R"("chat_template_kwargs":{"add_generation_prompt":true})", "chat_template_kwargs.add_generation_prompt"},
    {R"("chat_template_kwargs":5)", "chat_template_kwargs"},
    {R"("add_generation_prompt":true,"continue_final_message":true)", "continue_final_message"},
    {R"("reasoning_effort":"huge")", "reasoning_effort"},
    {R"("modalities":["text","audio"])", "modalities"},
    {R"("audio":{"voice":"alloy","format":"wav"})", "audio"},
    {R"("functions":[{"name":"f"}])", "functions"},
    {R"("web_search_options":{})", "web_search_options"},
    {R"("include_reasoning":false)", "include_reasoning"},
    {R"("documents":[5])", "documents[0]"},
};

TEST(ChatRequest, RefusesByName) {
  for (const Refusal& refusal : kChatRefusals) {
    const auto request = Chat(refusal.members);
    ASSERT_FALSE(request.has_value()) << refusal.members;
    EXPECT_EQ(request.error().param, refusal.param) << refusal.members;
  }
}

constexpr Refusal kMessageRefusals[] = {
    {R"({"role":"user"})", "messages"},
    {R"([])", "messages"},
    {R"(null)", "messages"},
    {R"([5])", "messages[0]"},
    {R"([{"content":"x"}])", "messages[0].role"},
    {R"([{"role":"king","content":"x"}])", "messages[0].role"},
    {R"([{"role":5,"content":"x"}])", "messages[0].role"},
    {R"([{"role":"user"}])", "messages[0].content"},
    {R"([{"role":"user","content":null}])", "messages[0].content"},
    {R"([{"role":"user","content":5}])", "messages[0].content"},
    {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
    {R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type"},
    {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"http://x"}}]}])",
     "messages[0].content[1].type"},
    {R"([{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}])", "messages[0].content[0].type"},
    {R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{}]}])", "messages[1].tool_calls[0].function"},
    {R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])",
     "messages[0].tool_calls[0].function.name"},
    // TMPL-09
    {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])",
     "messages[0].tool_calls[0].function.arguments"},
    {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])",
     "messages[0].tool_calls[0].function.arguments"},
    {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls"},
    {R"([{"role":"assistant","content":"x","audio":{"id":"a"}}])", "messages[0].audio"},
    {R"([{"role":"tool","content":"x","tool_call_id":5}])", "messages[0].tool_call_id"},
};

TEST(ChatRequest, RefusesMessagesByName) {
  for (const Refusal& refusal : kMessageRefusals) {
    const auto request = Chat("", refusal.members);
    ASSERT_FALSE(request.has_value()) << refusal.members;
    EXPECT_EQ(request.error().param, refusal.param) << refusal.members;
  }
}

TEST(ChatRequest, NormalizesMessages) {
  const auto request = Chat("", R"([
      {"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"reasoning":"hm","extra":1,
       "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\": 0.5}"}},
                     {"function":{"name":"g","arguments":""}}]},
      {"role":"tool","tool_call_id":"c1","content":"ok"}])");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(ToJson(request->messages),
            R"([{"role":"system","content":"a\nb"},)"
            R"({"role":"assistant","content":null,"reasoning":"hm","reasoning_content":"hm",)"
            R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":0.5}}},)"
            R"({"type":"function","function":{"name":"g","arguments":{}}}]},)"
            R"({"role":"tool","content":"ok","tool_call_id":"c1"}])");
}

TEST(ChatRequest, NewNameOfMaxTokensWins) {
  EXPECT_TRUE(Chat(R"("max_tokens":1,"max_completion_tokens":9,"min_tokens":5)").has_value());
  EXPECT_EQ(Chat(R"("max_tokens":9,"max_completion_tokens":1,"min_tokens":5)").error().param, "min_tokens");
}

TEST(ChatRequest, PassesTemplateVariables) {
  const auto request = Chat(
      R"("chat_template_kwargs":{"enable_thinking":true},"reasoning_effort":"none","tool_choice":"auto",
         "tools":[{"type":"function","function":{"name":"f","parameters":{}}}])");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->template_kwargs.at("enable_thinking"), true) << "the client's own word wins";
  EXPECT_EQ(request->template_kwargs.at("reasoning_effort"), "none");
  EXPECT_TRUE(request->tools.is_array());
}

}  // namespace
}  // namespace quire::server
