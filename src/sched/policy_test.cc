// In which order waiting requests are admitted.
#include "sched/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sched/scheduler_test_util.h"

namespace quire::sched {
namespace {

using Ran = SchedulerHarness::Ran;
using testing::ElementsAre;

SchedulerConfig LpmConfig() {
  SchedulerConfig config = TestConfig();
  config.policy = PolicyKind::kLpm;
  config.max_num_seqs = 1;
  return config;
}

// Which requests ran, in order of their first step.
std::vector<std::uint64_t> AdmissionOrder(SchedulerHarness* harness) {
  std::vector<std::uint64_t> order;
  while (harness->scheduler.has_unfinished()) {
    for (const Ran& ran : harness->Step()) {
      if (order.empty() || order.back() != ran.request) order.push_back(ran.request);
    }
  }
  return order;
}

void AddFamily(SchedulerHarness* harness) {
  harness->Add(1, Ids(0, 12), 1);
  harness->Step();
  harness->Add(2, Ids(100, 12), 1);  // nothing of it is cached
  harness->Add(3, Ids(0, 6), 1);     // five tokens
  harness->Add(4, Ids(0, 11), 1);    // ten
  harness->Add(5, Ids(0, 6), 1);     // as many as the third
}

TEST(Policy, FirstComeFirstServed) {
  SchedulerConfig config = LpmConfig();
  config.policy = PolicyKind::kFcfs;
  SchedulerHarness harness(config);
  AddFamily(&harness);
  EXPECT_THAT(AdmissionOrder(&harness), ElementsAre(2, 3, 4, 5));
}

TEST(Policy, LongestMatchFirstThenByArrival) {
  SchedulerHarness harness(LpmConfig());
  AddFamily(&harness);
  EXPECT_THAT(AdmissionOrder(&harness), ElementsAre(4, 3, 5, 2));
}

TEST(Policy, OnlyTheOldestAreLookedUp) {
  SchedulerConfig config = LpmConfig();
  config.max_lookups_per_step = 2;
  SchedulerHarness harness(config);
  AddFamily(&harness);
  EXPECT_THAT(AdmissionOrder(&harness), ElementsAre(3, 4, 5, 2));
}

TEST(Policy, NobodyIsOvertakenForEver) {
  for (const int most : {0, 1, 3}) {
    SchedulerConfig config = LpmConfig();
    config.max_overtakes = most;
    SchedulerHarness harness(config);
    harness.Add(1, Ids(0, 12), 1);
    harness.Step();
    harness.Add(2, Ids(100, 12), 1);
    int num_overtakes = 0;
    for (std::uint64_t id = 3;; ++id) {
      ASSERT_LT(id, 100u);
      harness.Add(id, Ids(0, 12), 1);  // always a better match
      if (harness.Step().front().request == 2) break;
      ++num_overtakes;
    }
    EXPECT_EQ(num_overtakes, most);
  }
}

// Two requests with the same prompt: the second waits until the first has computed it.
TEST(Policy, WhatIsBeingComputedIsNotComputedTwice) {
  SchedulerConfig config = TestConfig();
  config.policy = PolicyKind::kLpm;
  config.max_num_batched_tokens = 16;
  config.max_chunk_tokens = 8;
  config.min_prefix_wait_tokens = 4;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 20), 1);
  harness.Add(2, Ids(0, 18), 1);
  harness.Add(3, Ids(100, 3), 1);  // is not held up by the one that waits
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 8, false}, Ran{3, 0, 0, 3, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 8, 8, false}));
  // What it can have of the rest is less than it is worth waiting for.
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 16, 4, true}, Ran{2, 0, 16, 2, true}));
}

TEST(Policy, SaltsAreNotWaitedFor) {
  SchedulerConfig config = TestConfig();
  config.policy = PolicyKind::kLpm;
  config.max_num_batched_tokens = 16;
  config.max_chunk_tokens = 8;
  config.min_prefix_wait_tokens = 4;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 20), 1);
  auto request = SchedulerHarness::MakeRequest(2, Ids(0, 20), 1);
  request.cache_salt = "salt";
  ASSERT_TRUE(harness.Add(request).has_value());
  EXPECT_EQ(harness.Step().size(), 2u);
}

TEST(Policy, WaitingForAPrefixIsBounded) {
  SchedulerConfig config = TestConfig();
  config.policy = PolicyKind::kLpm;
  config.max_chunk_tokens = 1;
  config.min_prefix_wait_tokens = 4;
  config.max_prefix_wait_steps = 3;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 40), 1);
  harness.Add(2, Ids(0, 40), 1);
  for (int step = 0; step < 3; ++step) EXPECT_EQ(harness.Step().size(), 1u);
  EXPECT_EQ(harness.Step().size(), 2u);
}

TEST(Policy, NamesRoundTrip) {
  for (const PolicyKind kind : {PolicyKind::kFcfs, PolicyKind::kLpm})
    EXPECT_EQ(ParsePolicy(PolicyName(kind)).value(), kind);
  EXPECT_FALSE(ParsePolicy("LPM").has_value());
}

}  // namespace
}  // namespace quire::sched
