// How a kernel is timed: calls of it and the limits of the machine in turn. The kernels themselves are in
// kernel_speed_*.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/kernel_speed.h"
#include "bench/roofline.h"
#include "kernels/kernel_cases.h"

namespace quire::bench {

// One case of one kernel. `run` calls it once on all threads, on other memory than the call before; its buffers are
// those of whoever made the job.
struct KernelJob {
  KernelCase what;
  double bytes = 0, operations = 0;  // of one call, at least
  Limit peak = Limit::kFma;          // of the units that compute it
  std::function<void()> run;
};

class KernelMeter {
 public:
  // Both outlive it.
  KernelMeter(ThreadPool* pool, Roofline* roofline, int repeats)
      : pool_(pool), roofline_(roofline), repeats_(repeats) {}

  ThreadPool* pool() const { return pool_; }

  // Measures the jobs in turn, round after round, and adds a row for each. Of several, the speed of each but the last is
  // compared with that of the last one.
  void Measure(std::span<const KernelJob> jobs);

  std::vector<KernelSpeedRow> TakeRows() { return std::move(rows_); }

 private:
  ThreadPool* const pool_;
  Roofline* const roofline_;
  const int repeats_;
  std::vector<KernelSpeedRow> rows_;
};

using KernelTables = std::span<const kernels::KernelTable* const>;

// Each measures what `options` asks for of it, on every tier of `tables`.
Result<> MeasureGemm(const KernelSpeedOptions& options, KernelTables tables, KernelMeter* meter);
Result<> MeasureAttention(const KernelSpeedOptions& options, KernelTables tables, KernelMeter* meter);
Result<> MeasureStoreKv(const KernelSpeedOptions& options, KernelTables tables, KernelMeter* meter);
// All others, by name.
Result<> MeasureRowKernel(std::string_view kernel, const KernelSpeedOptions& options, KernelTables tables,
                          KernelMeter* meter);

// Whether the options ask for this model.
inline bool Wanted(const KernelSpeedOptions& options, std::string_view model) {
  return options.model.empty() || options.model == model;
}
// How many copies of `bytes` the working set holds, at least one.
inline std::size_t NumCopies(const KernelSpeedOptions& options, std::size_t bytes) {
  return std::max<std::size_t>(1, options.working_set_bytes / bytes);
}
// The types of keys and values that they ask for.
std::vector<kernels::KvDtype> WantedKvDtypes(const KernelSpeedOptions& options);
// Of blocks with as many layers as the working set holds.
kernels::KvLayout LayoutInWorkingSet(const kernels::ModelShape& model, kernels::KvDtype dtype, std::int32_t num_blocks,
                                     const KernelSpeedOptions& options);
// −1 … 1, the same for the same i.
inline float Pattern(std::size_t i) {
  return static_cast<float>(i * 2654435761 % 1000) * 2e-3f - 1;
}
inline std::size_t Size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

}  // namespace quire::bench
