#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace quire::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

std::string Line(const std::string& name, const std::string& label, int value) {
  return "\nvllm:" + name + "{engine=\"0\"" + ",model_name=\"m\"" + label + "} " + std::to_string(value) + "\n";
}

std::string Evictions(const std::string& reason, int value) {
  return "\nquire:kv_block_evictions_total{engine=\"0\",model_name=\"m\",reason=\"" + reason + "\"} " +
         std::to_string(value) + "\n";
}

TEST(Metrics, WhatBecomesOfCachedBlocks) {
  Metrics metrics("m", 100);
  EngineStats stats;
  metrics.Update(stats);
  EXPECT_THAT(metrics.Serialize(), HasSubstr(Evictions("capacity", 0)));

  stats.prefix_cache_evicted_blocks = 10;
  stats.block_evictions = {.capacity = 1, .expired = 2, .retained = 3, .reset = 4};
  stats.num_blocks_retained = 5;
  stats.block_lifetime.Add(milliseconds(1500), 6);
  stats.block_idle_before_evict.Add(seconds(2000));
  stats.block_reuse_gap.Add(milliseconds(1));
  metrics.Update(stats);
  std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr(Line("prefix_cache_evicted_blocks_total", "", 10)));
  EXPECT_THAT(text, HasSubstr(Evictions("capacity", 1)));
  EXPECT_THAT(text, HasSubstr(Evictions("expired", 2)));
  EXPECT_THAT(text, HasSubstr(Evictions("retained", 3)));
  EXPECT_THAT(text, HasSubstr(Evictions("reset", 4)));
  EXPECT_THAT(text, HasSubstr("\nquire:kv_retained_blocks{engine=\"0\",model_name=\"m\"} 5\n"));
  EXPECT_THAT(text, HasSubstr(Line("kv_block_lifetime_seconds_count", "", 6)));
  EXPECT_THAT(text, HasSubstr(Line("kv_block_lifetime_seconds_sum", "", 9)));
  EXPECT_THAT(text, HasSubstr(Line("kv_block_lifetime_seconds_bucket", ",le=\"1\"", 0)));
  EXPECT_THAT(text, HasSubstr(Line("kv_block_lifetime_seconds_bucket", ",le=\"2\"", 6)));
  EXPECT_THAT(text, HasSubstr(Line("kv_block_idle_before_evict_seconds_bucket", ",le=\"1800\"", 0)));
  EXPECT_THAT(text, HasSubstr(Line("kv_block_idle_before_evict_seconds_bucket", ",le=\"+Inf\"", 1)));
  EXPECT_THAT(text, HasSubstr(Line("kv_block_reuse_gap_seconds_bucket", ",le=\"0.001\"", 1)));

  stats.block_lifetime.Add(seconds(1));
  metrics.Update(stats);
  metrics.Update(stats);  // nothing new
  EXPECT_THAT(metrics.Serialize(), HasSubstr(Line("kv_block_lifetime_seconds_sum", "", 10)));

  // An engine that was started again.
  EngineStats fresh;
  fresh.block_lifetime.Add(seconds(1), 2);
  fresh.block_evictions.reset = 3;  // fewer than before
  metrics.Update(fresh);
  text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr(Line("kv_block_lifetime_seconds_count", "", 9)));
  EXPECT_THAT(text, HasSubstr(Line("kv_block_lifetime_seconds_sum", "", 12)));
  EXPECT_THAT(text, HasSubstr(Evictions("reset", 7)));
}

}  // namespace
}  // namespace quire::server
