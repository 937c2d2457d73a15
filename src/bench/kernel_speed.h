// The kernels over the projections of real models: every format, number of rows and CPU tier as GB/s, GOP/s and as a
// fraction of the machine's limit, which is measured again around every case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace quire::bench {

struct KernelSpeedOptions {
  std::vector<std::string> isas;               // empty: the best tier
  std::vector<kernels::WeightFormat> formats;  // empty: all
  std::vector<std::int64_t> row_counts = {1, 8, 32, 512};
  std::string model;       // empty: all models of kernels::RealProjections()
  std::string projection;  // empty: all but the head, which takes long
  int repeats = 7;
  // Copies of a matrix are walked in turn until this much has been read, so that no cache holds the weights. 0 keeps one
  // copy, whatever the caches then do.
  std::size_t working_set_bytes = std::size_t{512} << 20;
};

// One row of the table.
struct KernelSpeedRow {
  std::string isa, model, projection, format;
  std::int64_t m = 0, n = 0, k = 0;
  int num_threads = 0;
  double microseconds = 0;    // median of one multiplication
  double gb_per_second = 0;   // weights read
  double gop_per_second = 0;  // 2 · m · n · k
  // The time that the larger of both limits (bytes over read bandwidth, operations over the peak of the units that the
  // format uses) would take, over the time taken: median of ratios with the limits measured just before.
  double limit_fraction = 0, limit_fraction_min = 0, limit_fraction_max = 0;
  bool memory_bound = false;  // which of the two limits it was
};

// Fails when a tier cannot run here or memory is short. Panels are split over the threads of `pool` as the engine does.
Result<std::vector<KernelSpeedRow>> RunKernelSpeed(ThreadPool* pool, const KernelSpeedOptions& options);

std::string KernelSpeedText(const std::vector<KernelSpeedRow>& rows);
std::string KernelSpeedJson(const std::vector<KernelSpeedRow>& rows);  // an array of objects

}  // namespace quire::bench
