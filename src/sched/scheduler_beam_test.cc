// Beams in the scheduler: who shares what, who is scheduled, preempted and ended with whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sched/scheduler.h"
#include "sched/scheduler_test_util.h"
#include "sched/validate.h"

namespace quire::sched {
namespace {

using Ran = SchedulerHarness::Ran;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

GenerateRequest BeamRequest(std::uint64_t id, std::vector<TokenId> prompt, int max_tokens, int width, int n = 1) {
  GenerateRequest request = SchedulerHarness::MakeRequest(id, std::move(prompt), max_tokens);
  request.sampling.temperature = 0;
  request.sampling.n = n;
  request.sampling.beam = {.width = width, .early_stopping = EarlyStopping::kNever};
  return request;
}

TEST(SchedulerBeams, ThePromptIsComputedOnceAndEachBeamRunsOneToken) {
  SchedulerHarness harness(TestConfig());
  ASSERT_TRUE(harness.Add(BeamRequest(1, Ids(0, 6), 3, 3, 2)).has_value());
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 6, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 6, 1, true}, Ran{1, 1, 6, 1, true}, Ran{1, 2, 6, 1, true}));
  EXPECT_THAT(harness.Step(), SizeIs(3));
  EXPECT_FALSE(harness.scheduler.has_unfinished());
  // The likeliest token is always the first of its step; the second best differs once.
  EXPECT_EQ(harness.TokensOf(1, 0), (std::vector{TokenId(500), TokenId(510), TokenId(520)}));
  EXPECT_THAT(harness.TokensOf(1, 1), SizeIs(3));
  EXPECT_NE(harness.TokensOf(1, 1), harness.TokensOf(1, 0));
  for (int choice = 0; choice < 2; ++choice) EXPECT_EQ(harness.EndOf(1, choice).finish_reason, FinishReason::kLength);
  EXPECT_EQ(harness.Stats().generation_tokens, 6u);
  EXPECT_EQ(harness.Stats().prompt_tokens, 6u);
}

TEST(SchedulerBeams, ABudgetBelowTheWidthTakesSeveralSteps) {
  SchedulerConfig config = TestConfig();
  config.max_num_batched_tokens = 2;
  SchedulerHarness harness(config);
  ASSERT_TRUE(harness.Add(BeamRequest(1, Ids(0, 2), 2, 3)).has_value());
  harness.Step();
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 2, 1, true}, Ran{1, 1, 2, 1, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 2, 2, 1, true}));  // the other two wait for it
  EXPECT_FALSE(harness.scheduler.has_unfinished());
}

TEST(SchedulerBeams, TakeAsManySeatsAsTheSearchIsWide) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 4;
  SchedulerHarness harness(config);
  ASSERT_TRUE(harness.Add(BeamRequest(1, Ids(0, 6), 4, 3)).has_value());
  harness.Add(2, Ids(100, 3), 1);
  harness.Add(3, Ids(200, 3), 1);
  EXPECT_THAT(harness.Step(), SizeIs(2)) << "one seat beside three beams";
  EXPECT_EQ(harness.Stats().num_requests_running, 1);
  EXPECT_THAT(harness.Step(), SizeIs(4));
  harness.RunToEnd();
  ASSERT_TRUE(harness.Add(BeamRequest(4, Ids(0, 6), 4, 4)).has_value());
  harness.Add(5, Ids(100, 3), 1);
  EXPECT_THAT(harness.Step(), SizeIs(1));
  harness.RunToEnd();
}

// The whole group goes and comes back: the first beam computes what all have in common, the others fork from it, and
// the outcome is the same.
TEST(SchedulerBeams, ArePreemptedAndResumedTogether) {
  std::vector<TokenId> alone;
  for (const bool is_scarce : {false, true}) {
    for (const bool caching : {false, true}) {
      SchedulerConfig config = TestConfig();
      config.enable_prefix_caching = caching;
      if (is_scarce) config.num_blocks = 9;
      SchedulerHarness harness(config);
      harness.Add(1, Ids(100, 15), 14);  // 7 blocks in the end
      harness.Step();
      ASSERT_TRUE(harness.Add(BeamRequest(2, Ids(0, 9), 8, 3)).has_value());  // 2 + 3 · 2 in the end
      harness.RunToEnd(200);
      EXPECT_EQ(harness.EndOf(2).times.num_preemptions > 0, is_scarce);
      EXPECT_EQ(harness.TokensOf(1), Ids(500, 14));
      if (alone.empty()) alone = harness.TokensOf(2);
      EXPECT_EQ(harness.TokensOf(2), alone);
      EXPECT_EQ(harness.scheduler.kv().num_available_blocks(), config.num_blocks);
    }
  }
}

TEST(SchedulerBeams, AnAbortEndsOneChoiceOrAll) {
  SchedulerHarness harness(TestConfig());
  ASSERT_TRUE(harness.Add(BeamRequest(1, Ids(0, 6), 5, 3, 3)).has_value());
  harness.Step();
  harness.Step();
  harness.Abort(1, 1);
  EXPECT_EQ(harness.EndOf(1, 1).finish_reason, FinishReason::kAbort);
  harness.scheduler.CheckIntegrity();
  harness.RunToEnd();
  EXPECT_EQ(harness.EndOf(1, 0).finish_reason, FinishReason::kLength);
  EXPECT_EQ(harness.EndOf(1, 2).finish_reason, FinishReason::kLength);

  ASSERT_TRUE(harness.Add(BeamRequest(2, Ids(0, 6), 5, 3, 2)).has_value());
  harness.Step();
  harness.Step();
  harness.Abort(2, 0);
  harness.Abort(2, 1);
  EXPECT_FALSE(harness.scheduler.has_unfinished());
  EXPECT_EQ(harness.Stats().num_requests_running, 0);
  harness.scheduler.CheckIntegrity();
}

TEST(SchedulerBeams, WithoutTokensNothingIsSearched) {
  SchedulerHarness harness(TestConfig());
  GenerateRequest request = BeamRequest(1, Ids(0, 6), 0, 3, 2);
  request.sampling.prompt_logprobs = 0;
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.RunToEnd();
  for (int choice = 0; choice < 2; ++choice) EXPECT_EQ(harness.EndOf(1, choice).finish_reason, FinishReason::kLength);
}

TEST(SchedulerBeams, WhatCannotBeHonouredIsRefused) {
  SchedulerConfig config = TestConfig();
  config.max_num_choices = 16;
  const auto blames = [&](auto change, const char* words = "") {
    GenerateRequest request = BeamRequest(1, Ids(0, 6), 5, 4, 2);
    change(&request);
    const Result<> valid = ValidateRequest(config, request);
    if (valid) return std::string("nothing");
    EXPECT_THAT(valid.error().message, HasSubstr(words));
    return valid.error().param;
  };
  EXPECT_EQ(blames([](GenerateRequest*) {}), "nothing");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.beam->width = 1; }, "at least n, 2"), "best_of");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.beam->width = 9; }, "at most 8 sequences"), "best_of");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.n = r->sampling.beam->width = 9; }), "n");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.n = 1'000'000; }), "n");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.beam->length_penalty = 11; }), "length_penalty");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.beam->length_penalty = 0.0 / 0.0; }), "length_penalty");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.temperature = 0.5; }), "temperature");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.top_k = 3; }), "top_k");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.top_p = 0.5; }), "top_p");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.min_p = 0.5; }), "min_p");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.repetition_penalty = 2; }), "repetition_penalty");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.presence_penalty = 1; }), "presence_penalty");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.frequency_penalty = 1; }), "frequency_penalty");
  EXPECT_EQ(blames([](GenerateRequest* r) {
              r->sampling.beam.reset();
              r->stop.stop_strings = {"x"};
            }),
            "stop");

  config.max_beam_width = 12;
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.beam->width = 12; }), "nothing");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->sampling.beam->width = 13; }), "best_of");

  // 6 prompt tokens and 5 of which the last is not run: 10 tokens, of which the first block is shared.
  config.num_blocks = 1 + 4 * 2;
  EXPECT_EQ(blames([](GenerateRequest*) {}), "nothing");
  config.num_blocks = 4 * 2;
  EXPECT_EQ(blames([](GenerateRequest*) {}, "may need 9 KV blocks of 4 tokens; the pool has 8"), "best_of");
  EXPECT_EQ(blames([](GenerateRequest* r) { r->stop.max_tokens = 0; }), "nothing");

  SchedulerHarness harness(TestConfig());
  GenerateRequest with_text = BeamRequest(1, Ids(0, 6), 5, 4, 2);
  with_text.stop.stop_strings = {"x"};
  const Result<> refused = harness.Add(with_text);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  harness.scheduler.CheckIntegrity();
}

}  // namespace
}  // namespace quire::sched
