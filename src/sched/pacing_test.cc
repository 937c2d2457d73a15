// Prompts do not freeze streams: simulated time on a machine whose steps cost what they cost on a CPU, with noise.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "sched/scheduler_test_util.h"

namespace quire::sched {
namespace {

constexpr int kNumStreams = 8;
constexpr int kPromptTokens = 4000;

// Milliseconds: 6 for reading the weights, 0.25 for each prompt token, 0.4 for each stream, and attention.
class Machine {
 public:
  Duration StepTime(const BatchPlan& plan) {
    double ms = 6;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      const double middle = scheduled.first_position + scheduled.num_tokens / 2.0;
      ms += (scheduled.num_tokens == 1 ? 0.4 : 0.25 * scheduled.num_tokens) + 2e-5 * middle * scheduled.num_tokens;
    }
    ms *= slowdown * std::lognormal_distribution<double>(0, 0.04)(random_);
    if (std::bernoulli_distribution(0.002)(random_)) ms *= 3;  // something else had the CPU
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
  }
  double slowdown = 1;

 private:
  std::mt19937_64 random_{12};
};

// Times between the tokens of each stream, seconds.
class GapMeter {
 public:
  // Those of the events since the last call.
  std::vector<double> Take(const SchedulerHarness& harness) {
    std::vector<double> gaps;
    for (; num_seen_ < harness.events.size(); ++num_seen_) {
      const EngineEvent& event = harness.events[num_seen_];
      if (event.tokens.empty() || event.request.value() > kNumStreams) continue;
      const auto [last, is_first] = last_.try_emplace(event.request.value(), harness.now);
      if (!is_first) gaps.push_back(Seconds(harness.now - std::exchange(last->second, harness.now)));
    }
    return gaps;
  }

 private:
  std::size_t num_seen_ = 0;
  std::map<std::uint64_t, TimePoint> last_;
};

double P99(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() * 99 / 100];
}

struct Outcome {
  double undisturbed_p99_s = 0;
  double disturbed_p99_s = 0;  // while the prompt is computed
  double prompt_s = 0;         // to its first token
  double ratio() const { return disturbed_p99_s / undisturbed_p99_s; }
};

SchedulerConfig Config(PolicyKind policy) {
  SchedulerConfig config;
  config.policy = policy;
  config.max_model_len = 16'384;
  config.num_blocks = 2048;
  config.vocab_size = 100'000;
  return config;
}

// Streams run; after a while the prompt comes, once or several times, one after the other.
Outcome Measure(const SchedulerConfig& config, int num_prompts = 1, double slowdown_later = 1) {
  Machine machine;
  SchedulerHarness harness(config);
  harness.step_time = [&](const BatchPlan& plan) { return machine.StepTime(plan); };
  harness.sample = [](const Sequence&) { return TokenId(7); };
  GapMeter meter;
  const auto step = [&](std::vector<double>* gaps) {
    harness.Step();
    std::ranges::copy(meter.Take(harness), std::back_inserter(*gaps));
  };
  std::vector<double> ignored, undisturbed, disturbed;
  for (std::uint64_t id = 1; id <= kNumStreams; ++id) {
    harness.Add(id, Ids(static_cast<int>(id) * 100, 30 + static_cast<int>(id) * 3), 8000);
    step(&ignored);
  }
  for (int i = 0; i < 200; ++i) step(&undisturbed);
  Outcome outcome;
  for (int i = 0; i < num_prompts; ++i) {
    if (i > 0) machine.slowdown = slowdown_later;
    disturbed.clear();
    const TimePoint arrival = harness.now;
    const std::uint64_t id = 100 + static_cast<std::uint64_t>(i);
    harness.Add(id, Ids(10'000 + i * 5000, kPromptTokens), 1);
    while (harness.EndOf(id).finish_reason == FinishReason::kNone) step(&disturbed);
    outcome.prompt_s = Seconds(harness.now - arrival);
    outcome.disturbed_p99_s = P99(disturbed);
  }
  outcome.undisturbed_p99_s = P99(undisturbed);
  std::printf("undisturbed %.1f ms, with the prompt %.1f ms (%.2f times), prompt %.0f ms\n",
              1e3 * outcome.undisturbed_p99_s, 1e3 * outcome.disturbed_p99_s, outcome.ratio(), 1e3 * outcome.prompt_s);
  return outcome;
}

// What it is about: with the whole prompt in one or two steps, everybody stands still.
TEST(Pacing, WithoutALimitStreamsFreeze) {
  EXPECT_GT(Measure(Config(PolicyKind::kFcfs)).ratio(), 20);
}

TEST(Pacing, ASmallBudgetKeepsStreamsGoing) {
  SchedulerConfig config = Config(PolicyKind::kFcfs);
  config.max_num_batched_tokens = 40;
  EXPECT_LE(Measure(config).ratio(), 2);
}

TEST(Pacing, ATempoKeepsStreamsGoing) {
  SchedulerConfig config = Config(PolicyKind::kSlo);
  config.default_tpot_ms = 17;  // an undisturbed step takes about 10 ms
  const Outcome outcome = Measure(config);
  EXPECT_LE(outcome.ratio(), 2);
  EXPECT_LE(outcome.disturbed_p99_s, 0.019);
  // The prompt gets what is left: about 30 tokens a step, not the least that a step must do.
  EXPECT_LT(outcome.prompt_s, 5);
}

// A tempo with more room is given to the prompt.
TEST(Pacing, TheTimeThatIsLeftIsUsed) {
  SchedulerConfig config = Config(PolicyKind::kSlo);
  config.default_tpot_ms = 17;
  const double tight = Measure(config).prompt_s;
  config.default_tpot_ms = 60;
  const Outcome outcome = Measure(config);
  EXPECT_LT(outcome.prompt_s, tight / 2);
  EXPECT_LE(outcome.disturbed_p99_s, 0.065);
}

// Without any target the whole budget is used, as under the other policies.
TEST(Pacing, NoTempoNoLimit) {
  EXPECT_NEAR(Measure(Config(PolicyKind::kSlo)).prompt_s, Measure(Config(PolicyKind::kFcfs)).prompt_s, 0.3);
}

// A machine that becomes slower while it runs: the chunks become smaller.
TEST(Pacing, FollowsTheMachine) {
  SchedulerConfig config = Config(PolicyKind::kSlo);
  config.default_tpot_ms = 40;
  EXPECT_LE(Measure(config, /*num_prompts=*/3, /*slowdown_later=*/1.5).disturbed_p99_s, 0.045);
}

// Streams that cannot keep their tempo in any case do not starve a prompt.
TEST(Pacing, PromptsAlwaysGetOn) {
  SchedulerConfig config = Config(PolicyKind::kSlo);
  config.default_tpot_ms = 1;
  EXPECT_LT(Measure(config).prompt_s, 8);  // 256 steps until it is let in all the same, and 250 of 16 tokens
}

// One stream more, with which none of them could keep its tempo, waits until another one ends.
TEST(Pacing, NoMoreStreamsThanCanKeepTheirTempo) {
  Machine machine;
  SchedulerConfig config = Config(PolicyKind::kSlo);
  config.default_tpot_ms = 17;
  SchedulerHarness harness(config);
  harness.step_time = [&](const BatchPlan& plan) { return machine.StepTime(plan); };
  int most = 0;
  for (std::uint64_t id = 1; id <= 100; ++id) {
    harness.Add(id, Ids(static_cast<int>(id) * 50, 20), 60);
    for (int i = 0; i < 3; ++i) harness.Step();
    most = std::max(most, harness.scheduler.num_running_sequences());
  }
  harness.RunToEnd(100'000);
  // 6 ms and 0.4 ms each: 25 would take 16 ms.
  EXPECT_GE(most, 12);
  EXPECT_LE(most, 27);
  for (std::uint64_t id = 1; id <= 100; ++id) EXPECT_EQ(harness.TokensOf(id).size(), 60u);
}

}  // namespace
}  // namespace quire::sched
