// The fit of step times: it finds what made them, through noise, outliers and changes.
#include "sched/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace quire::sched {
namespace {

// A machine: milliseconds for each part of a step.
struct Machine {
  double base = 8, per_prefill = 0.4, per_row = 0.5, per_kilo_row_context = 0.2, per_mega_prefill_context = 50;

  double Seconds(const StepWork& work) const {
    return 1e-3 *
           (base + per_prefill * work.prefill_tokens + per_row * work.rows +
            per_kilo_row_context * work.row_context / 1e3 + per_mega_prefill_context * work.prefill_context / 1e6);
  }
};

StepWork DrawWork(std::mt19937_64& random) {
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  StepWork work;
  for (int i = draw(0, 32); i > 0; --i) work.Add(draw(10, 4000), 1);
  if (draw(0, 2) == 0) work.Add(draw(0, 4000), draw(2, 512));
  return work;
}

double WorstError(const CostModel& model, const Machine& machine, std::mt19937_64& random) {
  double worst = 0;
  for (int i = 0; i < 200; ++i) {
    const StepWork work = DrawWork(random);
    worst = std::max(worst, std::abs(model.Predict(work) / machine.Seconds(work) - 1));
  }
  return worst;
}

TEST(CostModel, FindsWhatMadeTheTimes) {
  for (const double scale : {0.01, 1.0, 100.0}) {  // from tiny models to slow machines
    std::mt19937_64 random(7);
    Machine machine{8 * scale, 0.4 * scale, 0.5 * scale, 0.2 * scale, 50 * scale};
    CostModel model;
    EXPECT_FALSE(model.is_ready());
    for (int step = 0; step < 100; ++step) {
      const StepWork work = DrawWork(random);
      model.Observe(work, machine.Seconds(work));
    }
    EXPECT_TRUE(model.is_ready());
    EXPECT_LT(WorstError(model, machine, random), 0.02) << scale;
  }
}

// One step in twenty is held up by something else, by as much as thirty times.
TEST(CostModel, OutliersDoNotSpoilTheFit) {
  std::mt19937_64 random(8);
  std::normal_distribution<double> noise(1, 0.03);
  const Machine machine;
  CostModel model;
  for (int step = 0; step < 1000; ++step) {
    const StepWork work = DrawWork(random);
    const double held_up = step > 20 && step % 20 == 0 ? 30 : 1;
    model.Observe(work, machine.Seconds(work) * noise(random) * held_up);
  }
  EXPECT_LT(WorstError(model, machine, random), 0.15);
  EXPECT_LT(model.usual_error(), 0.1);
}

TEST(CostModel, FollowsAMachineThatBecomesSlower) {
  std::mt19937_64 random(9);
  Machine machine;
  CostModel model;
  for (int step = 0; step < 2000; ++step) {
    const StepWork work = DrawWork(random);
    model.Observe(work, machine.Seconds(work));
  }
  machine = {16, 0.8, 1.0, 0.4, 100};
  for (int step = 0; step < 150; ++step) {
    const StepWork work = DrawWork(random);
    model.Observe(work, machine.Seconds(work));
  }
  EXPECT_LT(WorstError(model, machine, random), 0.15);
}

// Hours of nothing but the same decode step: what prompts cost is not forgotten.
TEST(CostModel, WhatIsNotSeenIsKept) {
  std::mt19937_64 random(10);
  std::normal_distribution<double> noise(1, 0.03);
  const Machine machine;
  CostModel model;
  for (int step = 0; step < 200; ++step) {
    const StepWork work = DrawWork(random);
    model.Observe(work, machine.Seconds(work));
  }
  StepWork decode;
  for (int i = 0; i < 8; ++i) decode.Add(1000, 1);
  for (int step = 0; step < 100'000; ++step) model.Observe(decode, machine.Seconds(decode) * noise(random));
  StepWork prefill;
  prefill.Add(0, 512);
  EXPECT_NEAR(model.Predict(prefill) / machine.Seconds(prefill), 1, 0.25);
  EXPECT_NEAR(model.Predict(decode) / machine.Seconds(decode), 1, 0.05);
  EXPECT_TRUE(std::isfinite(model.Predict(prefill)));
}

TEST(CostModel, TokensWithinIsTheLargestSliceThatFits) {
  std::mt19937_64 random(11);
  const Machine machine;
  CostModel model;
  for (int step = 0; step < 300; ++step) {
    const StepWork work = DrawWork(random);
    model.Observe(work, machine.Seconds(work));
  }
  EXPECT_EQ(model.TokensWithin(-1, 0, 100), 0);
  EXPECT_EQ(model.TokensWithin(0, 0, 100), 0);
  EXPECT_EQ(model.TokensWithin(1e9, 0, 100), 100);
  for (const int first : {0, 100, 3000}) {
    for (const double seconds : {0.002, 0.02, 0.2}) {
      const int tokens = model.TokensWithin(seconds, first, 1 << 20);
      ASSERT_GT(tokens, 1);
      EXPECT_LE(model.CostOf(first, tokens), seconds * 1.001);
      EXPECT_GT(model.CostOf(first, tokens + 1), seconds * 0.999);
    }
  }
}

TEST(CostModel, ImpossibleTimesAreNotTaken) {
  CostModel model;
  StepWork work;
  work.Add(0, 100);
  for (int i = 0; i < 20; ++i) model.Observe(work, 0.05);
  const double before = model.Predict(work);
  for (const double seconds : {0.0, -5.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    model.Observe(work, seconds);
  }
  EXPECT_EQ(model.Predict(work), before);
  EXPECT_NEAR(before, 0.05, 0.001);
}

}  // namespace
}  // namespace quire::sched
