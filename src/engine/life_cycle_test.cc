// What is written down about a request's life, in simulated time, where every stamp is known.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/intervals.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/fake_runner.h"

namespace quire::engine {
namespace {

using std::chrono::milliseconds;

// A step takes 10 ms, and 1 ms for each of its tokens.
class SlowRunner final : public Runner {
 public:
  SlowRunner(const sched::SchedulerConfig& config, ManualClock* clock)
      : fake_(config.num_blocks, config.block_size, config.vocab_size), clock_(clock) {}

  Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) override {
    clock_->Advance(milliseconds(10 + plan.num_tokens));
    return fake_.Run(plan, result);
  }
  void FailNext() { fake_.FailNext(); }

 private:
  FakeRunner fake_;
  ManualClock* const clock_;
};

class LifeCycleTest : public testing::Test {
 protected:
  LifeCycleTest() { clock_.Advance(milliseconds(1000)); }

  // Room for 24 tokens.
  static EngineConfig Config() {
    EngineConfig config;
    config.scheduler.max_num_batched_tokens = 64;
    config.scheduler.max_num_seqs = 4;
    config.scheduler.max_model_len = 24;
    config.scheduler.num_blocks = 6;
    config.scheduler.block_size = 4;
    config.scheduler.vocab_size = 50;
    config.scheduler.policy = sched::PolicyKind::kFcfs;
    config.scheduler.enable_prefix_caching = false;
    return config;
  }
  void Add(std::uint64_t id, int prompt_size, int max_tokens, int n = 1) {
    GenerateRequest request;
    request.id = RequestId(id);
    for (int i = 0; i < prompt_size; ++i) request.prompt.push_back(TokenId(static_cast<int>(id) * 10 + i));
    request.sampling.n = n;
    request.stop.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    ASSERT_TRUE(engine_.Add(std::move(request), clock_.Now()).has_value());
  }
  void Step() {
    const bool failed = !engine_.Step(&events_).has_value();
    EXPECT_EQ(failed, std::exchange(fails_, false));
    for (EngineEvent& event : std::exchange(events_, {})) Keep(std::move(event));
  }
  void Keep(EngineEvent event) {
    Life& life = lives_[{event.request.value(), event.choice}];
    life.num_tokens += static_cast<int>(event.tokens.size());
    life.times = event.times;
    life.reason = event.finish_reason;
  }
  struct Life {
    RequestTimes times;
    int num_tokens = 0;
    FinishReason reason = FinishReason::kNone;
  };
  const Life& LifeOf(std::uint64_t id, int choice = 0) { return lives_.at({id, choice}); }
  static TimePoint At(int ms) { return TimePoint(milliseconds(ms)); }

  ManualClock clock_;
  const EngineConfig config_ = Config();
  SlowRunner runner_{config_.scheduler, &clock_};
  Engine engine_{config_, &runner_, &clock_};
  std::vector<EngineEvent> events_;
  std::map<std::pair<std::uint64_t, int>, Life> lives_;
  bool fails_ = false;  // the next step does
};

// Both prompts run in one step of 26 ms; then both decode in steps of 12 ms until their 13th tokens need a fourth block
// each. The second one is preempted, and runs again when the first has finished.
TEST_F(LifeCycleTest, EveryStampOfAChoiceThatIsPreempted) {
  Add(1, 8, 12);
  clock_.Advance(milliseconds(5));
  Add(2, 8, 12);
  clock_.Advance(milliseconds(5));
  while (engine_.has_work()) Step();

  const Life& first = LifeOf(1);
  EXPECT_EQ(first.num_tokens, 12);
  RequestTimes expected;
  expected.queued = At(1000);
  expected.first_scheduled = expected.last_scheduled = expected.inference_begin = At(1010);
  expected.first_token = At(1036);
  expected.inference_end = expected.last_token = expected.finished = At(1161);
  expected.longest_token_gap = milliseconds(12);
  expected.num_steps = 12;
  EXPECT_TRUE(first.times == expected);

  const Life& second = LifeOf(2);
  EXPECT_EQ(second.num_tokens, 12);
  expected.queued = At(1005);
  expected.last_scheduled = At(1161);
  expected.inference_end = expected.last_token = expected.finished = At(1250);
  expected.longest_token_gap = milliseconds(100);  // 1084, then 1161 and 23 ms for its 13 tokens
  expected.num_preemptions = 1;
  expected.marks = {{LifeChange::kPreempted, At(1084)}, {LifeChange::kScheduled, At(1161)}};
  EXPECT_TRUE(second.times == expected);

  const RequestIntervals intervals = DeriveIntervals(second.times, second.num_tokens);
  EXPECT_DOUBLE_EQ(*intervals.queue, 0.005);
  EXPECT_DOUBLE_EQ(*intervals.prefill, 0.026);
  EXPECT_DOUBLE_EQ(*intervals.decode, 0.214);  // with the time without memory
  EXPECT_DOUBLE_EQ(*intervals.inference, 0.240);
  EXPECT_DOUBLE_EQ(*intervals.time_per_output_token, 0.214 / 11);
}

// An event says what has been until then: a front end that ends a choice by itself knows its times.
TEST_F(LifeCycleTest, EventsOnTheWayCarryTheTimesSoFar) {
  Add(1, 4, 6);
  Step();
  Step();
  const Life& life = LifeOf(1);
  EXPECT_EQ(life.reason, FinishReason::kNone);
  EXPECT_EQ(life.times.first_token, At(1014));
  EXPECT_EQ(life.times.last_token, At(1025));
  EXPECT_EQ(life.times.finished, TimePoint{});
}

// The other choices begin with the prompt that the first one has computed.
TEST_F(LifeCycleTest, ChoicesShareTheLifeOfTheirPrompt) {
  Add(1, 4, 3, /*n=*/2);
  while (engine_.has_work()) Step();
  const RequestTimes& first = LifeOf(1, 0).times;
  const RequestTimes& second = LifeOf(1, 1).times;
  EXPECT_EQ(second.queued, At(1000));
  EXPECT_EQ(second.first_scheduled, At(1000));
  EXPECT_EQ(second.inference_begin, At(1000));
  EXPECT_EQ(first.first_token, At(1014));
  EXPECT_GT(second.first_token, first.first_token);
  EXPECT_EQ(second.finished, second.last_token);
}

TEST_F(LifeCycleTest, WhoEndsBeforeATokenHasNoIntervalsOfTokens) {
  Add(1, 4, 3);
  clock_.Advance(milliseconds(7));
  engine_.Abort(RequestId(1), std::nullopt, &events_);
  ASSERT_EQ(events_.size(), 1u);
  Keep(std::move(events_[0]));
  events_.clear();
  EXPECT_EQ(LifeOf(1).times.finished, At(1007));
  const RequestIntervals intervals = DeriveIntervals(LifeOf(1).times, 0);
  EXPECT_FALSE(intervals.queue || intervals.prefill || intervals.decode || intervals.inference);
}

TEST_F(LifeCycleTest, AStepThatFailsEndsItsRequestsThen) {
  Add(1, 4, 3);
  runner_.FailNext();
  fails_ = true;
  Step();
  EXPECT_EQ(LifeOf(1).reason, FinishReason::kError);
  EXPECT_EQ(LifeOf(1).times.first_scheduled, At(1000));
  EXPECT_EQ(LifeOf(1).times.finished, At(1014));
}

TEST_F(LifeCycleTest, WhatIsRememberedOfPreemptionsIsBounded) {
  sched::SchedulerConfig config = config_.scheduler;
  config.num_blocks = 40;
  config.max_model_len = 160;
  EngineConfig large = config_;
  large.scheduler = config;
  // A pool for one sequence and a half: the younger is thrown out each time the older begins a block.
  SlowRunner runner(config, &clock_);
  Engine engine(large, &runner, &clock_);
  std::uint64_t next_id = 1;
  RequestTimes most;
  for (int round = 0; round < 400; ++round) {
    while (engine.scheduler().num_unfinished_sequences() < 4) {
      GenerateRequest request;
      request.id = RequestId(next_id);
      for (int i = 0; i < 20; ++i) request.prompt.push_back(TokenId(static_cast<int>((next_id + i) % 50)));
      request.stop.max_tokens = 130;
      request.stop.ignore_eos = true;
      ASSERT_TRUE(engine.Add(std::move(request), clock_.Now()).has_value());
      ++next_id;
    }
    ASSERT_TRUE(engine.Step(&events_).has_value());
    for (const EngineEvent& event : std::exchange(events_, {})) {
      EXPECT_LE(event.times.marks.size(), kLifeMarksMax);
      if (event.times.num_preemptions > most.num_preemptions) most = event.times;
    }
  }
  EXPECT_GT(most.num_preemptions, 0);
  for (std::size_t i = 0; i + 1 < most.marks.size(); ++i) {
    EXPECT_LE(most.marks[i].at, most.marks[i + 1].at);
    EXPECT_NE(most.marks[i].change, most.marks[i + 1].change);
  }
}

}  // namespace
}  // namespace quire::engine
