// The kernels on the sizes of real models: every kernel, format, number of rows and CPU tier as GB/s, GOP/s and as a
// fraction of the machine's limit, which is measured again around every case.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace quire::bench {

// Names of the kernels of the table, in the order in which they are measured.
std::span<const std::string_view> MeasuredKernels();

struct KernelSpeedOptions {
  std::vector<std::string> isas;                           // empty: the best tier
  std::vector<std::string> kernel_names = {"gemm"};        // of MeasuredKernels()
  std::vector<kernels::WeightFormat> formats;              // of the GEMM; empty: all
  std::vector<std::int64_t> row_counts = {1, 8, 32, 512};  // of all kernels but attention
  std::string model;                                       // of kernels::RealModels(); empty: all
  std::string projection;                                  // of the GEMM; empty: all but the head, which takes long
  // Of the keys and values that attention reads and store_kv writes; empty: all.
  std::vector<kernels::KvDtype> kv_dtypes;
  // Of attention: every number of sequences of every length, whose last tokens are the queries, with every prefix that
  // is shorter than the length. Sequences over a common prefix are measured twice in turn: as a step computes them, and
  // as it would if each were alone in it.
  std::vector<std::int64_t> sequence_counts = {1, 32};
  std::vector<std::int64_t> contexts = {1088};
  std::vector<std::int64_t> query_counts = {1};  // of each sequence
  std::vector<std::int64_t> prefixes = {0, 1024};
  int repeats = 7;
  // Copies of what a kernel reads are walked in turn until this much has been read, so that no cache holds it. 0 keeps
  // one copy, whatever the caches then do.
  std::size_t working_set_bytes = std::size_t{512} << 20;
};

// What was measured. Fields that a kernel has no use for are empty.
struct KernelCase {
  std::string isa, kernel, model;
  std::string projection;                       // of the GEMM
  std::string format;                           // of weights, of prepared activations, of keys and values
  std::int64_t m = 0;                           // rows; of attention, queries of all sequences
  std::int64_t n = 0, k = 0;                    // outputs and inputs of the GEMM; else n elements a row
  std::int64_t num_sequences = 0, context = 0;  // of attention
  std::int64_t prefix = 0;                      // tokens that all sequences have in the same blocks
  bool grouped = false;                         // attention reads those once for several sequences
  int num_threads = 0;
};

// One row of the table.
struct KernelSpeedRow : KernelCase {
  double microseconds = 0;    // median of one call
  double gb_per_second = 0;   // what must be read and written at least
  double gop_per_second = 0;  // additions, multiplications, divisions, comparisons and exponentials
  // The time that the larger of both limits (bytes over read bandwidth, operations over the peak of the units that the
  // kernel uses) would take, over the time taken: median of ratios with the limits measured just before.
  double limit_fraction = 0, limit_fraction_min = 0, limit_fraction_max = 0;
  bool memory_bound = false;  // which of the two limits it was
  // How much faster grouped sequences are than the same ones each alone: median of ratios in turn; 0: not measured.
  double speedup = 0, speedup_min = 0, speedup_max = 0;
};

// Fails when a tier cannot run here or memory is short. Work is split over the threads of `pool` as the engine does.
Result<std::vector<KernelSpeedRow>> RunKernelSpeed(ThreadPool* pool, const KernelSpeedOptions& options);

std::string KernelSpeedText(const std::vector<KernelSpeedRow>& rows);
std::string KernelSpeedJson(const std::vector<KernelSpeedRow>& rows);  // an array of objects

}  // namespace quire::bench
