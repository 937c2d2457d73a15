// Bounded queues, and requests that wait too long or could not be in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "sched/scheduler_test_util.h"

namespace quire::sched {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(Admission, TheQueueIsBoundedInTokens) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 1;
  config.max_num_queued_tokens = 30;
  SchedulerHarness harness(config);
  ASSERT_TRUE(harness.Add(SchedulerHarness::MakeRequest(1, Ids(0, 50), 4)).has_value());  // alone it may be longer
  const auto refused = harness.Add(SchedulerHarness::MakeRequest(2, Ids(0, 4), 4));
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("50 prompt tokens"));
  harness.Step();
  EXPECT_EQ(harness.scheduler.num_queued_tokens(), 0);
  harness.Add(3, Ids(0, 20), 1);
  harness.Add(4, Ids(100, 10), 1);
  EXPECT_EQ(harness.Stats().num_queued_tokens, 30);
  EXPECT_FALSE(harness.Add(SchedulerHarness::MakeRequest(5, Ids(0, 1), 4)).has_value());
  harness.Abort(3);
  EXPECT_EQ(harness.scheduler.num_queued_tokens(), 10);
  harness.Add(5, Ids(200, 20), 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.Stats().num_queued_tokens, 0);
}

TEST(Admission, WhoHasWaitedTooLongIsShed) {
  SchedulerConfig config = TestConfig();
  config.max_num_seqs = 1;
  config.queue_timeout_ms = 10;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 4), 30);
  auto patient = SchedulerHarness::MakeRequest(2, Ids(100, 4), 2);
  patient.terms.queue_timeout_ms = 1000;
  ASSERT_TRUE(harness.Add(patient).has_value());
  auto twice = SchedulerHarness::MakeRequest(3, Ids(200, 4), 2);
  twice.sampling.n = 2;
  ASSERT_TRUE(harness.Add(twice).has_value());
  for (int i = 0; i < 9; ++i) harness.Step();  // the last one at 9 ms
  EXPECT_EQ(harness.EndOf(3).finish_reason, FinishReason::kNone);
  harness.Step();
  for (int choice = 0; choice < 2; ++choice) {
    const EngineEvent& end = harness.EndOf(3, choice);
    EXPECT_EQ(end.finish_reason, FinishReason::kShed);
    EXPECT_THAT(end.error, HasSubstr("within 10 ms"));
    EXPECT_EQ(end.retry_after_s, 1);
    EXPECT_TRUE(harness.TokensOf(3, choice).empty());
  }
  harness.RunToEnd();
  EXPECT_EQ(harness.TokensOf(1), Ids(500, 30));
  EXPECT_EQ(harness.TokensOf(2), Ids(500, 2));
  EXPECT_EQ(harness.Stats().queue_timeouts, 1u);
  EXPECT_EQ(harness.Stats().requests_shed, 0u);
}

// It counts until the first step only: who has run and was preempted is not thrown away.
TEST(Admission, WhoHasRunIsNotShed) {
  SchedulerConfig config = TestConfig();
  config.num_blocks = 8;
  config.queue_timeout_ms = 5;
  SchedulerHarness harness(config);
  harness.Add(1, Ids(0, 12), 18);
  harness.Add(2, Ids(100, 12), 18);
  harness.RunToEnd();
  EXPECT_GT(harness.EndOf(2).times.num_preemptions, 0);
  EXPECT_EQ(harness.TokensOf(2), Ids(500, 18));
}

// ---------------------------------------------------------------- slo

// A machine on which a step takes 1 ms, 0.1 ms for each prompt token, and 0.5 ms for each stream.
Duration StepTime(const BatchPlan& plan) {
  Duration time = milliseconds(1);
  for (const ScheduledSequence& scheduled : plan.sequences) {
    time += scheduled.num_tokens == 1 ? microseconds(500) : microseconds(100) * scheduled.num_tokens;
  }
  return time;
}

SchedulerConfig SloConfig() {
  SchedulerConfig config;
  config.policy = PolicyKind::kSlo;
  config.max_num_batched_tokens = 512;
  config.max_num_seqs = 16;
  config.max_model_len = 8192;
  config.num_blocks = 4096;
  config.vocab_size = 1'000'000;
  config.shed_unmeetable = true;
  return config;
}

GenerateRequest WithTargets(std::uint64_t id, int prompt_size, int max_tokens, double ttft_ms, double tpot_ms = 0) {
  auto request = SchedulerHarness::MakeRequest(id, Ids(static_cast<int>(id) * 5000, prompt_size), max_tokens);
  request.terms.ttft_ms = ttft_ms;
  request.terms.tpot_ms = tpot_ms;
  return request;
}

// Teaches it what steps cost.
void WarmUp(SchedulerHarness* harness) {
  harness->step_time = StepTime;
  for (std::uint64_t id = 100; id < 120; ++id) {
    ASSERT_TRUE(harness->Add(WithTargets(id, 20 + static_cast<int>(id % 7) * 40, 3, 0)).has_value());
    harness->Step();
  }
  harness->RunToEnd();
  ASSERT_TRUE(harness->scheduler.pacer()->costs().is_ready());
}

TEST(Slo, WhatCannotBeInTimeIsShedAtOnce) {
  SchedulerHarness harness(SloConfig());
  WarmUp(&harness);
  // 5000 tokens take about 510 ms.
  ASSERT_TRUE(harness.Add(WithTargets(1, 5000, 2, 300)).has_value());
  ASSERT_TRUE(harness.Add(WithTargets(2, 5000, 2, 700)).has_value());
  ASSERT_TRUE(harness.Add(WithTargets(3, 100, 2, 50)).has_value());
  ASSERT_TRUE(harness.Add(WithTargets(4, 5000, 2, 0)).has_value());
  const TimePoint before = harness.now;
  harness.Step();
  const EngineEvent& end = harness.EndOf(1);
  EXPECT_EQ(end.finish_reason, FinishReason::kShed);
  EXPECT_THAT(end.error, HasSubstr("ttft_ms of 300"));
  EXPECT_GE(end.retry_after_s, 1);
  harness.RunToEnd();
  for (const std::uint64_t id : {2, 3, 4}) EXPECT_EQ(harness.TokensOf(id), Ids(500, 2)) << id;
  EXPECT_LE(Seconds(harness.EndOf(2).times.first_token - before), 0.7);
  EXPECT_LE(Seconds(harness.EndOf(3).times.first_token - before), 0.05);
  EXPECT_EQ(harness.Stats().requests_shed, 1u);
}

// Who is shed teaches nothing about what steps cost: so an idle engine tries every fifth of those that it takes for late,
// and an estimate that has become wrong does not keep it idle.
TEST(Slo, AnIdleEngineTriesOneAfterAll) {
  SchedulerHarness harness(SloConfig());
  WarmUp(&harness);
  std::string ends;
  for (std::uint64_t id = 1; id <= 12; ++id) {
    ASSERT_TRUE(harness.Add(WithTargets(id, 1000, 1, 50)).has_value());  // takes about 102 ms
    while (harness.scheduler.has_unfinished()) harness.Step();
    ends += harness.EndOf(id).finish_reason == FinishReason::kShed ? '-' : '+';
  }
  EXPECT_EQ(ends, "----+----+--");
}

// What waits before it counts: of ten that come together, as many are kept as can be served in time, and those are.
TEST(Slo, AQueueIsShedFromTheEndThatCannotBeInTime) {
  SchedulerHarness harness(SloConfig());
  WarmUp(&harness);
  const TimePoint before = harness.now;
  for (std::uint64_t id = 1; id <= 10; ++id) {
    ASSERT_TRUE(harness.Add(WithTargets(id, 1000, 1, 350)).has_value());  // about 102 ms each
  }
  harness.RunToEnd();
  int num_met = 0;
  for (std::uint64_t id = 1; id <= 10; ++id) {
    const EngineEvent& end = harness.EndOf(id);
    if (end.finish_reason == FinishReason::kShed) continue;
    EXPECT_LE(Seconds(end.times.first_token - before), 0.36) << id;
    ++num_met;
  }
  EXPECT_GE(num_met, 3);
  EXPECT_LE(num_met, 4);
}

// With nothing shed, those that can be in time go before one that cannot any more.
TEST(Slo, TheLateComeBehindThoseThatCanBeInTime) {
  SchedulerConfig config = SloConfig();
  config.shed_unmeetable = false;
  config.max_num_seqs = 1;
  SchedulerHarness harness(config);
  harness.step_time = StepTime;
  ASSERT_TRUE(harness.Add(WithTargets(1, 500, 20, 0)).has_value());
  harness.Step();
  ASSERT_TRUE(harness.Add(WithTargets(2, 10, 1, 1)).has_value());
  ASSERT_TRUE(harness.Add(WithTargets(3, 10, 1, 1000)).has_value());
  ASSERT_TRUE(harness.Add(WithTargets(4, 10, 1, 500)).has_value());
  harness.RunToEnd();
  const auto first_token = [&](std::uint64_t id) { return harness.EndOf(id).times.first_token; };
  EXPECT_LT(first_token(4), first_token(3));
  EXPECT_LT(first_token(3), first_token(2));
}

TEST(Slo, AnUrgentPromptGoesBeforeTheRestOfALongOne) {
  SchedulerConfig config = SloConfig();
  config.shed_unmeetable = false;
  SchedulerHarness harness(config);
  harness.step_time = StepTime;
  ASSERT_TRUE(harness.Add(WithTargets(1, 5000, 1, 0)).has_value());
  harness.Step();
  ASSERT_TRUE(harness.Add(WithTargets(2, 600, 1, 200)).has_value());
  const auto step = harness.Step();
  EXPECT_EQ(step.front().request, 2u);
  harness.RunToEnd();
  EXPECT_LT(harness.EndOf(2).times.first_token, harness.EndOf(1).times.first_token);
}

}  // namespace
}  // namespace quire::sched
