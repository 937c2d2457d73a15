// In which order waiting requests are admitted.
#include "sched/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
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
  config.max_held_back_steps = 3;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 40), 1);
  harness.Add(2, Ids(0, 40), 1);
  for (int step = 0; step < 3; ++step) EXPECT_EQ(harness.Step().size(), 1u);
  EXPECT_EQ(harness.Step().size(), 2u);
}

TEST(Policy, NamesRoundTrip) {
  for (const PolicyKind kind : kPolicyKinds) EXPECT_EQ(ParsePolicy(PolicyName(kind)).value(), kind);
  EXPECT_FALSE(ParsePolicy("LPM").has_value());
}

// ---------------------------------------------------------------- dfs-weight

// All that wait are admitted in one step.
SchedulerConfig DfsConfig() {
  SchedulerConfig config = TestConfig();
  config.policy = PolicyKind::kDfsWeight;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 512;
  return config;
}

std::vector<std::uint64_t> RequestsOf(const std::vector<Ran>& step) {
  std::vector<std::uint64_t> requests;
  for (const Ran& ran : step) requests.push_back(ran.request);
  return requests;
}

// What is cached, and who waits for it:
//
//   0 … 7 ─┬─ 100 … 107 ─┬─ 200 … 207    2 (arrives first)
//          │             └─ 300 … 307    3, 6
//          └─ 400 … 407                  4, 5, and 7 that ends there
//   nothing                              8
TEST(Policy, DfsWeightGoesWhereMostWait) {
  SchedulerHarness harness(DfsConfig());
  const auto path = [](std::initializer_list<int> parts, int last) {
    std::vector<TokenId> ids;
    for (const int part : parts) {
      for (const TokenId id : Ids(part, 8)) ids.push_back(id);
    }
    ids.push_back(TokenId(last));
    return ids;
  };
  harness.Add(10, path({0, 100, 200}, 900), 1);
  harness.Add(11, path({0, 100, 300}, 900), 1);
  harness.Add(12, path({0, 400}, 900), 1);
  harness.RunToEnd();
  harness.Add(2, path({0, 100, 200}, 901), 1);
  harness.Add(3, path({0, 100, 300}, 902), 1);
  harness.Add(4, path({0, 400}, 900), 1);
  harness.Add(5, path({0, 400}, 900), 1);
  harness.Add(6, path({0, 100, 300}, 903), 1);
  harness.Add(7, path({0}, 904), 1);
  harness.Add(8, path({600}, 905), 1);
  harness.Add(9, path({0, 400}, 901), 1);
  // Seven share the first part; below it 400 … 407 has three and so has 100 … 107, whose oldest came first.
  EXPECT_THAT(RequestsOf(harness.Step()), ElementsAre(3, 6, 2, 4, 5, 9, 7, 8));
}

TEST(Policy, DfsWeightOfTwoNamespaces) {
  SchedulerHarness harness(DfsConfig());
  const auto add = [&](std::uint64_t id, const char* salt) {
    auto request = SchedulerHarness::MakeRequest(id, Ids(0, 9), 1);
    request.cache_salt = salt;
    ASSERT_TRUE(harness.Add(request).has_value());
  };
  add(1, "a");
  add(2, "b");
  harness.RunToEnd();
  add(3, "a");
  add(4, "b");
  add(5, "b");
  add(6, "a");
  add(7, "b");
  EXPECT_THAT(RequestsOf(harness.Step()), ElementsAre(4, 5, 7, 3, 6));
}

// ---------------------------------------------------------------- random

TEST(Policy, RandomIsAFunctionOfItsSeed) {
  const auto order_of = [](std::uint64_t seed) {
    SchedulerConfig config = TestConfig();
    config.policy = PolicyKind::kRandom;
    config.max_num_seqs = 1;
    config.random_seed = seed;
    SchedulerHarness harness(config);
    for (std::uint64_t id = 1; id <= 12; ++id) harness.Add(id, Ids(static_cast<int>(id) * 10, 4), 1);
    return AdmissionOrder(&harness);
  };
  const std::vector<std::uint64_t> order = order_of(1);
  EXPECT_EQ(order.size(), 12u);
  EXPECT_EQ(order, order_of(1));
  EXPECT_NE(order, order_of(2));
  EXPECT_FALSE(std::ranges::is_sorted(order));
  auto sorted = order;
  std::ranges::sort(sorted);
  EXPECT_EQ(std::ranges::adjacent_find(sorted), sorted.end());
}

// ---------------------------------------------------------------- priority

SchedulerConfig PriorityConfig() {
  SchedulerConfig config = TestConfig();
  config.policy = PolicyKind::kPriority;
  return config;
}

void AddWithPriority(SchedulerHarness* harness, std::uint64_t id, int priority, std::vector<TokenId> prompt,
                     int max_tokens, int n = 1) {
  auto request = SchedulerHarness::MakeRequest(id, std::move(prompt), max_tokens);
  request.terms.priority = priority;
  request.sampling.n = n;
  ASSERT_TRUE(harness->Add(request).has_value());
}

TEST(Priority, LowerFirstThenByArrival) {
  SchedulerConfig config = PriorityConfig();
  config.max_num_seqs = 1;
  SchedulerHarness harness(config);
  AddWithPriority(&harness, 1, 0, Ids(0, 4), 1);
  AddWithPriority(&harness, 2, 5, Ids(10, 4), 1);
  AddWithPriority(&harness, 3, -5, Ids(20, 4), 1);
  AddWithPriority(&harness, 4, 5, Ids(30, 4), 1);
  AddWithPriority(&harness, 5, 0, Ids(40, 4), 1);
  EXPECT_THAT(AdmissionOrder(&harness), ElementsAre(3, 1, 5, 2, 4));
}

TEST(Priority, TakesTheSeatOfARunningSequence) {
  SchedulerConfig config = PriorityConfig();
  config.max_num_seqs = 2;
  SchedulerHarness harness(config);
  AddWithPriority(&harness, 1, 3, Ids(0, 4), 6);
  AddWithPriority(&harness, 2, 2, Ids(100, 4), 6);
  harness.Step();
  AddWithPriority(&harness, 3, 2, Ids(200, 4), 2);  // displaces 1, the lowest, but not its equal
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 4, 1, true}, Ran{3, 0, 0, 4, true}));
  AddWithPriority(&harness, 4, 3, Ids(300, 4), 2);  // displaces nobody, and comes after the one that was displaced
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 5, 1, true}, Ran{3, 0, 4, 1, true}));
  harness.Step();
  EXPECT_EQ(harness.scheduler.num_queued_requests(), 1);  // 1 is back, 4 waits
  harness.RunToEnd();
  EXPECT_EQ(harness.TokensOf(1), Ids(500, 6));
  EXPECT_EQ(harness.TokensOf(4), Ids(500, 2));
  EXPECT_EQ(harness.EndOf(1).times.num_preemptions, 1);
  EXPECT_EQ(harness.EndOf(2).times.num_preemptions, 0);
}

TEST(Priority, TakesTheMemoryOfRunningSequences) {
  SchedulerConfig config = PriorityConfig();
  config.num_blocks = 12;  // 48 tokens
  config.enable_prefix_caching = false;
  SchedulerHarness harness(config);
  AddWithPriority(&harness, 1, 1, Ids(0, 12), 8);
  AddWithPriority(&harness, 2, 4, Ids(100, 12), 8);
  AddWithPriority(&harness, 3, 5, Ids(200, 12), 8);
  harness.Step();
  AddWithPriority(&harness, 4, 2, Ids(300, 24), 2);
  // Both of the lower ones have to go; the first one stays.
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 12, 1, true}, Ran{4, 0, 0, 24, true}));
  harness.RunToEnd();
  for (const std::uint64_t id : {1, 2, 3}) EXPECT_EQ(harness.TokensOf(id), Ids(500, 8));
}

// What could be taken would not be enough: then nothing is.
TEST(Priority, DisplacesNobodyInVain) {
  SchedulerConfig config = PriorityConfig();
  config.num_blocks = 12;
  config.enable_prefix_caching = false;
  SchedulerHarness harness(config);
  AddWithPriority(&harness, 1, 1, Ids(0, 30), 8);
  AddWithPriority(&harness, 2, 5, Ids(100, 4), 4);
  harness.Step();
  AddWithPriority(&harness, 3, 2, Ids(200, 30), 2);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 30, 1, true}, Ran{2, 0, 4, 1, true}));
  harness.RunToEnd();
  EXPECT_EQ(harness.EndOf(2).times.num_preemptions, 0);
}

// A long prompt of lower priority lets the urgent one go first, and keeps what it has computed.
TEST(Priority, GoesBeforeTheRestOfAPrompt) {
  SchedulerConfig config = PriorityConfig();
  config.max_num_batched_tokens = 8;
  SchedulerHarness harness(config);
  AddWithPriority(&harness, 1, 5, Ids(0, 40), 1);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 8, false}));
  AddWithPriority(&harness, 2, 1, Ids(100, 20), 1);
  AddWithPriority(&harness, 3, 0, Ids(200, 4), 1);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{3, 0, 0, 4, true}, Ran{2, 0, 0, 4, false}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 4, 8, false}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 12, 8, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 8, 8, false}));
  harness.RunToEnd();
  EXPECT_EQ(harness.EndOf(1).times.num_preemptions, 0);
}

TEST(Priority, ChoicesAreDisplacedOneByOne) {
  SchedulerConfig config = PriorityConfig();
  config.max_num_seqs = 3;
  SchedulerHarness harness(config);
  AddWithPriority(&harness, 1, 5, Ids(0, 6), 6, /*n=*/3);
  harness.Step();
  harness.Step();
  AddWithPriority(&harness, 2, 1, Ids(100, 4), 3);
  harness.Step();
  EXPECT_EQ(harness.scheduler.num_running_sequences(), 3);
  harness.RunToEnd();
  for (int choice = 0; choice < 3; ++choice) EXPECT_EQ(harness.TokensOf(1, choice), Ids(500, 6));
  EXPECT_EQ(harness.EndOf(1, 0).times.num_preemptions, 0);
  EXPECT_EQ(harness.EndOf(1, 2).times.num_preemptions, 1);
}

// ---------------------------------------------------------------- shortest job first

SchedulerConfig SjfConfig() {
  SchedulerConfig config = TestConfig();
  config.policy = PolicyKind::kSjf;
  config.max_num_seqs = 1;
  return config;
}

TEST(ShortestJobFirst, ByPromptAndMaxTokensWhileNothingElseIsKnown) {
  SchedulerHarness harness(SjfConfig());
  harness.Add(1, Ids(0, 4), 20);
  harness.Add(2, Ids(100, 4), 10);
  harness.Add(3, Ids(200, 16), 4);  // 16 + 2 · 4
  harness.Add(4, Ids(300, 4), 12);  // 4 + 2 · 12
  EXPECT_THAT(AdmissionOrder(&harness), ElementsAre(2, 3, 4, 1));
}

// A route whose outputs were short before goes first, whatever its max_tokens says.
TEST(ShortestJobFirst, LearnsHowLongOutputsAre) {
  SchedulerHarness harness(SjfConfig());
  const auto add = [&](std::uint64_t id, int route, int tenant, int first) {
    auto request = SchedulerHarness::MakeRequest(id, Ids(first, 4), 30);
    request.terms.route = route;
    request.terms.tenant = tenant;
    ASSERT_TRUE(harness.Add(request).has_value());
  };
  harness.sample = [](const Sequence& sequence) {
    const int length = sequence.request().terms.route == 1 ? 3 : 25;
    return sequence.num_output_tokens() + 1 >= length ? kEos : TokenId(500);
  };
  for (std::uint64_t id = 1; id <= 8; ++id) add(id, static_cast<int>(id % 2), 0, static_cast<int>(id) * 10);
  harness.RunToEnd();
  add(11, 0, 0, 100);
  add(12, 1, 0, 110);
  add(13, 1, 7, 120);  // a tenant that is new here: as others on this route
  EXPECT_THAT(AdmissionOrder(&harness), ElementsAre(12, 13, 11));
}

TEST(ShortestJobFirst, NobodyIsOvertakenForEver) {
  SchedulerConfig config = SjfConfig();
  config.max_overtakes = 3;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 40), 20);
  int num_overtakes = 0;
  for (std::uint64_t id = 2;; ++id) {
    ASSERT_LT(id, 100u);
    harness.Add(id, Ids(100, 2), 1);
    if (harness.Step().front().request == 1) break;
    ++num_overtakes;
  }
  EXPECT_EQ(num_overtakes, 3);
}

// ---------------------------------------------------------------- every policy

SchedulerConfig ConfigOf(PolicyKind kind, bool fair) {
  SchedulerConfig config = TestConfig();
  config.policy = kind;
  config.enable_fairness = fair;
  config.num_blocks = 9;
  config.max_num_batched_tokens = 6;
  config.max_num_seqs = 3;
  config.min_prefix_wait_tokens = 4;
  config.min_prefill_tokens = 2;
  return config;
}

// CNCL-02, CNCL-03, under each policy: a request is cancelled while it waits, while its prompt is computed, in the
// middle of its output, while it is preempted, and when it is over; the others say what they would have said.
TEST(Policy, CancellationInEveryStateUnderEveryPolicy) {
  for (const PolicyKind kind : kPolicyKinds) {
    for (const bool fair : {false, true}) {
      if (!ConfigOf(kind, fair).Validate().has_value()) continue;
      for (int steps_before = 0; steps_before < 40; ++steps_before) {
        SCOPED_TRACE(std::string(PolicyName(kind)) + (fair ? ", fair, " : ", ") + std::to_string(steps_before));
        SchedulerHarness harness(ConfigOf(kind, fair));
        for (std::uint64_t id = 1; id <= 5; ++id) {
          auto request = SchedulerHarness::MakeRequest(id, Ids(static_cast<int>(id % 3) * 100, 7), 9);
          request.terms.tenant = static_cast<int>(id % 2);
          if (kind == PolicyKind::kPriority) request.terms.priority = static_cast<int>(5 - id);
          if (kind == PolicyKind::kSlo) request.terms.tpot_ms = 2 + static_cast<double>(id);
          if (kind == PolicyKind::kSlo) request.terms.ttft_ms = 50 - static_cast<double>(id);
          request.sampling.n = id == 2 ? 2 : 1;
          ASSERT_TRUE(harness.Add(request).has_value());
        }
        for (int i = 0; i < steps_before; ++i) harness.Step();
        const bool was_over = harness.EndOf(2).finish_reason != FinishReason::kNone;
        harness.Abort(2);
        harness.Abort(2);
        harness.scheduler.CheckIntegrity();
        harness.RunToEnd();
        EXPECT_EQ(harness.EndOf(2).finish_reason, was_over ? FinishReason::kLength : FinishReason::kAbort);
        for (const std::uint64_t id : {1, 3, 4, 5}) EXPECT_EQ(harness.TokensOf(id), Ids(500, 9)) << id;
        const kv::KvManager& kv = harness.scheduler.kv();
        EXPECT_EQ(kv.num_available_blocks(), kv.num_blocks());
      }
    }
  }
}

// Without a cache there is no prefix to wait for.
TEST(Lpm, NobodyIsHeldBackForACacheThatIsOff) {
  SchedulerConfig config = TestConfig();
  config.policy = PolicyKind::kLpm;
  config.enable_prefix_caching = false;
  config.min_prefix_wait_tokens = 4;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 16), 8);
  harness.Step();
  harness.Add(2, Ids(0, 16), 8);
  EXPECT_EQ(harness.Step().size(), 2u);
}

}  // namespace
}  // namespace quire::sched
