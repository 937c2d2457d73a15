// What the steps of a real engine cost on this machine, measured part by part, and whether simulations that compute with it
// come out as real runs do.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/simulation/devices.h"
#include "bench/simulation/replay.h"
#include "engine/loader.h"

namespace quire::bench {

struct CalibrationOptions {
  int max_num_seqs = 32;              // sequences of a step, up to which is measured
  int max_num_batched_tokens = 1024;  // tokens of a step, likewise
  int repeats = 7;                    // of each step; medians count

  // kInvalidArgument names the field.
  Result<> Validate() const;
};

// Steps of the model with the real ModelRunner. Nothing else should run meanwhile. The names are left to the caller.
Result<MeasuredSteps> MeasureSteps(const engine::LoadedModel& loaded, const CalibrationOptions& options);

// The model's shape, with the bits that its weights and its cache really take.
ModelShape ShapeOf(const engine::LoadedModel& loaded, std::string name);

// A workload, once for real and once simulated.
struct CheckRow {
  std::string workload;
  ReplaySamples real, simulated;

  // Deviations of the simulation, as fractions of the real run.
  double throughput_error() const;
  double ttft_error() const;  // of the medians
  double tpot_error() const;
};
struct CheckReport {
  std::vector<CheckRow> rows;
  static constexpr double kTolerance = 0.15;

  // Throughput and median TTFT of every workload are within the tolerance.
  bool ok() const;
  std::string ToTable() const;
  std::string ToJson() const;
};
// Several closed loops, Poisson arrivals at 60 % of what the engine can do, and a shared prefix.
Result<CheckReport> CheckSimulation(const engine::LoadedModel& loaded, const MeasuredSteps& steps,
                                    const CalibrationOptions& options);

}  // namespace quire::bench
