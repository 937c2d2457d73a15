#include "base/tracer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace quire {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) {
  return TimePoint(milliseconds(ms));
}

TEST(Tracer, SpansEndInsideThoseThatTheyBeganIn) {
  ManualClock clock;
  Tracer tracer(&clock);
  TraceLane* const lane = tracer.Lane("one");
  EXPECT_TRUE(tracer.Apply(TraceCommand::kStart).is_on);
  {
    TraceSpan outer(lane, TraceLabel::kStep, 7);
    clock.Advance(milliseconds(1));
    {
      const TraceSpan inner(lane, TraceLabel::kPlan);
      EXPECT_EQ(lane->open().label, TraceLabel::kPlan);
      clock.Advance(milliseconds(2));
    }
    EXPECT_EQ(lane->open().label, TraceLabel::kStep);
    EXPECT_EQ(lane->open().value, 7);
    outer.SetValue(1, 9);
    clock.Advance(milliseconds(3));
  }
  lane->Count(TraceLabel::kQueue, {4, 5, 0});
  const TraceBatch batch = tracer.Apply(TraceCommand::kTake);
  EXPECT_EQ(batch.now, At(6));
  ASSERT_EQ(batch.lanes.size(), 1u);
  EXPECT_EQ(batch.lanes[0].name, "one");
  const std::vector<TraceEvent> expected = {
      {.begin = At(1), .duration = milliseconds(2), .label = TraceLabel::kPlan, .values = {0, 0, 0}},
      {.begin = At(0), .duration = milliseconds(6), .label = TraceLabel::kStep, .values = {7, 9, 0}},
      {.begin = At(6), .duration = {}, .label = TraceLabel::kQueue, .values = {4, 5, 0}}};
  EXPECT_EQ(batch.lanes[0].events, expected);
  EXPECT_TRUE(tracer.Apply(TraceCommand::kTake).lanes.empty());  // taken already
}

TEST(Tracer, RecordsNothingUntilItIsOnAndAfterItIsOff) {
  ManualClock clock;
  Tracer tracer(&clock);
  TraceLane* const lane = tracer.Lane("one");
  const TraceSpan no_lane(nullptr, TraceLabel::kStep);
  {
    const TraceSpan span(lane, TraceLabel::kStep);
  }
  EXPECT_TRUE(tracer.Apply(TraceCommand::kTake).lanes.empty());
  {
    const TraceSpan begun_before(lane, TraceLabel::kStep);
    tracer.Apply(TraceCommand::kStart);
  }
  EXPECT_TRUE(tracer.Apply(TraceCommand::kTake).lanes.empty());
  {
    const TraceSpan ends_after(lane, TraceLabel::kStep);
    {
      const TraceSpan whole(lane, TraceLabel::kPlan);
    }
    const TraceBatch last = tracer.Apply(TraceCommand::kStop);
    EXPECT_FALSE(last.is_on);
    ASSERT_EQ(last.lanes.size(), 1u);
    EXPECT_EQ(last.lanes[0].events.size(), 1u);
  }
  EXPECT_TRUE(tracer.Apply(TraceCommand::kTake).lanes.empty());
}

TEST(Tracer, WhatFindsNoPlaceIsCounted) {
  ManualClock clock;
  Tracer tracer(&clock, /*lane_events=*/10);
  TraceLane* const lane = tracer.Lane("one");
  tracer.Apply(TraceCommand::kStart);
  for (int i = 0; i < 25; ++i) const TraceSpan span(lane, TraceLabel::kStep);
  TraceBatch batch = tracer.Apply(TraceCommand::kTake);
  ASSERT_EQ(batch.lanes.size(), 1u);
  EXPECT_EQ(batch.lanes[0].events.size(), 10u);
  EXPECT_EQ(batch.lanes[0].dropped, 15u);
  for (int i = 0; i < 3; ++i) const TraceSpan span(lane, TraceLabel::kStep);
  batch = tracer.Apply(TraceCommand::kTake);
  EXPECT_EQ(batch.lanes[0].events.size(), 3u);  // there is place again
  EXPECT_EQ(batch.lanes[0].dropped, 15u);
  tracer.Apply(TraceCommand::kStart);
  {
    const TraceSpan span(lane, TraceLabel::kStep);
  }
  EXPECT_EQ(tracer.Apply(TraceCommand::kTake).lanes[0].dropped, 0u);
}

TEST(Tracer, LanesAreFoundByNameAndAreNotTooMany) {
  ManualClock clock;
  Tracer tracer(&clock);
  EXPECT_EQ(tracer.Lane("one"), tracer.Lane("one"));
  for (std::size_t i = 1; i < Tracer::kLanesMax; ++i) EXPECT_NE(tracer.Lane(std::to_string(i)), nullptr);
  EXPECT_EQ(tracer.Lane("one more"), nullptr);
  EXPECT_NE(tracer.Lane("one"), nullptr);
}

TEST(Tracer, ThreadsRecordWhileSomebodyTakes) {
  const SteadyClock clock;
  Tracer tracer(&clock, /*lane_events=*/1000);
  constexpr int kThreads = 3, kSpans = 20'000;
  tracer.Apply(TraceCommand::kStart);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      TraceLane* const lane = tracer.Lane(std::to_string(i));
      for (int j = 0; j < kSpans; ++j) const TraceSpan span(lane, TraceLabel::kStep, j);
    });
  }
  std::size_t num_taken = 0;
  std::uint64_t num_dropped = 0;
  const auto count = [&](const TraceBatch& batch) {
    num_dropped = 0;
    for (const TraceBatch::Lane& lane : batch.lanes) {
      num_taken += lane.events.size();
      num_dropped += lane.dropped;
      for (std::size_t i = 1; i < lane.events.size(); ++i) {
        EXPECT_LE(lane.events[i - 1].begin + lane.events[i - 1].duration, lane.events[i].begin);
      }
    }
  };
  for (int i = 0; i < 50; ++i) count(tracer.Apply(TraceCommand::kTake));
  for (std::thread& thread : threads) thread.join();
  // Lanes that have lost events stand in each batch, so that the last one has all counts.
  count(tracer.Apply(TraceCommand::kStop));
  EXPECT_LE(num_taken + num_dropped, std::size_t{kThreads} * kSpans);
  EXPECT_GT(num_taken, 0u);
}

TEST(Tracer, TheOffsetOfAClockIsNoneWhenItCanBeTheSame) {
  EXPECT_EQ(ClockOffset(At(10), At(10), At(10)), Duration{});
  EXPECT_EQ(ClockOffset(At(10), At(15), At(20)), Duration{});
  EXPECT_EQ(ClockOffset(At(10), At(1000), At(20)), milliseconds(15 - 1000));
  EXPECT_EQ(ClockOffset(At(1000), At(10), At(1002)), milliseconds(1001 - 10));
}

}  // namespace
}  // namespace quire
