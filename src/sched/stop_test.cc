// When a choice ends, and which requests are let in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "sched/scheduler_test_util.h"
#include "sched/validate.h"

namespace quire::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Runs one request whose model says `script`, again and again from the start.
EngineEvent EndAfter(const std::vector<int>& script, const std::function<void(GenerateRequest*)>& change) {
  SchedulerHarness harness(TestConfig());
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 5), 6);
  change(&request);
  harness.sample = [&](const Sequence& sequence) {
    return TokenId(script[static_cast<std::size_t>(sequence.num_output_tokens()) % script.size()]);
  };
  EXPECT_TRUE(harness.Add(request).has_value());
  harness.RunToEnd();
  EngineEvent end = harness.EndOf(1);
  const std::vector<TokenId> tokens = harness.TokensOf(1);
  end.tokens.assign(tokens.begin(), tokens.end());
  return end;
}

TEST(Stop, EndOfSequence) {
  const EngineEvent end = EndAfter({7, 7, 999}, [](GenerateRequest*) {});
  EXPECT_EQ(end.finish_reason, FinishReason::kStop);
  EXPECT_FALSE(end.stop_token.has_value());
  EXPECT_THAT(end.tokens, ElementsAre(TokenId(7), TokenId(7), kEos));
}

TEST(Stop, EndOfSequenceCanBeIgnored) {
  const EngineEvent end = EndAfter({7, 7, 999}, [](GenerateRequest* request) { request->stop.ignore_eos = true; });
  EXPECT_EQ(end.finish_reason, FinishReason::kLength);
  EXPECT_EQ(end.tokens.size(), 6u);
}

TEST(Stop, StopIds) {
  const auto stop_at_7 = [](GenerateRequest* request) { request->stop.stop_token_ids = {TokenId(7)}; };
  const EngineEvent end = EndAfter({8, 7}, stop_at_7);
  EXPECT_EQ(end.finish_reason, FinishReason::kStop);
  EXPECT_EQ(end.stop_token, TokenId(7));
  EXPECT_EQ(end.tokens.size(), 2u);
  // EOS comes before the stop ids, and a stop id before the length.
  const auto stop_at_eos = [](GenerateRequest* request) { request->stop.stop_token_ids = {kEos}; };
  EXPECT_FALSE(EndAfter({999}, stop_at_eos).stop_token.has_value());
  EXPECT_EQ(EndAfter({1, 2, 3, 4, 5, 7}, stop_at_7).finish_reason, FinishReason::kStop);
  // An ignored EOS that is a stop id ends the choice as a stop id.
  const EngineEvent both = EndAfter({999}, [](GenerateRequest* request) {
    request->stop.ignore_eos = true;
    request->stop.stop_token_ids = {kEos};
  });
  EXPECT_EQ(both.stop_token, kEos);
}

TEST(Stop, MinTokensMasksAndHoldsBack) {
  for (const TokenId said : {TokenId(7), kEos}) {
    SchedulerHarness harness(TestConfig());
    auto request = SchedulerHarness::MakeRequest(1, Ids(0, 5), 6);
    request.stop.min_tokens = 2;
    request.stop.stop_token_ids = {TokenId(7)};
    ASSERT_TRUE(harness.Add(request).has_value());
    harness.sample = [said](const Sequence& sequence) {
      const auto ids = sequence.masked(sequence.num_output_tokens());
      const std::vector<TokenId> masked(ids.begin(), ids.end());
      if (sequence.num_output_tokens() < 2) {
        EXPECT_THAT(masked, UnorderedElementsAre(kEos, TokenId(7)));
      } else {
        EXPECT_THAT(masked, IsEmpty());
      }
      return said;  // whatever the mask says
    };
    harness.RunToEnd();
    EXPECT_EQ(harness.TokensOf(1).size(), 3u);
    EXPECT_EQ(harness.EndOf(1).finish_reason, FinishReason::kStop);
    // With ignore_eos nothing keeps EOS from being sampled.
    request.id = RequestId(2);
    request.stop.ignore_eos = true;
    ASSERT_TRUE(harness.Add(request).has_value());
    harness.Plan();
    const Sequence& sequence = *harness.plan.sequences.front().sequence;
    EXPECT_THAT(sequence.masked(sequence.num_output_tokens()), ElementsAre(TokenId(7)));
  }
}

// CTX-01: the context ends a choice, however many tokens were asked for.
TEST(Stop, TheContextIsALimit) {
  const EngineEvent end =
      EndAfter({7}, [](GenerateRequest* request) { request->stop.max_tokens = std::numeric_limits<int>::max(); });
  EXPECT_EQ(end.finish_reason, FinishReason::kLength);
  EXPECT_EQ(end.tokens.size(), 64u - 5u);
}

// BAD-07: only the prompt's logprobs are wanted.
TEST(Stop, NoTokensAtAll) {
  for (const int chunk : {0, 2}) {
    SchedulerConfig config = TestConfig();
    config.max_chunk_tokens = chunk;
    SchedulerHarness harness(config);
    auto request = SchedulerHarness::MakeRequest(1, Ids(0, 5), 0);
    request.sampling.prompt_logprobs = 1;
    request.sampling.n = 2;
    ASSERT_TRUE(harness.Add(request).has_value());
    harness.RunToEnd();
    ASSERT_EQ(harness.events.size(), 2u);
    EXPECT_EQ(harness.events[0].prompt_logprobs.size(), 5u);
    for (int choice = 0; choice < 2; ++choice) {
      EXPECT_EQ(harness.EndOf(1, choice).finish_reason, FinishReason::kLength);
      EXPECT_THAT(harness.TokensOf(1, choice), IsEmpty());
    }
    EXPECT_EQ(harness.Stats().generation_tokens, 0u);
  }
}

// BAD-03, BAD-04, BAD-06, CTX-01 and every other number that can be wrong: refused by name, and nothing is queued.
TEST(Validate, NamesTheField) {
  struct Case {
    const char* param;
    std::function<void(GenerateRequest*)> change;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Case> cases = {
      {"prompt", [](GenerateRequest* r) { r->prompt.clear(); }},
      {"prompt", [](GenerateRequest* r) { r->prompt = Ids(0, 64); }},
      {"prompt", [](GenerateRequest* r) { r->prompt[2] = TokenId(-1); }},
      {"prompt", [](GenerateRequest* r) { r->prompt[2] = TokenId(1000); }},
      {"max_tokens", [](GenerateRequest* r) { r->stop.max_tokens = -1; }},
      {"min_tokens", [](GenerateRequest* r) { r->stop.min_tokens = -1; }},
      {"min_tokens", [](GenerateRequest* r) { r->stop.min_tokens = 7; }},
      {"stop_token_ids", [](GenerateRequest* r) { r->stop.stop_token_ids = {TokenId(5), TokenId(191222)}; }},
      {"logit_bias", [](GenerateRequest* r) { r->sampling.logit_bias = {{TokenId(191222), -100.0f}}; }},
      {"logit_bias", [](GenerateRequest* r) { r->sampling.logit_bias = {{TokenId(-3), 1.0f}}; }},
      {"logit_bias", [](GenerateRequest* r) { r->sampling.logit_bias = {{TokenId(3), 101.0f}}; }},
      {"logit_bias",
       [](GenerateRequest* r) { r->sampling.logit_bias = {{TokenId(3), std::numeric_limits<float>::quiet_NaN()}}; }},
      {"n", [](GenerateRequest* r) { r->sampling.n = 0; }},
      {"n", [](GenerateRequest* r) { r->sampling.n = 129; }},
      {"logprobs", [](GenerateRequest* r) { r->sampling.logprobs = -1; }},
      {"prompt_logprobs", [](GenerateRequest* r) { r->sampling.prompt_logprobs = 1001; }},
      {"temperature", [](GenerateRequest* r) { r->sampling.temperature = kNan; }},
      {"temperature", [](GenerateRequest* r) { r->sampling.temperature = std::numeric_limits<double>::infinity(); }},
      {"temperature", [](GenerateRequest* r) { r->sampling.temperature = -0.5; }},
      {"top_k", [](GenerateRequest* r) { r->sampling.top_k = -2; }},
      {"top_p", [](GenerateRequest* r) { r->sampling.top_p = 1.5; }},
      {"top_p", [](GenerateRequest* r) { r->sampling.top_p = 0; }},
      {"min_p", [](GenerateRequest* r) { r->sampling.min_p = -0.1; }},
      {"repetition_penalty", [](GenerateRequest* r) { r->sampling.repetition_penalty = 0; }},
      {"presence_penalty", [](GenerateRequest* r) { r->sampling.presence_penalty = kNan; }},
      {"frequency_penalty", [](GenerateRequest* r) { r->sampling.frequency_penalty = -2.5; }},
  };
  SchedulerHarness harness(TestConfig());
  for (const Case& one : cases) {
    auto request = SchedulerHarness::MakeRequest(1, Ids(0, 5), 6);
    one.change(&request);
    const Result<> refused = harness.Add(request);
    ASSERT_FALSE(refused.has_value()) << one.param;
    EXPECT_EQ(refused.error().param, one.param) << refused.error().message;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(harness.scheduler.has_unfinished());
  }
  harness.Add(1, Ids(0, 5), 6);
  harness.RunToEnd();
}

TEST(SchedulerConfig, NamesTheField) {
  const std::vector<std::pair<const char*, int SchedulerConfig::*>> fields = {
      {"max_num_batched_tokens", &SchedulerConfig::max_num_batched_tokens},
      {"max_num_seqs", &SchedulerConfig::max_num_seqs},
      {"max_model_len", &SchedulerConfig::max_model_len},
      {"num_blocks", &SchedulerConfig::num_blocks},
      {"block_size", &SchedulerConfig::block_size},
      {"vocab_size", &SchedulerConfig::vocab_size},
      {"max_chunk_tokens", &SchedulerConfig::max_chunk_tokens},
      {"max_num_queued_requests", &SchedulerConfig::max_num_queued_requests},
      {"max_num_queued_tokens", &SchedulerConfig::max_num_queued_tokens},
      {"queue_timeout_ms", &SchedulerConfig::queue_timeout_ms},
      {"untargeted_ttft_ms", &SchedulerConfig::untargeted_ttft_ms},
      {"min_prefill_tokens", &SchedulerConfig::min_prefill_tokens},
      {"max_num_choices", &SchedulerConfig::max_num_choices},
      {"max_beam_width", &SchedulerConfig::max_beam_width},
      {"max_overtakes", &SchedulerConfig::max_overtakes},
      {"max_lookups_per_step", &SchedulerConfig::max_lookups_per_step},
      {"max_held_back_steps", &SchedulerConfig::max_held_back_steps},
      {"min_prefix_wait_tokens", &SchedulerConfig::min_prefix_wait_tokens},
  };
  EXPECT_TRUE(TestConfig().Validate().has_value());
  for (const auto& [name, field] : fields) {
    SchedulerConfig config = TestConfig();
    config.*field = -1;
    const Result<> refused = config.Validate();
    ASSERT_FALSE(refused.has_value()) << name;
    EXPECT_EQ(refused.error().param, name);
  }
  SchedulerConfig config = TestConfig();
  config.num_blocks = 1 << 30;
  EXPECT_EQ(config.Validate().error().param, "num_blocks");
  // What one policy can do and another cannot.
  config = TestConfig();
  config.default_tpot_ms = 10;
  EXPECT_EQ(config.Validate().error().param, "default_tpot_ms");
  config.policy = PolicyKind::kSlo;
  EXPECT_TRUE(config.Validate().has_value());
  config.default_ttft_ms = std::nan("");
  EXPECT_EQ(config.Validate().error().param, "default_ttft_ms");
  config.default_ttft_ms = 0;
  config.enable_fairness = true;
  EXPECT_EQ(config.Validate().error().param, "enable_fairness");
  config = TestConfig();
  config.shed_unmeetable = true;
  EXPECT_EQ(config.Validate().error().param, "shed_unmeetable");
  config = TestConfig();
  config.output_token_weight = 0;
  EXPECT_EQ(config.Validate().error().param, "output_token_weight");
}

}  // namespace
}  // namespace quire::sched
