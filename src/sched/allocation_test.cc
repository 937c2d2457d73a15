// Steps allocate nothing once the scheduler has warmed up.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/allocation_test_util.h"
#include "sched/scheduler.h"
#include "sched/scheduler_test_util.h"

namespace quire::sched {
namespace {

// Sequences that decode, others that wait for a place, and a runner that allocates nothing either.
class Loop {
 public:
  explicit Loop(const SchedulerConfig& config) : scheduler_(config, {}) {}

  void Add(GenerateRequest request) { ASSERT_TRUE(scheduler_.Add(std::move(request), now_).has_value()); }
  void Step() {
    events_.clear();
    now_ += std::chrono::milliseconds(1);
    scheduler_.Shed(now_, &events_);
    scheduler_.Plan(now_, &plan_);
    result_.sequences.resize(plan_.sequences.size());
    for (std::size_t i = 0; i < plan_.sequences.size(); ++i) {
      result_.sequences[i].tokens.clear();
      if (plan_.sequences[i].samples) result_.sequences[i].tokens.push_back(TokenId(7));
    }
    now_ += std::chrono::milliseconds(9);
    scheduler_.Commit(&plan_, &result_, now_, &events_);
    scheduler_.ReadStats(&stats_);
  }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  TimePoint now_{};
  Scheduler scheduler_;
  BatchPlan plan_;
  StepResult result_;
  std::vector<EngineEvent> events_;
  EngineStats stats_;
};

TEST(Allocation, StepsAllocateNothingAfterWarmUp) {
  // Few wait, so that the random policy too has tried to admit each of them before the allocations are counted.
  constexpr int kNumRunning = 64, kNumWaiting = 8;
  for (const PolicyKind kind : kPolicyKinds) {
    for (const bool fair : {false, true}) {
      SchedulerConfig config;
      config.policy = kind;
      config.enable_fairness = fair;
      config.max_num_seqs = kNumRunning + 1;
      config.max_model_len = 1 << 16;
      config.num_blocks = 4300;
      config.vocab_size = 100'000;
      if (kind == PolicyKind::kSlo) config.default_tpot_ms = 50;
      if (!config.Validate().has_value()) continue;
      SCOPED_TRACE(std::string(PolicyName(kind)) + (fair ? ", fair" : ""));
      Loop loop(config);
      for (int i = 0; i < kNumRunning; ++i) {
        auto request =
            SchedulerHarness::MakeRequest(static_cast<std::uint64_t>(i) + 1, Ids(i * 100, 60), /*max_tokens=*/2000);
        request.terms.tenant = i % 3;
        loop.Add(std::move(request));
      }
      for (int i = 0; i < 5; ++i) loop.Step();
      for (int i = 0; i < kNumWaiting; ++i) {
        // None of them fits beside those that run.
        auto request = SchedulerHarness::MakeRequest(static_cast<std::uint64_t>(i) + 1000, Ids(0, 60), 10);
        request.prompt.resize(static_cast<std::size_t>(config.max_model_len - 20 - i), TokenId(5));
        request.terms.tenant = i % 4;
        loop.Add(std::move(request));
      }
      for (int i = 0; i < 100; ++i) loop.Step();
      // Far enough that each sequence fills several blocks, and publishes them.
      const std::int64_t before = num_allocations.load(std::memory_order_relaxed);
      for (int i = 0; i < 64; ++i) loop.Step();
      EXPECT_EQ(num_allocations.load(std::memory_order_relaxed) - before, 0);
      EXPECT_EQ(loop.scheduler().num_running_sequences(), kNumRunning);
      EXPECT_EQ(loop.scheduler().num_queued_requests(), kNumWaiting);
    }
  }
}

}  // namespace
}  // namespace quire::sched
