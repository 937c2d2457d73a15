// A scheduler without continuous batching, without chunks, without paging: what experiments compare with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sched/scheduler_test_util.h"

namespace quire::sched {
namespace {

using Ran = SchedulerHarness::Ran;
using testing::ElementsAre;

TEST(StaticBatching, ABatchIsAdmittedWhenTheOneBeforeHasEnded) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 2;
  config.ablations.static_batching = true;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 3), 1);
  harness.Add(2, Ids(100, 3), 3);
  harness.Add(3, Ids(200, 3), 1);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 3, true}, Ran{2, 0, 0, 3, true}));
  // The place of the first stays empty, as long as the second runs.
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 3, 1, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 4, 1, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{3, 0, 0, 3, true}));
  EXPECT_FALSE(harness.scheduler.has_unfinished());
}

TEST(StaticBatching, ABatchThatTheQueueDidNotFillIsClosed) {
  SchedulerConfig config = TestConfig();
  config.ablations.static_batching = true;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 3), 3);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 3, true}));
  harness.Add(2, Ids(100, 3), 1);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 3, 1, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 4, 1, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 0, 3, true}));
}

TEST(StaticBatching, TheBudgetOfAStepDoesNotCloseABatch) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 3;
  config.max_num_batched_tokens = 5;
  config.ablations.static_batching = true;
  SchedulerHarness harness(config);
  for (int id = 1; id <= 4; ++id) harness.Add(static_cast<std::uint64_t>(id), Ids(100 * id, 4), 4);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 4, true}, Ran{2, 0, 0, 1, false}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 4, 1, true}, Ran{2, 0, 1, 3, true}, Ran{3, 0, 0, 1, false}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 5, 1, true}, Ran{2, 0, 4, 1, true}, Ran{3, 0, 1, 3, true}));
  harness.RunToEnd();
  // The fourth came after all three had ended.
  EXPECT_GT(harness.EndOf(4).times.first_scheduled, harness.EndOf(3).times.last_token);
}

TEST(StaticBatching, APreemptedMemberOfTheBatchComesBackToIt) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 2;
  config.num_blocks = 5;
  config.enable_prefix_caching = false;
  config.ablations.static_batching = true;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 4), 9);    // three blocks in the end
  harness.Add(2, Ids(100, 4), 9);  // likewise
  harness.Add(3, Ids(200, 4), 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.EndOf(2).times.num_preemptions, 1);
  EXPECT_GT(harness.EndOf(3).times.first_scheduled, harness.EndOf(2).times.last_token);
}

// A step takes a prompt of any length beside one token of each of the others.
SchedulerConfig WholePrompts() {
  SchedulerConfig config = TestConfig();
  config.max_model_len = 10;
  config.max_num_seqs = 3;
  config.max_num_batched_tokens = 13;
  config.ablations.whole_prompts = true;
  return config;
}

TEST(WholePrompts, APromptWaitsForAStepThatHasRoomForAllOfIt) {
  SchedulerHarness harness(WholePrompts());
  harness.Add(1, Ids(0, 8), 2);
  harness.Add(2, Ids(100, 6), 2);
  harness.Add(3, Ids(200, 5), 1);  // would fit into the rest of the first step, and does not overtake
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 8, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 8, 1, true}, Ran{2, 0, 0, 6, true}, Ran{3, 0, 0, 5, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 6, 1, true}));
}

TEST(WholePrompts, WhatTheCacheHasNeedsNoRoom) {
  SchedulerHarness harness(WholePrompts());
  harness.Add(1, Ids(0, 9), 1);
  harness.Step();
  harness.Add(2, Ids(100, 9), 1);
  harness.Add(3, Ids(0, 9), 1);  // one token is left of it
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 0, 9, true}, Ran{3, 0, 8, 1, true}));
}

TEST(WholePrompts, TheLimitsHaveToLeaveRoomForAPromptBesideAllOthers) {
  SchedulerConfig config = TestConfig();
  config.ablations.whole_prompts = true;
  config.max_num_batched_tokens = config.max_model_len + config.max_num_seqs;
  EXPECT_TRUE(config.Validate().has_value());
  --config.max_num_batched_tokens;
  EXPECT_EQ(config.Validate().error().param, "max_num_batched_tokens");
  ++config.max_num_batched_tokens;
  config.max_chunk_tokens = 1;
  EXPECT_EQ(config.Validate().error().param, "max_chunk_tokens");
}

TEST(Ablations, WhoRunsIsLeftAlone) {
  SchedulerConfig config = TestConfig();
  config.ablations.static_batching = true;
  for (const PolicyKind policy : kPolicyKinds) {
    config.policy = policy;
    const bool is_possible = policy != PolicyKind::kPriority && policy != PolicyKind::kSlo;
    EXPECT_EQ(config.Validate().has_value(), is_possible) << PolicyName(policy);
  }
}

SchedulerConfig ReservingConfig() {
  SchedulerConfig config = TestConfig();
  config.max_model_len = 14;  // four blocks
  config.num_blocks = 9;
  config.enable_prefix_caching = false;
  config.ablations.reserve_max_model_len = true;
  return config;
}

TEST(Reservation, EachSequenceHoldsTheLongestLengthWhileItRuns) {
  SchedulerHarness harness(ReservingConfig());
  for (int id = 1; id <= 3; ++id) harness.Add(static_cast<std::uint64_t>(id), Ids(100 * id, 2), 2);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 2, true}, Ran{2, 0, 0, 2, true}));
  EXPECT_EQ(harness.scheduler.kv().num_owned_blocks(), 8);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 2, 1, true}, Ran{2, 0, 2, 1, true}));
  EXPECT_EQ(harness.scheduler.kv().num_owned_blocks(), 0);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{3, 0, 0, 2, true}));
  EXPECT_EQ(harness.scheduler.kv().num_owned_blocks(), 4);
  harness.RunToEnd();
  EXPECT_EQ(harness.Stats().preemptions, 0u);
}

TEST(Reservation, ChoicesShareNothing) {
  SchedulerHarness harness(ReservingConfig());
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 6), 2);
  request.sampling.n = 3;
  ASSERT_TRUE(harness.Add(std::move(request)).has_value());
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 6, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 6, 1, true}, Ran{1, 1, 0, 6, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 1, 6, 1, true}, Ran{1, 2, 0, 6, true}));
  harness.RunToEnd();
}

TEST(Reservation, NeedsAPoolForOneAndNoCache) {
  SchedulerConfig config = ReservingConfig();
  EXPECT_TRUE(config.Validate().has_value());
  config.num_blocks = 3;
  EXPECT_EQ(config.Validate().error().param, "num_blocks");
  config.num_blocks = 4;
  config.enable_prefix_caching = true;
  EXPECT_EQ(config.Validate().error().param, "enable_prefix_caching");
}

}  // namespace
}  // namespace quire::sched
