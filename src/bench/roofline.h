// What this machine can do at best: the limits that every speed is quoted as a fraction of. Neighbours on a shared
// machine make them drift by a factor of two within an hour, so they are measured in the same run, interleaved with
// whatever is held against them.
#pragma once

#include <string>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace quire::bench {

enum class Limit {
  kReadBandwidth,  // GB/s from a buffer that no cache holds; eight streams a thread, prefetched
  kInt8,           // GOP/s of vpdpbusd, or of the widest integer dot product there is; 2 operations a product
  kBf16,           // GFLOP/s of vdpbf16ps; 0 where the CPU has none
  kFma,            // GFLOP/s of FP32 Fma in the widest registers
  kInt8Tiles,      // GOP/s of matrix tiles (AMX); 0 where the CPU has none
  kBf16Tiles,      // GFLOP/s, likewise
};

// Measures limits on all threads of a pool. Not thread-safe; the pool runs nothing else meanwhile.
class Roofline {
 public:
  // `buffer_bytes` should be several times the last-level cache.
  static Result<Roofline> Create(ThreadPool* pool, std::size_t buffer_bytes);

  // One measurement of about ten milliseconds.
  double Measure(Limit limit);

 private:
  ThreadPool* pool_ = nullptr;
  AlignedBuffer buffer_;
};

// Medians of `repeats` rounds over all limits.
struct RooflineResult {
  int num_threads = 0;
  double read_gb_per_second = 0;
  double int8_gop_per_second = 0;
  double bf16_gflop_per_second = 0;
  double fma_gflop_per_second = 0;
  double int8_tiles_gop_per_second = 0;
  double bf16_tiles_gflop_per_second = 0;

  std::string ToText() const;  // one line a limit
  std::string ToJson() const;  // one object
};
RooflineResult MeasureRoofline(Roofline* roofline, int num_threads, int repeats);

}  // namespace quire::bench
