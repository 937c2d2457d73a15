#include "bench/simulation/router.h"

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

TraceRequest Ask(double seconds, std::vector<PromptSegment> segments) {
  return {.arrival_seconds = seconds, .segments = std::move(segments)};
}

TEST(Router, RoundRobinTakesTurns) {
  const auto router = Router::Create(RouterKind::kRoundRobin, 3);
  std::vector<int> routes;
  for (int i = 0; i < 5; ++i) routes.push_back(router->Route(Ask(i, {{1, 8}})));
  EXPECT_EQ(routes, (std::vector<int>{0, 1, 2, 0, 1}));
}

TEST(Router, AffinityFollowsTheLongestPrefix) {
  PrefixAffinity router(4);
  EXPECT_EQ(router.Route(Ask(0, {{1, 100}, {10, 100}})), 0);
  EXPECT_EQ(router.Route(Ask(0, {{2, 100}})), 1);  // unknown: the least loaded
  EXPECT_EQ(router.Route(Ask(0, {{3, 300}})), 2);
  EXPECT_EQ(router.Route(Ask(0, {{2, 100}, {20, 5}})), 1);
  EXPECT_EQ(router.Route(Ask(100, {{1, 100}, {11, 1}})), 0);
  EXPECT_EQ(router.Route(Ask(100, {{1, 100}, {10, 100}, {12, 1}})), 0);
}

// Requests of the same size: the first replica has n of them when the next one comes, and n > 1.5 · (n + 1) / 2 from n = 4.
TEST(Router, AffinityGivesWayToLoad) {
  PrefixAffinity router(2);
  std::vector<int> routes;
  for (std::uint64_t i = 0; i < 6; ++i) routes.push_back(router.Route(Ask(0, {{1, 100}, {10 + i, 1}})));
  // The prefix is then with the second, too, and was there last.
  EXPECT_EQ(routes, (std::vector<int>{0, 0, 0, 0, 1, 1}));
}

TEST(Router, NamesAreReadAsTheyAreWritten) {
  for (const RouterKind kind : {RouterKind::kRoundRobin, RouterKind::kPrefixAffinity}) {
    EXPECT_EQ(*ParseRouter(RouterName(kind)), kind);
  }
  EXPECT_FALSE(ParseRouter("random").has_value());
}

}  // namespace
}  // namespace quire::bench
