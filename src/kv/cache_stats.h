// What became of the blocks of a prefix cache.
#pragma once

#include <cstdint>

#include "base/duration_histogram.h"

namespace quire::kv {

// Counted since the start.
struct CacheStats {
  // Blocks that were given up, by reason.
  std::uint64_t evicted_for_capacity = 0;     // others needed the memory
  std::uint64_t evicted_after_retention = 0;  // likewise; they had been retained, and that time was over
  std::uint64_t evicted_while_retained = 0;   // likewise; they were retained still, but there was nothing else
  std::uint64_t evicted_by_reset = 0;         // somebody asked for it

  // Of blocks that were given up because others needed the memory.
  DurationHistogram lifetime;           // since they came into the cache
  DurationHistogram idle_before_evict;  // since nobody has used them
  // Of blocks that were found: for how long nobody had used them, 0 when somebody did.
  DurationHistogram reuse_gap;

  std::uint64_t num_evicted() const {
    return evicted_for_capacity + evicted_after_retention + evicted_while_retained + evicted_by_reset;
  }
};

}  // namespace quire::kv
