#include "bench/simulation/step_cost.h"

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

TEST(StepCost, CountsWhatAStepComputes) {
  sched::BatchPlan plan;
  plan.sequences.push_back({.first_position = 9, .num_tokens = 1, .blocks = {}, .samples = true});
  plan.sequences.push_back({.first_position = 4, .num_tokens = 3, .blocks = {}});
  plan.num_tokens = 4;
  const DeviceWork work = WorkOf(plan);
  EXPECT_EQ(work.num_tokens, 4);
  EXPECT_EQ(work.num_sequences, 2);
  EXPECT_EQ(work.num_samples, 1);
  EXPECT_EQ(work.decode_context, 10);
  EXPECT_EQ(work.chunk_pairs, 5 + 6 + 7);
  EXPECT_EQ(work.kv_tokens, 10 + 7);
}

// 1 GFLOP/s and 1 GB/s that are reached in full; 100 weights in layers, 50 in the head, two bytes each.
Device UnitDevice() {
  return {.name = "unit",
          .memory_gb = 1,
          .bandwidth_gb_per_second = 1,
          .tflops = 1e-3,
          .bandwidth_efficiency = 1,
          .flops_efficiency = 1,
          .step_overhead_us = 3,
          .sequence_overhead_us = 2};
}
ModelShape UnitModel() {
  // Attention 5 · 2 · (2 · 1 + 2 · 1) = 40 and MLP 3 · 5 · 4 = 60.
  return {.name = "unit",
          .vocab_size = 10,
          .hidden_size = 5,
          .intermediate_size = 4,
          .num_layers = 1,
          .num_heads = 1,
          .num_kv_heads = 1,
          .head_dim = 2,
          .max_model_len = 64};
}

TEST(StepCost, ARooflineTakesTheSlowerOfMemoryAndArithmetic) {
  EXPECT_EQ(UnitModel().layer_weights(), 100);
  EXPECT_EQ(UnitModel().head_weights(), 50);
  EXPECT_EQ(UnitModel().weight_bytes(), 300);
  EXPECT_EQ(UnitModel().kv_bytes_per_token(), 8);
  const RooflineCost cost(UnitDevice(), UnitModel());
  // In nanoseconds. One token: 200 bytes against 200 operations; the head 100 and 100; keys and values 8 · 3 bytes against
  // 8 · 3 operations.
  EXPECT_NEAR(
      1e9 * cost.Seconds({.num_tokens = 1, .num_sequences = 1, .num_samples = 1, .decode_context = 3, .kv_tokens = 3}),
      3000 + 2000 + 200 + 100 + 24, 1e-6);
  // Ten tokens of one prompt, not sampled: 2,000 operations; 55 pairs of 8 operations against 80 bytes.
  EXPECT_NEAR(1e9 * cost.Seconds({.num_tokens = 10, .num_sequences = 1, .chunk_pairs = 55, .kv_tokens = 10}),
              3000 + 2000 + 2000 + 440, 1e-6);
}

TEST(StepCost, TablesAreInterpolated) {
  const std::vector<std::pair<double, double>> points = {{1, 10}, {2, 14}, {4, 30}};
  EXPECT_EQ(Interpolate(points, 1), 10);
  EXPECT_EQ(Interpolate(points, 2), 14);
  EXPECT_EQ(Interpolate(points, 3), 22);
  EXPECT_EQ(Interpolate(points, 6), 46);           // on the line of the last two
  EXPECT_EQ(Interpolate({{4, 8}}, 3), 6);          // through the origin
  EXPECT_EQ(Interpolate({{2, 1}, {3, 5}}, 1), 0);  // never below
}

TEST(StepCost, WhatWasMeasuredIsAddedUp) {
  const MeasuredCost cost({.device = "d",
                           .model = "m",
                           .how = "",
                           .token_us = {{1, 100}, {3, 120}},
                           .sample_us = {{1, 5}, {2, 7}},
                           .decode_context_us = 0.5,
                           .chunk_pair_us = 0.25});
  EXPECT_NEAR(1e6 * cost.Seconds({.num_tokens = 2, .num_samples = 2, .decode_context = 10, .chunk_pairs = 8}),
              110 + 7 + 5 + 2, 1e-9);
  EXPECT_NEAR(1e6 * cost.Seconds({.num_tokens = 3}), 120, 1e-9);  // nobody samples
}

}  // namespace
}  // namespace quire::bench
