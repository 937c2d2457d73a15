// How long a step takes: from the limits of a device (a roofline), or from what was measured of a real engine.
#pragma once

#include <utility>
#include <vector>

#include "bench/simulation/devices.h"
#include "sched/batch_plan.h"

namespace quire::bench {

// What a step computes, in counts that its time is a function of.
struct DeviceWork {
  int num_tokens = 0;
  int num_sequences = 0;
  int num_samples = 0;        // rows that need logits
  double decode_context = 0;  // tokens attended to by sequences that run a single token
  double chunk_pairs = 0;     // (token, token attended to) of those that run more
  double kv_tokens = 0;       // whose keys and values are read, once for each sequence
};
DeviceWork WorkOf(const sched::BatchPlan& plan);

class StepCost {
 public:
  virtual ~StepCost() = default;
  virtual double Seconds(const DeviceWork& work) const = 0;
};

// The matrices are read once and multiplied with every row, the keys and values are read once for each sequence; each
// part takes as long as the slower of arithmetic and memory, and the parts come one after the other.
class RooflineCost final : public StepCost {
 public:
  RooflineCost(const Device& device, const ModelShape& model);
  double Seconds(const DeviceWork& work) const override;

 private:
  double flops_per_second_, bytes_per_second_;  // what is reached of the limits
  double layer_weights_, head_weights_;         // numbers of weights
  double weight_bytes_, kv_bytes_;              // of one weight, of one token
  double attention_flops_;                      // of a pair of tokens
  double step_seconds_, sequence_seconds_;      // that pass whatever is computed
};

// Measured tables, interpolated: of tokens, of rows that are sampled; and lines for attention.
class MeasuredCost final : public StepCost {
 public:
  explicit MeasuredCost(const MeasuredSteps& steps) : steps_(steps) {}
  double Seconds(const DeviceWork& work) const override;

 private:
  const MeasuredSteps steps_;
};

// Piecewise linear through points with ascending x; beyond the last one, on the line of the last two. A single point is a
// line through the origin.
double Interpolate(const std::vector<std::pair<double, double>>& points, double x);

}  // namespace quire::bench
