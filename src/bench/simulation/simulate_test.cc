#include "bench/simulation/simulate.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace quire::bench {
namespace {

ReplicaConfig Replica() {
  const DeviceFile file = DeviceFile::BuiltIn();
  return {
      .device = **file.FindDevice("h100"), .model = **file.FindModel("llama-3.1-8b"), .measured = {}, .scheduler = {}};
}

TEST(Simulate, ThePoolIsWhatTheWeightsLeave) {
  ReplicaConfig replica = Replica();
  auto config = replica.Complete();
  ASSERT_TRUE(config) << config.error().message;
  // 72 GB without 15.01 GB of weights hold 56.99 GB / (131,072 · 16) blocks.
  EXPECT_EQ(config->scheduler.num_blocks, 27175);
  EXPECT_EQ(config->scheduler.max_model_len, 131072);
  replica.kv_memory_bytes = 131072 * 160;
  config = replica.Complete();
  EXPECT_EQ(config->scheduler.num_blocks, 10);
  EXPECT_EQ(config->scheduler.max_model_len, 160);
}

TEST(Simulate, WhatDoesNotFitIsSaid) {
  const auto param = [](auto change) {
    ReplicaConfig replica = Replica();
    change(&replica);
    const auto config = replica.Complete();
    return config ? std::string() : config.error().param;
  };
  EXPECT_EQ(param([](ReplicaConfig* r) { r->device.memory_gb = 16; }), "kv-memory");
  EXPECT_EQ(param([](ReplicaConfig* r) { r->kv_memory_bytes = std::int64_t{80'000'000'000}; }), "kv-memory");
  EXPECT_EQ(param([](ReplicaConfig* r) { r->memory_fraction = 0; }), "memory-fraction");
  EXPECT_EQ(param([](ReplicaConfig* r) { r->scheduler.max_model_len = 1 << 20; }), "max-model-len");
  EXPECT_EQ(param([](ReplicaConfig* r) {
              r->kv_memory_bytes = 131072 * 160;
              r->scheduler.max_model_len = 161;
            }),
            "max-model-len");
  EXPECT_EQ(param([](ReplicaConfig* r) { r->scheduler.max_num_seqs = 0; }), "max_num_seqs");
  EXPECT_EQ(Simulate(Replica(), {.num_replicas = 0}, MakeTrace({})).error().param, "replicas");
}

TEST(Simulate, IsDeterministicAndFasterThanRealTime) {
  RequestTrace trace = MakeTrace({.num_prompts = 300, .length_cv = 0.5});
  trace.SetRate(10);
  const auto row = Simulate(Replica(), {}, trace);
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->samples.num_finished, 300);
  EXPECT_LT(row->wall_seconds, row->samples.duration_seconds);
  const auto again = Simulate(Replica(), {}, trace);
  EXPECT_EQ(row->ttft.p99, again->ttft.p99);
  EXPECT_EQ(row->samples.duration_seconds, again->samples.duration_seconds);
}

// Two replicas with half of the requests each do what one does with that half.
TEST(Simulate, ReplicasAreIndependent) {
  RequestTrace trace = MakeTrace({.num_prompts = 40});
  trace.SetRate(0);
  RequestTrace half = trace;
  half.requests.resize(20);
  const auto two = Simulate(Replica(), {.num_replicas = 2}, trace);
  const auto one = Simulate(Replica(), {}, half);
  EXPECT_EQ(two->samples.num_finished, 40);
  EXPECT_EQ(two->samples.duration_seconds, one->samples.duration_seconds);
  EXPECT_EQ(two->ttft.p50, one->ttft.p50);
}

TEST(Simulate, AThousandReplicas) {
  RequestTrace trace = MakeTrace({.num_prompts = 4000, .input_len = 256, .output_len = 16});
  trace.SetRate(4000);
  const auto row = Simulate(Replica(), {.num_replicas = 1000}, trace);
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->samples.num_finished, 4000);
}

TEST(Simulate, PrefixAffinityFindsMoreInTheCaches) {
  RequestTrace trace =
      MakeTrace({.num_prompts = 400, .input_len = 1024, .output_len = 16, .prefix_len = 896, .num_prefixes = 32});
  trace.SetRate(40);
  const auto blind = Simulate(Replica(), {.num_replicas = 8}, trace);
  const auto affine = Simulate(Replica(), {.num_replicas = 8, .router = RouterKind::kPrefixAffinity}, trace);
  EXPECT_GT(affine->samples.hit_rate(), blind->samples.hit_rate() + 0.2);
  EXPECT_LT(affine->ttft.mean, blind->ttft.mean);
}

TEST(Simulate, WithAReservationFewerRunTogether) {
  ReplicaConfig replica = Replica();
  replica.scheduler.max_model_len = 2048;
  replica.scheduler.enable_prefix_caching = false;
  replica.kv_memory_bytes = std::int64_t{131072} * 2048 * 8;
  RequestTrace trace = MakeTrace({.num_prompts = 100, .input_len = 200, .output_len = 200});
  trace.SetRate(0);
  const auto paged = Simulate(replica, {}, trace);
  replica.scheduler.ablations.reserve_max_model_len = true;
  const auto reserved = Simulate(replica, {}, trace);
  EXPECT_EQ(reserved->samples.steps.max_sequences, 8);
  EXPECT_GT(paged->samples.steps.max_sequences, 40);
  EXPECT_GT(paged->samples.output_tokens_per_second(), 2 * reserved->samples.output_tokens_per_second());
}

TEST(Simulate, WhatWasMeasuredTakesThePlaceOfTheRoofline) {
  ReplicaConfig replica = Replica();
  replica.measured = MeasuredSteps{.token_us = {{1, 1000}}, .sample_us = {{1, 0}}};
  RequestTrace trace = MakeTrace({.num_prompts = 1, .input_len = 100, .output_len = 11});
  const auto row = Simulate(replica, {}, trace);
  EXPECT_NEAR(row->samples.duration_seconds, 0.11, 1e-9);
}

TEST(Simulate, AReportSaysTheSameInAllForms) {
  SimulationReport report{.replica = Replica(), .workload = "some", .rows = {}};
  RequestTrace trace = MakeTrace({.num_prompts = 50});
  for (const double rate : {1.0, 50.0}) {
    trace.SetRate(rate);
    report.rows.push_back(*Simulate(report.replica, {}, trace));
  }
  const auto json = ParseJson(report.ToJson(), "report");
  ASSERT_TRUE(json) << json.error().message;
  const json::object& row = json->at("rows").at(1).as_object();
  EXPECT_EQ(row.at("finished").as_int64(), 50);
  EXPECT_NEAR(row.at("request_rate").to_number<double>(), 50, 1e-6);
  EXPECT_EQ(row.at("ttft_seconds").at("p50").to_number<double>(), report.rows[1].ttft.p50);
  EXPECT_NE(report.ToTable().find("llama-3.1-8b on h100"), std::string::npos);
  EXPECT_NE(report.ToTable().find("50.00"), std::string::npos);
  const std::string svg = report.ToSvg();
  EXPECT_TRUE(svg.starts_with("<svg")) << svg.substr(0, 20);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace quire::bench
