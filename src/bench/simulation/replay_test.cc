// Replays in simulated time: every figure is known exactly.
#include "bench/simulation/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/simulation/simulated_runner.h"

namespace quire::bench {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

// A step takes a millisecond for each of its tokens.
const MeasuredCost kCost({.device = "", .model = "", .how = "", .token_us = {{1, 1000}}, .sample_us = {{1, 0}}});

engine::EngineConfig Config() {
  engine::EngineConfig config;
  config.scheduler.max_num_batched_tokens = 64;
  config.scheduler.max_num_seqs = 8;
  config.scheduler.max_model_len = 64;
  config.scheduler.num_blocks = 64;
  config.scheduler.block_size = 4;
  config.scheduler.vocab_size = 1000;
  return config;
}

ReplaySamples RunReplay(const engine::EngineConfig& config, const std::vector<TraceRequest>& requests,
                        const ReplayOptions& options = {}) {
  SimulatedTimeline timeline;
  SimulatedRunner runner(&kCost, config.scheduler.vocab_size, &timeline);
  const Result<ReplaySamples> samples = Replay(config, &runner, &timeline, requests, options);
  EXPECT_TRUE(samples.has_value());
  return samples.value_or(ReplaySamples{});
}

auto Ms(double milliseconds) {
  return DoubleNear(milliseconds / 1000, 1e-9);
}

TEST(Replay, OneRequest) {
  const ReplaySamples samples = RunReplay(Config(), {{.segments = {{1, 4}}, .num_output_tokens = 3}});
  EXPECT_EQ(samples.num_finished, 1);
  EXPECT_EQ(samples.num_input_tokens, 4);
  EXPECT_EQ(samples.num_output_tokens, 3);
  EXPECT_THAT(samples.ttft, ElementsAre(Ms(4)));
  EXPECT_THAT(samples.itl, ElementsAre(Ms(1), Ms(1)));
  EXPECT_THAT(samples.tpot, ElementsAre(Ms(1)));
  EXPECT_THAT(samples.latency, ElementsAre(Ms(6)));
  EXPECT_THAT(samples.duration_seconds, Ms(6));
  EXPECT_EQ(samples.steps.num_steps, 3);
  EXPECT_THAT(samples.output_tokens_per_second(), DoubleNear(500, 1e-6));
  // Blocks of 4 tokens: one for 4 ms, two for 2 ms; tokens: four for 4 ms, then 5 and 6.
  EXPECT_THAT(samples.steps.blocks, Ms(1 * 4 + 2 * 2));
  EXPECT_THAT(samples.steps.tokens, Ms(4 * 4 + 5 + 6));
}

TEST(Replay, TimesCountFromTheArrivalAndIdleTimeIsSkipped) {
  const ReplaySamples samples = RunReplay(Config(), {{.segments = {{1, 4}}, .num_output_tokens = 2},
                                                     {.arrival_seconds = 0.0045, .segments = {{2, 2}}},
                                                     {.arrival_seconds = 1, .segments = {{3, 5}}}});
  // The second comes during the step that ends at 5 ms, and runs alone then; the third finds nobody.
  EXPECT_THAT(samples.ttft, ElementsAre(Ms(4), Ms(2.5), Ms(5)));
  EXPECT_THAT(samples.duration_seconds, Ms(1005));
  EXPECT_THAT(samples.steps.seconds, Ms(12));
}

TEST(Replay, WithALimitARequestIsAskedWhenThereIsAPlace) {
  const std::vector<TraceRequest> requests = {{.segments = {{1, 4}}}, {.segments = {{2, 4}}}, {.segments = {{3, 4}}}};
  EXPECT_THAT(RunReplay(Config(), requests).ttft, ElementsAre(Ms(12), Ms(12), Ms(12)));
  EXPECT_THAT(RunReplay(Config(), requests, {.max_concurrency = 1}).ttft, ElementsAre(Ms(4), Ms(4), Ms(4)));
}

TEST(Replay, WhatTheCacheHasTakesNoTime) {
  const ReplaySamples samples =
      RunReplay(Config(), {{.segments = {{1, 8}, {2, 4}}}, {.segments = {{1, 8}, {3, 4}}}}, {.max_concurrency = 1});
  EXPECT_THAT(samples.ttft, ElementsAre(Ms(12), Ms(4)));
  EXPECT_EQ(samples.num_hit_tokens, 8u);
  EXPECT_EQ(samples.num_looked_up_tokens, 22u);
}

TEST(Replay, WhatIsRefusedIsCounted) {
  engine::EngineConfig config = Config();
  config.scheduler.max_num_queued_requests = 1;
  const ReplaySamples samples =
      RunReplay(config, {{.segments = {{1, 4}}}, {.segments = {{2, 4}}}, {.segments = {{3, 64}}}});
  EXPECT_EQ(samples.num_requests, 3);
  EXPECT_EQ(samples.num_finished, 1);
  EXPECT_EQ(samples.num_refused, 1);
  EXPECT_EQ(samples.num_too_long, 1);
}

TEST(Replay, ChoicesShareBlocks) {
  const ReplaySamples samples = RunReplay(Config(), {{.segments = {{1, 8}}, .num_output_tokens = 2, .num_choices = 2}},
                                          {.counts_distinct_blocks = true});
  EXPECT_EQ(samples.num_output_tokens, 4);
  // 8 ms with two blocks. Then the first runs its 9th token into a block of its own, and the second the 8th into a copy of
  // the last one: 3 + 2 blocks, of which they share one. Then the second alone has three.
  EXPECT_EQ(samples.steps.num_steps, 3);
  EXPECT_THAT(samples.steps.blocks, Ms(8 * 2 + 2 * 5 + 1 * 3));
  EXPECT_THAT(samples.steps.distinct_blocks, Ms(8 * 2 + 2 * 4 + 1 * 3));
}

TEST(Replay, SamplesOfReplicasAreAddedUp) {
  ReplaySamples one = RunReplay(Config(), {{.segments = {{1, 4}}, .num_output_tokens = 3}});
  const ReplaySamples other = RunReplay(Config(), {{.segments = {{1, 2}}}});
  one.Add(other);
  EXPECT_EQ(one.num_finished, 2);
  EXPECT_EQ(one.num_output_tokens, 4);
  EXPECT_THAT(one.duration_seconds, Ms(6));  // they ran at the same time
  EXPECT_THAT(one.ttft, ElementsAre(Ms(4), Ms(2)));
  EXPECT_EQ(one.steps.num_steps, 4);
}

}  // namespace
}  // namespace quire::bench
