#include "bench/simulation/step_cost.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace quire::bench {

DeviceWork WorkOf(const sched::BatchPlan& plan) {
  DeviceWork work;
  work.num_tokens = plan.num_tokens;
  work.num_sequences = static_cast<int>(plan.sequences.size());
  for (const sched::ScheduledSequence& scheduled : plan.sequences) {
    const double first = scheduled.first_position, count = scheduled.num_tokens;
    work.num_samples += scheduled.samples ? 1 : 0;
    work.kv_tokens += first + count;
    if (scheduled.num_tokens == 1) {
      work.decode_context += first + 1;
    } else {
      work.chunk_pairs += count * first + count * (count + 1) / 2;
    }
  }
  return work;
}

RooflineCost::RooflineCost(const Device& device, const ModelShape& model)
    : flops_per_second_(device.tflops * 1e12 * device.flops_efficiency),
      bytes_per_second_(device.bandwidth_gb_per_second * 1e9 * device.bandwidth_efficiency),
      layer_weights_(model.layer_weights()),
      head_weights_(model.head_weights()),
      weight_bytes_(model.weight_bits / 8),
      kv_bytes_(model.kv_bytes_per_token()),
      attention_flops_(4.0 * model.num_layers * model.num_heads * model.head_dim),
      step_seconds_(device.step_overhead_us * 1e-6),
      sequence_seconds_(device.sequence_overhead_us * 1e-6) {}

double RooflineCost::Seconds(const DeviceWork& work) const {
  const auto part = [&](double flops, double bytes) {
    return std::max(flops / flops_per_second_, bytes / bytes_per_second_);
  };
  double seconds = step_seconds_ + sequence_seconds_ * work.num_sequences;
  seconds += part(2 * layer_weights_ * work.num_tokens, layer_weights_ * weight_bytes_);
  if (work.num_samples > 0) seconds += part(2 * head_weights_ * work.num_samples, head_weights_ * weight_bytes_);
  return seconds + part(attention_flops_ * (work.decode_context + work.chunk_pairs), kv_bytes_ * work.kv_tokens);
}

double MeasuredCost::Seconds(const DeviceWork& work) const {
  const double seconds = Interpolate(steps_.token_us, work.num_tokens) +
                         (work.num_samples > 0 ? Interpolate(steps_.sample_us, work.num_samples) : 0) +
                         steps_.decode_context_us * work.decode_context + steps_.chunk_pair_us * work.chunk_pairs;
  return seconds * 1e-6;
}

double Interpolate(const std::vector<std::pair<double, double>>& points, double x) {
  CHECK(!points.empty());
  if (points.size() == 1) return points[0].second * x / points[0].first;
  const auto above = std::ranges::lower_bound(points, x, {}, &std::pair<double, double>::first);
  const auto right = std::clamp<std::ptrdiff_t>(above - points.begin(), 1, std::ssize(points) - 1);
  const auto& [x0, y0] = points[static_cast<std::size_t>(right - 1)];
  const auto& [x1, y1] = points[static_cast<std::size_t>(right)];
  return std::max(0.0, y0 + (y1 - y0) * (x - x0) / (x1 - x0));
}

}  // namespace quire::bench
