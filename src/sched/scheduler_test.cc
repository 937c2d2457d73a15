// Who runs how much in each step: budget, chunks, memory, preemption, cancellation, failure.
#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sched/scheduler_test_util.h"

namespace quire::sched {
namespace {

using Ran = SchedulerHarness::Ran;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(Scheduler, OneSequenceClosesItsGap) {
  SchedulerHarness harness(TestConfig());
  harness.Add(1, Ids(0, 6), 3);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 6, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 6, 1, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 7, 1, true}));
  EXPECT_THAT(harness.Step(), IsEmpty());
  EXPECT_EQ(harness.TokensOf(1), Ids(500, 3));
  EXPECT_EQ(harness.EndOf(1).finish_reason, FinishReason::kLength);
}

TEST(Scheduler, PromptsRunInChunksBesideDecodes) {
  SchedulerConfig config = TestConfig();
  config.max_num_batched_tokens = 8;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 3), 4);
  harness.Add(2, Ids(100, 20), 2);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 3, true}, Ran{2, 0, 0, 5, false}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 3, 1, true}, Ran{2, 0, 5, 7, false}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 4, 1, true}, Ran{2, 0, 12, 7, false}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 5, 1, true}, Ran{2, 0, 19, 1, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 20, 1, true}));
}

TEST(Scheduler, AnOlderPromptDoesNotHoldUpDecodes) {
  SchedulerConfig config = TestConfig();
  config.max_num_batched_tokens = 8;
  config.max_chunk_tokens = 5;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 30), 1);
  harness.Add(2, Ids(100, 3), 4);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 5, false}, Ran{2, 0, 0, 3, true}));
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 3, 1, true}, Ran{1, 0, 5, 5, false}));
}

// CHNK-02: no chunk in a step, with logprobs on, changes nothing for a sequence.
TEST(Scheduler, AStepWithoutAChunkLeavesASequenceAlone) {
  SchedulerConfig config = TestConfig();
  config.max_num_batched_tokens = 2;
  SchedulerHarness harness(config);
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 7), 2);
  request.sampling.logprobs = 1;
  request.sampling.prompt_logprobs = 1;
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.Step();                  // [0, 2)
  harness.Add(2, Ids(100, 1), 5);  // never gets in before the first prompt is done …
  harness.Step();                  // [2, 4)
  harness.Step();                  // [4, 6)
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 6, 1, true}, Ran{2, 0, 0, 1, true}));
  harness.Add(3, Ids(200, 9), 1);
  // … and the third waits while two decodes spend the budget.
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 7, 1, true}, Ran{2, 0, 1, 1, true}));
  harness.RunToEnd();
  const EngineEvent& first = harness.events.front();
  ASSERT_EQ(first.prompt_logprobs.size(), 7u);
  EXPECT_FALSE(first.prompt_logprobs[0].has_value());
  for (int i = 1; i < 7; ++i) EXPECT_EQ(first.prompt_logprobs[static_cast<std::size_t>(i)]->chosen.id, TokenId(i));
}

TEST(Scheduler, NoMoreSequencesThanAllowed) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 2;
  SchedulerHarness harness(config);
  for (std::uint64_t id = 1; id <= 3; ++id) harness.Add(id, Ids(static_cast<int>(id) * 100, 3), 2);
  EXPECT_EQ(harness.Step().size(), 2u);
  EXPECT_EQ(harness.Stats().num_requests_running, 2);
  EXPECT_EQ(harness.Stats().num_requests_waiting, 1);
  EXPECT_EQ(harness.Step().size(), 2u);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{3, 0, 0, 3, true}));
}

// ---------------------------------------------------------------- memory

TEST(Scheduler, TheYoungestIsPreemptedAndResumesFirst) {
  SchedulerConfig config = TestConfig();
  config.num_blocks = 5;
  config.enable_prefix_caching = false;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 7), 9);    // 4 blocks in the end
  harness.Add(2, Ids(100, 7), 6);  // 3 blocks in the end
  harness.Step();
  harness.Add(3, Ids(200, 3), 1);
  harness.Step();
  EXPECT_EQ(harness.scheduler.kv().num_free_blocks(), 1);  // two blocks each; the third request has to wait
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 8, 1, true}));
  EXPECT_EQ(harness.Stats().preemptions, 1u);
  EXPECT_EQ(harness.Stats().num_requests_waiting, 2);
  harness.RunToEnd();
  EXPECT_EQ(harness.TokensOf(1), Ids(500, 9));
  EXPECT_EQ(harness.TokensOf(2), Ids(500, 6));  // PREE-01: nothing lost, nothing twice
  EXPECT_EQ(harness.EndOf(1).times.num_preemptions, 0);
  EXPECT_EQ(harness.EndOf(2).times.num_preemptions, 1);
  EXPECT_GT(harness.EndOf(2).times.last_scheduled, harness.EndOf(2).times.first_scheduled);
  // The preempted one came back before the one that never ran.
  EXPECT_LE(harness.EndOf(2).times.last_scheduled, harness.EndOf(3).times.first_scheduled);
}

// One preemption, and how many tokens are run after it, by what computing and copying cost.
TEST(Scheduler, AVictimIsSwappedWhenThatCostsLess) {
  const auto run = [](PreemptionMode mode, PreemptionCosts costs) {
    SchedulerConfig config = TestConfig();
    config.num_blocks = 5;
    config.enable_prefix_caching = false;
    config.num_swap_blocks = 2;
    config.preemption_mode = mode;
    SchedulerHarness harness(config);
    harness.scheduler.SetPreemptionCosts(costs);
    harness.Add(1, Ids(0, 7), 9);
    harness.Add(2, Ids(100, 7), 6);
    harness.RunToEnd();
    EXPECT_EQ(harness.TokensOf(2), Ids(500, 6));
    EXPECT_EQ(harness.Stats().preemptions, 1u);
    const bool swapped = harness.Stats().swap_preemptions == 1;
    // The prompts and all outputs but the last ones; and the victim's eight tokens again.
    EXPECT_EQ(harness.num_tokens_run, 7 + 8 + 7 + 5 + (swapped ? 0 : 8));
    EXPECT_EQ(harness.Stats().swapped_out_blocks, swapped ? 2u : 0u);
    EXPECT_EQ(harness.Stats().swapped_in_blocks, swapped ? 2u : 0u);
    EXPECT_EQ(harness.Stats().num_swap_blocks_used, 0);
    return swapped;
  };
  EXPECT_TRUE(run(PreemptionMode::kSwap, {}));
  EXPECT_FALSE(run(PreemptionMode::kRecompute, {.token_s = 1, .block_copy_s = 1e-6}));
  // Eight tokens against two blocks out and in.
  EXPECT_TRUE(run(PreemptionMode::kAuto, {.token_s = 1, .block_copy_s = 1.9}));
  EXPECT_FALSE(run(PreemptionMode::kAuto, {.token_s = 1, .block_copy_s = 2.1}));
  EXPECT_FALSE(run(PreemptionMode::kAuto, {}));  // nothing is known yet
}

// Whether the copies of a failed step were made, nobody knows: what was saved in it does not count.
TEST(Scheduler, WhatAFailedStepSwappedOutIsComputedAgain) {
  SchedulerConfig config = TestConfig();
  config.num_blocks = 5;
  config.enable_prefix_caching = false;
  config.num_swap_blocks = 2;
  config.preemption_mode = PreemptionMode::kSwap;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 7), 9);
  harness.Add(2, Ids(100, 7), 6);
  while (harness.Stats().swap_preemptions == 0) {
    harness.Plan();
    if (harness.Stats().swap_preemptions == 0) harness.Commit();
  }
  EXPECT_EQ(harness.Stats().num_swap_blocks_used, 2);
  harness.scheduler.Fail(&harness.plan, {ErrorCode::kInternal, "broken"}, &harness.events);
  EXPECT_EQ(harness.Stats().num_swap_blocks_used, 0);
  harness.scheduler.CheckIntegrity();
  harness.RunToEnd();
  EXPECT_EQ(harness.EndOf(1).finish_reason, FinishReason::kError);
  EXPECT_EQ(harness.TokensOf(2), Ids(500, 6));
  EXPECT_EQ(harness.Stats().swapped_in_blocks, 0u);
}

// PREE-04: what was output stays output when it is recomputed.
TEST(Scheduler, PreemptionKeepsThePromptBoundary) {
  SchedulerConfig config = TestConfig();
  config.num_blocks = 5;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 7), 9);
  harness.Add(2, Ids(100, 7), 6);
  bool was_recomputed = false;
  while (harness.scheduler.has_unfinished()) {
    harness.Plan();
    for (const ScheduledSequence& scheduled : harness.plan.sequences) {
      const Sequence& sequence = *scheduled.sequence;
      EXPECT_EQ(sequence.num_prompt_tokens(), 7);
      EXPECT_EQ(sequence.prompt().front(), TokenId(sequence.request().id == RequestId(1) ? 0 : 100));
      for (int i = 0; i < sequence.num_output_tokens(); ++i) {
        EXPECT_EQ(sequence.output()[static_cast<std::size_t>(i)], TokenId(500 + i));
      }
      if (sequence.times().num_preemptions > 0 && scheduled.num_tokens > 1) was_recomputed = true;
    }
    harness.Commit();
  }
  EXPECT_TRUE(was_recomputed);
}

// DEAD-01: 7 blocks, A needs 4 + 1 and B 3 + 1.
TEST(Scheduler, TwoThatDoNotFitTogetherBothFinish) {
  for (const bool caching : {false, true}) {
    SchedulerConfig config = TestConfig();
    config.num_blocks = 7;
    config.enable_prefix_caching = caching;
    SchedulerHarness harness(config);
    harness.Add(1, Ids(0, 16), 5);
    harness.Add(2, Ids(100, 12), 5);
    harness.RunToEnd(40);
    EXPECT_EQ(harness.TokensOf(1).size(), 5u);
    EXPECT_EQ(harness.TokensOf(2).size(), 5u);
  }
}

// DEAD-02: what can never fit is refused, and leaves nothing behind.
TEST(Scheduler, RequestsLargerThanThePoolAreRefused) {
  SchedulerConfig config = TestConfig();
  config.num_blocks = 3;
  SchedulerHarness harness(config);
  const Result<> refused = harness.Add(SchedulerHarness::MakeRequest(1, Ids(0, 10), 4));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "max_tokens");
  EXPECT_EQ(harness.Stats().num_requests_waiting, 0);
  harness.Add(1, Ids(0, 10), 3);  // 12 tokens are run, the 13th only told
  harness.RunToEnd();
  EXPECT_EQ(harness.TokensOf(1).size(), 3u);
}

TEST(Scheduler, AnAdmissionLeavesRoomForThoseThatRun) {
  SchedulerConfig config = TestConfig();
  config.num_blocks = 8;
  config.max_num_batched_tokens = 8;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 20), 4);  // 5 blocks for the prompt, of which the first chunk takes 2
  harness.Step();
  harness.Add(2, Ids(100, 12), 1);  // 3 blocks are free beside what the first will need, but one of them is its next
  harness.Step();
  EXPECT_EQ(harness.Stats().num_requests_waiting, 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.Stats().preemptions, 0u);
}

TEST(Scheduler, TheQueueIsBounded) {
  SchedulerConfig config = TestConfig();
  config.max_num_queued_requests = 2;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 3), 1);
  harness.Add(2, Ids(0, 3), 1);
  const Result<> refused = harness.Add(SchedulerHarness::MakeRequest(3, Ids(0, 3), 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  harness.Step();
  EXPECT_TRUE(harness.Add(SchedulerHarness::MakeRequest(3, Ids(0, 3), 1)).has_value());
}

TEST(Scheduler, IdsAreUniqueWhileTheyLive) {
  SchedulerHarness harness(TestConfig());
  harness.Add(1, Ids(0, 3), 1);
  const Result<> refused = harness.Add(SchedulerHarness::MakeRequest(1, Ids(0, 3), 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  harness.RunToEnd();
  harness.Add(1, Ids(0, 3), 1);
}

// ---------------------------------------------------------------- the prefix cache

TEST(Scheduler, ACachedPromptRunsItsLastTokenOnly) {
  SchedulerHarness harness(TestConfig());
  harness.Add(1, Ids(0, 8), 1);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, 8, true}));
  harness.Add(2, Ids(0, 8), 1);
  // One full block, and three tokens of the second, which are copied.
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 7, 1, true}));
  EXPECT_EQ(harness.plan.copies.size(), 1u);
  EXPECT_EQ(harness.EndOf(2).num_cached_tokens, 7);
  EXPECT_EQ(harness.Stats().prefix_cache_queries, 14u);
  EXPECT_EQ(harness.Stats().prefix_cache_hits, 7u);
}

TEST(Scheduler, TheNextTurnFindsEveryTokenOfTheLast) {
  SchedulerHarness harness(TestConfig());
  harness.Add(1, Ids(0, 6), 4);
  harness.RunToEnd();
  std::vector<TokenId> turn = Ids(0, 6);
  for (const TokenId token : harness.TokensOf(1)) turn.push_back(token);
  turn.push_back(TokenId(42));
  harness.Add(2, turn, 1);
  // Of ten tokens nine were run: the last one was only told.
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 9, 2, true}));
}

// PFX-01: a salt parts requests.
TEST(Scheduler, SaltsShareNothing) {
  SchedulerHarness harness(TestConfig());
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 8), 1);
  request.cache_salt = "a";
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.Step();
  harness.Add(2, Ids(0, 8), 1);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 0, 8, true}));
  request.id = RequestId(3);
  ASSERT_TRUE(harness.Add(request).has_value());
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{3, 0, 7, 1, true}));
  request.id = RequestId(4);
  request.cache_salt = "b";
  ASSERT_TRUE(harness.Add(request).has_value());
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{4, 0, 0, 8, true}));
}

TEST(Scheduler, ResettingTheCacheSparesWhatRuns) {
  SchedulerHarness harness(TestConfig());
  harness.Add(1, Ids(0, 8), 1);
  harness.Add(2, Ids(100, 8), 3);
  harness.Step();
  harness.scheduler.ResetPrefixCache();
  harness.scheduler.CheckIntegrity();
  harness.Add(3, Ids(0, 8), 1);
  harness.Add(4, Ids(100, 8), 1);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{2, 0, 8, 1, true}, Ran{3, 0, 0, 8, true}, Ran{4, 0, 7, 1, true}));
}

// The prompt of one request against those of five others, which take more than the pool has.
class RetentionHarness : public SchedulerHarness {
 public:
  static SchedulerConfig SmallPool() {
    SchedulerConfig config = TestConfig();
    config.num_blocks = 16;
    return config;
  }
  RetentionHarness() : SchedulerHarness(SmallPool()) {}

  std::vector<Ran> Run(int retention_s) {
    auto request = MakeRequest(++num_requests_, Ids(0, 16), 1);
    request.cache_retention_s = retention_s;
    EXPECT_TRUE(Add(request).has_value());
    return Step();
  }
  void RunOthers() {
    for (int i = 0; i < 5; ++i) {
      SchedulerHarness::Add(++num_requests_, Ids(100 + 16 * i, 16), 1);
      Step();
    }
  }
  EngineStats Stats() const {
    EngineStats stats;
    scheduler.ReadStats(&stats);
    return stats;
  }

 private:
  std::uint64_t num_requests_ = 0;
};

TEST(Scheduler, RetainedPromptsOutliveOthers) {
  RetentionHarness harness;
  harness.Run(0);
  harness.RunOthers();
  EXPECT_THAT(harness.Run(100), ElementsAre(Ran{7, 0, 0, 16, true}));  // gone
  EXPECT_EQ(harness.Stats().num_blocks_retained, 4);
  harness.RunOthers();
  EXPECT_THAT(harness.Run(0), ElementsAre(Ran{13, 0, 15, 1, true}));
  EXPECT_EQ(harness.Stats().block_evictions.retained, 0u);
  EXPECT_EQ(harness.Stats().block_evictions.expired, 0u);

  harness.now += std::chrono::seconds(101);
  harness.RunOthers();
  EXPECT_THAT(harness.Run(0), ElementsAre(Ran{19, 0, 0, 16, true}));
  const EngineStats stats = harness.Stats();
  EXPECT_EQ(stats.num_blocks_retained, 0);
  EXPECT_EQ(stats.block_evictions.expired, 4u);
  EXPECT_EQ(stats.prefix_cache_evicted_blocks, stats.block_evictions.capacity + stats.block_evictions.expired);
  EXPECT_GT(stats.block_lifetime.sum_s, 4 * 101);
  EXPECT_GT(stats.block_reuse_gap.sum_s, 0);
}

TEST(Scheduler, AtMostPartOfThePoolIsRetained) {
  SchedulerConfig config = RetentionHarness::SmallPool();
  config.kv_retained_fraction = 0.125;
  SchedulerHarness harness(config);
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 16), 1);
  request.cache_retention_s = kCacheRetentionSecondsMax;
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.Step();
  EngineStats stats;
  harness.scheduler.ReadStats(&stats);
  EXPECT_EQ(stats.num_blocks_retained, 2);  // the first two of its four
  request.id = RequestId(2);
  request.cache_retention_s = kCacheRetentionSecondsMax + 1;
  EXPECT_EQ(harness.Add(request).error().param, "cache_retention_s");
  config.kv_retained_fraction = 1.5;
  EXPECT_EQ(config.Validate().error().param, "kv_retained_fraction");
}

// ---------------------------------------------------------------- prompt logprobs

// LOGP-06: the same whatever the chunk, all at once, and not from the cache, which has no logits.
TEST(Scheduler, PromptLogprobsComeOnceAndComplete) {
  for (const int chunk : {1, 2, 3, 7, 64}) {
    SCOPED_TRACE(chunk);
    SchedulerConfig config = TestConfig();
    config.max_chunk_tokens = chunk;
    SchedulerHarness harness(config);
    harness.Add(9, Ids(0, 7), 1);
    harness.RunToEnd();
    harness.events.clear();
    auto request = SchedulerHarness::MakeRequest(1, Ids(0, 7), 3);
    request.sampling.prompt_logprobs = 0;
    ASSERT_TRUE(harness.Add(request).has_value());
    harness.RunToEnd();
    ASSERT_EQ(harness.events.size(), 3u);
    ASSERT_EQ(harness.events[0].prompt_logprobs.size(), 7u);
    EXPECT_FALSE(harness.events[0].prompt_logprobs[0].has_value());
    for (int i = 1; i < 7; ++i) {
      const auto& entry = harness.events[0].prompt_logprobs[static_cast<std::size_t>(i)];
      ASSERT_TRUE(entry.has_value());
      EXPECT_EQ(entry->chosen.id, TokenId(i));
      EXPECT_EQ(entry->chosen.logprob, -static_cast<float>(i - 1));
    }
    EXPECT_EQ(harness.events[0].num_cached_tokens, 0);
    EXPECT_TRUE(harness.events[1].prompt_logprobs.empty());
  }
}

// PREE-03: preempted in the middle of the prompt.
TEST(Scheduler, PromptLogprobsSurvivePreemption) {
  SchedulerConfig config = TestConfig();
  config.num_blocks = 9;
  config.max_chunk_tokens = 4;
  config.enable_prefix_caching = true;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 3), 25);
  auto request = SchedulerHarness::MakeRequest(2, Ids(100, 27), 1);
  request.sampling.prompt_logprobs = 0;
  ASSERT_TRUE(harness.Add(request).has_value());
  bool was_preempted_in_prompt = false;
  while (harness.scheduler.has_unfinished()) {
    harness.Plan();
    for (const ScheduledSequence& scheduled : harness.plan.sequences) {
      if (scheduled.prompt_logprobs && scheduled.sequence->times().num_preemptions > 0) was_preempted_in_prompt = true;
    }
    harness.Commit();
  }
  EXPECT_TRUE(was_preempted_in_prompt);
  for (const EngineEvent& event : harness.events) {
    if (event.request != RequestId(2)) continue;
    ASSERT_EQ(event.prompt_logprobs.size(), 27u);
    for (int i = 1; i < 27; ++i) {
      EXPECT_EQ(event.prompt_logprobs[static_cast<std::size_t>(i)]->chosen.id, TokenId(100 + i));
      EXPECT_EQ(event.prompt_logprobs[static_cast<std::size_t>(i)]->chosen.logprob, -static_cast<float>(i - 1));
    }
  }
  EXPECT_EQ(harness.TokensOf(2).size(), 1u);
}

// ---------------------------------------------------------------- several choices

TEST(Scheduler, ChoicesShareOnePrompt) {
  for (const bool caching : {false, true}) {
    for (const int prompt_size : {1, 4, 5, 6, 8}) {
      SCOPED_TRACE(testing::Message() << "prompt of " << prompt_size << (caching ? ", cached" : ""));
      SchedulerConfig config = TestConfig();
      config.enable_prefix_caching = caching;
      SchedulerHarness harness(config);
      auto request = SchedulerHarness::MakeRequest(1, Ids(0, prompt_size), 3);
      request.sampling.n = 3;
      ASSERT_TRUE(harness.Add(request).has_value());
      harness.sample = [](const Sequence& sequence) {
        return TokenId(500 + 100 * sequence.choice() + sequence.num_output_tokens());
      };
      EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, 0, prompt_size, true}));
      EXPECT_EQ(harness.Stats().num_requests_running, 3);
      EXPECT_THAT(harness.Step(), ElementsAre(Ran{1, 0, prompt_size, 1, true}, Ran{1, 1, prompt_size - 1, 1, true},
                                              Ran{1, 2, prompt_size - 1, 1, true}));
      harness.RunToEnd();
      EXPECT_EQ(harness.num_tokens_run, prompt_size + 2 + 3 * 2);
      for (int choice = 0; choice < 3; ++choice) {
        EXPECT_EQ(harness.TokensOf(1, choice), Ids(500 + 100 * choice, 3));
        EXPECT_EQ(harness.EndOf(1, choice).finish_reason, FinishReason::kLength);
      }
      EXPECT_EQ(harness.Stats().prompt_tokens, static_cast<std::uint64_t>(prompt_size));
      EXPECT_EQ(harness.Stats().generation_tokens, 9u);
    }
  }
}

// A fork has to copy the cached block that it shares, and the pool has no other: it gives up what it has and comes back.
TEST(Scheduler, ChoicesInAPoolOfOneBlock) {
  SchedulerConfig config = TestConfig();
  config.num_blocks = 1;
  SchedulerHarness harness(config);
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 4), 1);
  request.sampling.n = 3;
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.RunToEnd(10);
  for (int choice = 0; choice < 3; ++choice) EXPECT_EQ(harness.TokensOf(1, choice), Ids(500, 1));
}

TEST(Scheduler, MoreChoicesThanPlaces) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 2;
  SchedulerHarness harness(config);
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 9), 3);
  request.sampling.n = 5;
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.Add(2, Ids(100, 3), 1);
  harness.RunToEnd();
  for (int choice = 0; choice < 5; ++choice) EXPECT_EQ(harness.TokensOf(1, choice), Ids(500, 3));
  // The late ones found the prompt in the cache: eight tokens in full blocks.
  EXPECT_LE(harness.num_tokens_run, 9 + 4 + 5 * 2 + 3);
}

TEST(Scheduler, TheFirstChoiceMayEndAtOnce) {
  SchedulerHarness harness(TestConfig());
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 8), 3);
  request.sampling.n = 2;
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.sample = [](const Sequence& sequence) { return sequence.choice() == 0 ? kEos : TokenId(7); };
  harness.RunToEnd();
  EXPECT_EQ(harness.EndOf(1, 0).finish_reason, FinishReason::kStop);
  EXPECT_EQ(harness.TokensOf(1, 1).size(), 3u);
}

// ---------------------------------------------------------------- cancellation and failure

// CNCL-02, CNCL-03: in every state, for good, and for nobody else.
TEST(Scheduler, AbortWorksInEveryState) {
  for (int steps_before = 0; steps_before < 12; ++steps_before) {
    SCOPED_TRACE(steps_before);
    SchedulerConfig config = TestConfig();
    config.num_blocks = 7;
    config.max_num_batched_tokens = 6;
    SchedulerHarness harness(config);
    harness.Add(1, Ids(0, 10), 8);
    auto request = SchedulerHarness::MakeRequest(2, Ids(100, 9), 6);
    request.sampling.n = 2;  // the second is parked, then forked; the pool is so small that they are preempted
    ASSERT_TRUE(harness.Add(request).has_value());
    harness.Add(3, Ids(200, 5), 3);
    for (int i = 0; i < steps_before; ++i) harness.Step();
    const std::size_t already = harness.TokensOf(2, 0).size() + harness.TokensOf(2, 1).size();
    const bool is_over = harness.EndOf(2, 0).finish_reason != FinishReason::kNone &&
                         harness.EndOf(2, 1).finish_reason != FinishReason::kNone;
    harness.Abort(2);
    harness.scheduler.CheckIntegrity();
    harness.Abort(2);
    harness.Abort(77);
    while (harness.scheduler.has_unfinished()) {
      for (const Ran& ran : harness.Step()) EXPECT_NE(ran.request, 2u);
    }
    if (!is_over) {
      EXPECT_EQ(harness.TokensOf(2, 0).size() + harness.TokensOf(2, 1).size(), already);
      EXPECT_EQ(harness.EndOf(2, 1).finish_reason, FinishReason::kAbort);
    }
    EXPECT_EQ(harness.TokensOf(1), Ids(500, 8));
    EXPECT_EQ(harness.TokensOf(3), Ids(500, 3));
    const kv::KvManager& kv = harness.scheduler.kv();
    EXPECT_EQ(kv.num_available_blocks(), kv.num_blocks());
  }
}

// One choice of three, whatever its state; the first one computes the prompt of the others all the same.
TEST(Scheduler, AbortOfAChoiceLeavesTheOthersAlone) {
  for (int aborted = 0; aborted < 3; ++aborted) {
    for (int steps_before = 0; steps_before < 12; ++steps_before) {
      SCOPED_TRACE(std::to_string(aborted) + " after " + std::to_string(steps_before));
      SchedulerConfig config = TestConfig();
      config.num_blocks = 7;
      config.max_num_batched_tokens = 4;
      SchedulerHarness harness(config);
      auto request = SchedulerHarness::MakeRequest(1, Ids(100, 9), 6);
      request.sampling.n = 3;
      request.sampling.prompt_logprobs = 0;
      ASSERT_TRUE(harness.Add(request).has_value());
      for (int i = 0; i < steps_before; ++i) harness.Step();
      const std::size_t already = harness.TokensOf(1, aborted).size();
      const bool is_over = harness.EndOf(1, aborted).finish_reason != FinishReason::kNone;
      harness.Abort(1, aborted);
      harness.scheduler.CheckIntegrity();
      harness.Abort(1, aborted);
      harness.Abort(1, 3);
      harness.RunToEnd();
      EXPECT_EQ(harness.EndOf(1, aborted).finish_reason, is_over ? FinishReason::kLength : FinishReason::kAbort);
      EXPECT_EQ(harness.TokensOf(1, aborted).size(), already);
      for (int other = 0; other < 3; ++other) {
        if (other != aborted) {
          EXPECT_EQ(harness.TokensOf(1, other), Ids(500, 6));
        }
      }
      const kv::KvManager& kv = harness.scheduler.kv();
      EXPECT_EQ(kv.num_available_blocks(), kv.num_blocks());
    }
  }
}

TEST(Scheduler, AbortOfEveryChoiceEndsTheRequestAtOnce) {
  for (const auto& order : {std::vector{0, 1, 2}, std::vector{2, 1, 0}, std::vector{1, 0, 2}}) {
    SchedulerHarness harness(TestConfig());
    auto request = SchedulerHarness::MakeRequest(1, Ids(100, 9), 6);
    request.sampling.n = 3;
    ASSERT_TRUE(harness.Add(request).has_value());
    for (const int choice : order) harness.Abort(1, choice);
    EXPECT_FALSE(harness.scheduler.has_unfinished());
    for (const int choice : order) EXPECT_EQ(harness.EndOf(1, choice).finish_reason, FinishReason::kAbort);
  }
}

// Without output there is nothing to fork: the end of the first choice is that of all.
TEST(Scheduler, AbortOfTheFirstChoiceOfARequestWithoutOutput) {
  SchedulerHarness harness(TestConfig());
  auto request = SchedulerHarness::MakeRequest(1, Ids(100, 9), 0);
  request.sampling.n = 2;
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.Abort(1, 0);
  harness.RunToEnd();
  EXPECT_EQ(harness.EndOf(1, 1).finish_reason, FinishReason::kLength);
}

TEST(Scheduler, AFailedStepEndsItsRequestsAndNoOther) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 2;
  SchedulerHarness harness(config);
  auto request = SchedulerHarness::MakeRequest(1, Ids(0, 8), 3);
  request.sampling.n = 2;
  ASSERT_TRUE(harness.Add(request).has_value());
  harness.Add(2, Ids(100, 8), 3);
  harness.Add(3, Ids(200, 8), 3);
  harness.Plan();
  harness.scheduler.Fail(&harness.plan, Error{ErrorCode::kInternal, "no more of this", {}}, &harness.events);
  harness.scheduler.CheckIntegrity();
  for (int choice = 0; choice < 2; ++choice) {
    EXPECT_EQ(harness.EndOf(1, choice).finish_reason, FinishReason::kError);
    EXPECT_EQ(harness.EndOf(1, choice).error, "no more of this");
  }
  EXPECT_EQ(harness.EndOf(2).finish_reason, FinishReason::kError);
  // Nothing that the step may have left half done is found by others.
  EXPECT_EQ(harness.scheduler.kv().num_free_blocks(), config.num_blocks);
  harness.Add(4, Ids(0, 8), 1);
  EXPECT_THAT(harness.Step(), ElementsAre(Ran{3, 0, 0, 8, true}, Ran{4, 0, 0, 8, true}));
  harness.RunToEnd();
  EXPECT_EQ(harness.TokensOf(3), Ids(500, 3));
}

// ---------------------------------------------------------------- what is told

TEST(Scheduler, StampsAndCounts) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 1;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 9), 2);
  harness.Add(2, Ids(100, 1), 3);
  harness.RunToEnd();
  using std::chrono::milliseconds;
  const RequestTimes& times = harness.EndOf(2).times;
  EXPECT_EQ(times.queued, TimePoint{});
  EXPECT_EQ(times.first_scheduled, TimePoint(milliseconds(3)));
  EXPECT_EQ(times.last_scheduled, TimePoint(milliseconds(3)));
  EXPECT_EQ(times.first_token, TimePoint(milliseconds(3)));
  EXPECT_EQ(times.last_token, TimePoint(milliseconds(5)));
  const EngineStats stats = harness.Stats();
  EXPECT_EQ(stats.steps, 5u);
  EXPECT_EQ(stats.prompt_tokens, 10u);
  EXPECT_EQ(stats.generation_tokens, 5u);
  EXPECT_EQ(stats.step_tokens_sum, 13u);
  EXPECT_EQ(stats.step_tokens_histogram[0], 4u);  // at most 1
  EXPECT_EQ(stats.step_tokens_histogram[2], 1u);  // 9 … 16
  EXPECT_EQ(stats.num_requests_running + stats.num_requests_waiting, 0);
}

}  // namespace
}  // namespace quire::sched
