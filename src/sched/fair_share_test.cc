// Fairness between tenants: what each of them gets.
#include "sched/fair_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "sched/scheduler_test_util.h"

namespace quire::sched {
namespace {

using Ran = SchedulerHarness::Ran;
using testing::ElementsAre;

SchedulerConfig FairConfig() {
  SchedulerConfig config = TestConfig();
  config.enable_fairness = true;
  config.max_num_seqs = 1;
  return config;
}

void AddFor(SchedulerHarness* harness, std::int32_t tenant, std::uint64_t id, int prompt_size, int max_tokens) {
  auto request = SchedulerHarness::MakeRequest(id, Ids(static_cast<int>(id % 100) * 9, prompt_size), max_tokens);
  request.terms.tenant = tenant;
  ASSERT_TRUE(harness->Add(request).has_value());
}

double CounterOf(const SchedulerHarness& harness, std::int32_t tenant) {
  return dynamic_cast<const FairShare&>(harness.scheduler.policy()).CounterOf(tenant);
}

std::vector<std::uint64_t> AdmissionOrder(SchedulerHarness* harness) {
  std::vector<std::uint64_t> order;
  while (harness->scheduler.has_unfinished()) {
    for (const Ran& ran : harness->Step()) {
      if (order.empty() || order.back() != ran.request) order.push_back(ran.request);
    }
  }
  return order;
}

TEST(FairShare, TenantsTakeTurns) {
  SchedulerHarness harness(FairConfig());
  for (std::uint64_t id = 1; id <= 4; ++id) AddFor(&harness, 0, id, 4, 2);
  for (std::uint64_t id = 11; id <= 13; ++id) AddFor(&harness, 1, id, 4, 2);
  EXPECT_THAT(AdmissionOrder(&harness), ElementsAre(1, 11, 2, 12, 3, 13, 4));
  EXPECT_EQ(CounterOf(harness, 0), 4 * (4 * 1 + 2 * 2));
  EXPECT_EQ(CounterOf(harness, 1), 3 * (4 * 1 + 2 * 2));
}

// By cost, not by number: one long request is worth several short ones.
TEST(FairShare, LongRequestsCountForMore) {
  SchedulerHarness harness(FairConfig());
  for (std::uint64_t id = 1; id <= 3; ++id) AddFor(&harness, 0, id, 20, 6);   // 32 each
  for (std::uint64_t id = 11; id <= 17; ++id) AddFor(&harness, 1, id, 4, 3);  // 10 each
  EXPECT_THAT(AdmissionOrder(&harness), ElementsAre(1, 11, 12, 13, 14, 2, 15, 16, 17, 3));
}

// Within one plan each admission counts, before anything of it has run.
TEST(FairShare, AStepIsShared) {
  SchedulerConfig config = FairConfig();
  config.max_num_seqs = 4;
  SchedulerHarness harness(config);
  for (std::uint64_t id = 1; id <= 4; ++id) AddFor(&harness, 0, id, 4, 2);
  for (std::uint64_t id = 11; id <= 14; ++id) AddFor(&harness, 1, id, 4, 2);
  const auto step = harness.Step();
  std::vector<std::uint64_t> requests;
  for (const Ran& ran : step) requests.push_back(ran.request);
  EXPECT_THAT(requests, ElementsAre(1, 11, 2, 12));
}

// What the cache has costs nothing.
TEST(FairShare, CachedTokensAreFree) {
  SchedulerHarness harness(FairConfig());
  AddFor(&harness, 0, 1, 17, 1);
  harness.RunToEnd();
  const double before = CounterOf(harness, 0);
  auto again = SchedulerHarness::MakeRequest(2, Ids(9, 17), 1);
  ASSERT_TRUE(harness.Add(again).has_value());
  harness.RunToEnd();
  EXPECT_EQ(CounterOf(harness, 0) - before, 1 * 1 + 1 * 2);
}

// Who was away does not come back with a right to all that it did not use.
TEST(FairShare, PausesAreNotSavedUp) {
  SchedulerHarness harness(FairConfig());
  AddFor(&harness, 1, 50, 4, 1);  // a visit long ago
  harness.RunToEnd();
  for (std::uint64_t id = 1; id <= 6; ++id) AddFor(&harness, 0, id, 10, 5);
  for (int i = 0; i < 15; ++i) harness.Step();  // three of them
  const double served = CounterOf(harness, 0);
  EXPECT_GT(served, 40);
  for (std::uint64_t id = 11; id <= 14; ++id) AddFor(&harness, 1, id, 10, 5);
  EXPECT_EQ(CounterOf(harness, 1), served);
  const auto order = AdmissionOrder(&harness);
  // They take turns from here on; without the lift 11 … 13 would go one after the other.
  EXPECT_THAT(order, ElementsAre(4, 11, 5, 12, 6, 13, 14));
}

// … and who comes when nobody waits is as far as the last who did.
TEST(FairShare, TheLiftFromAnEmptyQueue) {
  SchedulerHarness harness(FairConfig());
  AddFor(&harness, 0, 1, 10, 5);
  harness.RunToEnd();
  AddFor(&harness, 1, 2, 4, 1);
  EXPECT_EQ(CounterOf(harness, 1), CounterOf(harness, 0));
}

// The bound of the paper: of tenants that always have something waiting, none has had more than another by more than
// twice what one prompt, or all the outputs that run, cost. Greed and long requests do not help.
TEST(FairShare, BackloggedTenantsGetTheSame) {
  SchedulerConfig config = FairConfig();
  config.max_num_seqs = 4;
  config.num_blocks = 60;
  config.max_num_queued_requests = 10'000;
  config.enable_prefix_caching = false;
  SchedulerHarness harness(config);
  std::mt19937_64 random(5);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  std::uint64_t id = 0;
  constexpr int kNumTenants = 3;
  std::map<std::int32_t, std::vector<double>> counters;
  for (int i = 0; i < 900; ++i) {
    const std::int32_t tenant = i % 10 < 6 ? 0 : i % 10 < 9 ? 1 : 2;  // the first sends most
    const int prompt = tenant == 2 ? draw(20, 40) : draw(2, 12);      // the last sends long ones
    AddFor(&harness, tenant, ++id, prompt, tenant == 1 ? draw(10, 20) : draw(1, 6));
  }
  const double most_prompt = 40 * config.input_token_weight;
  const double most_outputs = config.max_num_seqs * 20 * config.output_token_weight;
  const double bound = 2 * std::max(most_prompt, most_outputs);
  double largest = 0;
  for (int step = 0; step < 600; ++step) {
    harness.Step();
    double least = INFINITY, most = 0;
    for (std::int32_t tenant = 0; tenant < kNumTenants; ++tenant) {
      least = std::min(least, CounterOf(harness, tenant));
      most = std::max(most, CounterOf(harness, tenant));
    }
    largest = std::max(largest, most - least);
  }
  EXPECT_GT(harness.scheduler.num_queued_requests(), 100);
  EXPECT_LE(largest, bound);
  EXPECT_GT(CounterOf(harness, 2), 5 * bound);  // the run was long enough to tell
}

}  // namespace
}  // namespace quire::sched
