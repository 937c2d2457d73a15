// Capacity planning: the real scheduler, memory manager and policy on devices that are only reckoned with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/simulation/devices.h"
#include "bench/simulation/replay.h"
#include "bench/simulation/request_trace.h"
#include "bench/simulation/router.h"
#include "sched/scheduler_config.h"

namespace quire::bench {

// What stands on each replica.
struct ReplicaConfig {
  Device device;
  ModelShape model;
  std::optional<MeasuredSteps> measured;  // in the place of the roofline
  double memory_fraction = 0.9;           // of the device's memory that weights, keys and values may take
  std::int64_t kv_memory_bytes = 0;       // 0: what memory_fraction leaves beside the weights
  sched::SchedulerConfig scheduler;       // its num_blocks and vocab_size are set below; max_model_len may be 0

  // The same with everything filled in, or what does not fit. Fields are named as the flags are.
  Result<engine::EngineConfig> Complete() const;
};

struct ClusterConfig {
  int num_replicas = 1;
  RouterKind router = RouterKind::kRoundRobin;
  int max_concurrency = 0;  // of each replica
};

// One point of a curve.
struct SimulationRow {
  ClusterConfig cluster;
  double request_rate = 0;  // a second, to all replicas; 0: all at once
  int num_blocks = 0;       // of each replica
  ReplaySamples samples;    // of all replicas
  Summary ttft, tpot, itl, latency;
  double wall_seconds = 0;  // that the simulation took
};

// `trace` is at the rate that is wanted.
Result<SimulationRow> Simulate(const ReplicaConfig& replica, const ClusterConfig& cluster, const RequestTrace& trace);

struct SimulationReport {
  ReplicaConfig replica;
  std::string workload;
  std::vector<SimulationRow> rows;

  std::string ToTable() const;
  std::string ToJson() const;  // one object; keys end in their units
  std::string ToSvg() const;   // throughput and times against the request rate
};

}  // namespace quire::bench
