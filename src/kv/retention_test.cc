// Prefixes that requests want retained, and what is counted of blocks that come and go.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "kv/cache_test_util.h"
#include "kv/kv_test_util.h"

namespace quire::kv {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr TimePoint At(Duration time) {
  return TimePoint() + time;
}

TEST(Retention, RetainedBlocksGoLast) {
  for (const EvictionPolicy policy : kEvictionPolicies) {
    SCOPED_TRACE(EvictionPolicyName(policy));
    TestCache cache(policy, 16);
    cache.RunRetained(Tokens({1, 1, 2, 2}), At(hours(24)));
    cache.Run(Tokens({5, 5, 6, 6}), 9);
    cache.Run(Tokens({1, 1, 3, 3}), 9);
    EXPECT_EQ(cache.ToString(), "1 1\n  2 2\n  3 3\n5 5 | 6 6\n");
    EXPECT_EQ(cache.cache().num_retained_blocks(), 2);
    EXPECT_EQ(cache.Evict(3), 3);
    EXPECT_EQ(cache.ToString(), "1 1\n  2 2\n");
    EXPECT_EQ(cache.cache().stats().evicted_while_retained, 0u);
    // Whoever runs needs the memory more.
    EXPECT_EQ(cache.Evict(1), 1);
    EXPECT_EQ(cache.ToString(), "1 1\n");
    EXPECT_EQ(cache.cache().num_retained_blocks(), 1);
    EXPECT_EQ(cache.cache().stats().evicted_for_capacity, 3u);
    EXPECT_EQ(cache.cache().stats().evicted_while_retained, 1u);
  }
}

TEST(Retention, EndsWithItsTime) {
  TestCache cache(EvictionPolicy::kLru, 16);
  cache.RunRetained(Tokens({1, 1}), At(seconds(10)));
  cache.RunRetained(Tokens({2, 2}), At(seconds(20)));
  cache.Run(Tokens({3, 3}));
  cache.SetTime(At(seconds(10)));
  EXPECT_EQ(cache.cache().num_retained_blocks(), 1);
  EXPECT_EQ(cache.Evict(1), 1);  // it was used before 3 3
  EXPECT_EQ(cache.ToString(), "2 2\n3 3\n");
  EXPECT_EQ(cache.cache().stats().evicted_after_retention, 1u);
  cache.SetTime(At(seconds(19)));
  EXPECT_EQ(cache.Evict(1), 1);
  EXPECT_EQ(cache.ToString(), "2 2\n");
}

TEST(Retention, TheLongerTimeCounts) {
  TestCache cache(EvictionPolicy::kLru, 16);
  cache.RunRetained(Tokens({1, 1, 2, 2}), At(seconds(20)));
  cache.RunRetained(Tokens({1, 1}), At(seconds(10)));
  cache.SetTime(At(seconds(15)));
  EXPECT_EQ(cache.cache().num_retained_blocks(), 2);
  cache.RunRetained(Tokens({1, 1}), At(seconds(30)));
  cache.SetTime(At(seconds(25)));
  EXPECT_EQ(cache.cache().num_retained_blocks(), 1);
}

// Nobody can have more than that retained: those whose time would be over first become blocks like others.
TEST(Retention, IsBounded) {
  TestCache cache(EvictionPolicy::kLru, 3);
  cache.RunRetained(Tokens({1, 1, 2, 2}), At(seconds(10)));
  cache.RunRetained(Tokens({3, 3}), At(seconds(30)));
  EXPECT_EQ(cache.cache().num_retained_blocks(), 3);
  cache.RunRetained(Tokens({4, 4}), At(seconds(20)));
  EXPECT_EQ(cache.cache().num_retained_blocks(), 2);  // a node as a whole
  cache.Run(Tokens({5, 5}));
  cache.Evict(3);
  EXPECT_EQ(cache.ToString(), "3 3\n4 4\n");
  EXPECT_EQ(cache.cache().stats().evicted_for_capacity, 3u);
}

TEST(Retention, OfOnePrefixTheEndGoesFirst) {
  TestCache cache(EvictionPolicy::kLru, 2);
  cache.RunRetained(Tokens({1, 1, 2, 2}), At(seconds(10)));
  cache.Run(Tokens({1, 1, 3, 3}));  // parts the node
  cache.RunRetained(Tokens({5, 5}), At(seconds(10)));
  cache.Evict(2);
  EXPECT_EQ(cache.ToString(), "1 1\n5 5\n");
}

// What a sequence generates after its prompt is not retained.
TEST(Retention, WhatFollowsIsNotRetained) {
  TestCache cache(EvictionPolicy::kLru, 16);
  TestCache::Sequence sequence = cache.Begin(Tokens({1, 1, 2, 2}));
  cache.cache().Retain(sequence.lock, At(hours(1)));
  cache.Append(Tokens({3, 3}), &sequence);
  cache.End(&sequence);
  EXPECT_EQ(cache.ToString(), "1 1 | 2 2\n  3 3\n");
  EXPECT_EQ(cache.cache().num_retained_blocks(), 2);
}

TEST(Retention, AResetForgetsAllTheSame) {
  TestCache cache(EvictionPolicy::kLfu, 16);
  cache.RunRetained(Tokens({1, 1, 2, 2}), At(hours(1)));
  cache.Run(Tokens({1, 1, 2, 2, 3, 3}));
  TestCache::Sequence used = cache.Begin(Tokens({1, 1}));
  cache.Clear();
  EXPECT_EQ(cache.ToString(), "1 1 *\n");
  EXPECT_EQ(cache.cache().num_retained_blocks(), 1);
  cache.End(&used);
  cache.Clear();
  EXPECT_EQ(cache.ToString(), "");
  EXPECT_EQ(cache.cache().num_retained_blocks(), 0);
  EXPECT_EQ(cache.cache().stats().evicted_by_reset, 3u);
  EXPECT_EQ(cache.cache().stats().num_evicted(), 3u);
}

std::uint64_t Count(const DurationHistogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::uint64_t{0});
}

TEST(CacheStats, TimesOfBlocks) {
  TestCache cache(EvictionPolicy::kLru);
  cache.Run(Tokens({1, 1, 2, 2}));
  cache.SetTime(At(seconds(4)));
  TestCache::Sequence user = cache.Begin(Tokens({1, 1, 2, 2, 3, 3}));  // finds two blocks after 4 s
  cache.SetTime(At(seconds(5)));
  TestCache::Sequence other = cache.Begin(Tokens({1, 1}));  // which are in use now
  const CacheStats& stats = cache.cache().stats();
  EXPECT_EQ(Count(stats.reuse_gap), 3u);
  EXPECT_EQ(stats.reuse_gap.counts[0], 1u);
  EXPECT_EQ(stats.reuse_gap.sum_s, 8);
  cache.SetTime(At(seconds(6)));
  cache.End(&user);
  cache.SetTime(At(seconds(7)));
  cache.End(&other);
  cache.SetTime(At(seconds(9)));
  EXPECT_EQ(cache.LookUp(Tokens({1, 1, 2, 2, 3, 3})), 3);  // and used nothing
  EXPECT_EQ(cache.Evict(3), 3);
  EXPECT_EQ(Count(stats.lifetime), 3u);
  EXPECT_EQ(stats.lifetime.sum_s, 9 + 9 + 5);
  EXPECT_EQ(stats.idle_before_evict.sum_s, 2 + 3 + 3);  // 1 1 was used until 7, the others until 6
  EXPECT_EQ(stats.evicted_for_capacity, 3u);
}

TEST(CacheStats, BucketsHoldTheirUpperBound) {
  DurationHistogram histogram;
  histogram.Add(std::chrono::milliseconds(1));
  histogram.Add(std::chrono::microseconds(1001), 2);
  histogram.Add(seconds(1800));
  histogram.Add(seconds(1801), 3);
  EXPECT_EQ(histogram.counts[0], 1u);
  EXPECT_EQ(histogram.counts[1], 2u);
  EXPECT_EQ(histogram.counts[DurationHistogram::kNumBuckets - 2], 1u);
  EXPECT_EQ(histogram.counts[DurationHistogram::kNumBuckets - 1], 3u);
}

TEST(Retention, WhatIsOverAlreadyDoesNotBegin) {
  TestCache cache(EvictionPolicy::kLru, 8);
  cache.SetTime(TimePoint(std::chrono::seconds(5)));
  cache.RunRetained(Tokens({1, 1, 2, 2}), TimePoint(std::chrono::seconds(5)));
  EXPECT_EQ(cache.cache().num_retained_blocks(), 0);
  cache.RunRetained(Tokens({1, 1, 2, 2}), TimePoint(std::chrono::seconds(6)));
  EXPECT_EQ(cache.cache().num_retained_blocks(), 2);
}

}  // namespace
}  // namespace quire::kv
