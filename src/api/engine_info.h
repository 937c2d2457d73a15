// What an engine says about itself: once when it is ready (EngineInfo), and whenever it is asked (EngineStats).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/duration_histogram.h"
#include "base/strong_id.h"

namespace quire {

struct EngineInfo {
  std::string model_path;
  std::string architecture;    // "Qwen3ForCausalLM"
  std::string weight_formats;  // "BF16", "Q4_K + Q6_K"
  std::string isa;             // the kernel tier
  std::int64_t num_parameters = 0;
  std::int64_t weight_bytes = 0;  // packed
  int num_threads = 0;
  int vocab_size = 0;
  int max_model_len = 0;
  int block_size = 0;  // tokens
  int num_blocks = 0;
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  std::string kv_dtype;
  double load_seconds = 0;
  std::string scheduling_policy;  // "fcfs", "slo"; some fields of requests need a certain one
};

// A place below the KV pool where blocks are kept.
enum class KvTierKind : std::uint8_t { kMemory, kDisk, kRedis };
inline constexpr KvTierKind kKvTierKinds[] = {KvTierKind::kMemory, KvTierKind::kDisk, KvTierKind::kRedis};

constexpr std::string_view KvTierName(KvTierKind kind) {
  switch (kind) {
    case KvTierKind::kMemory:
      return "memory";
    case KvTierKind::kDisk:
      return "disk";
    case KvTierKind::kRedis:
      return "redis";
  }
  return "";
}

struct KvTierStats {
  KvTierKind kind = KvTierKind::kMemory;
  std::int64_t num_blocks = 0;  // kept now, as far as the tier knows
  std::int64_t num_bytes = 0;
  std::uint64_t hits = 0;    // blocks that were read
  std::uint64_t misses = 0;  // that were gone when they were to be read
  std::uint64_t stored = 0;  // that were written
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t errors = 0;     // of the disk or the connection
  std::uint64_t damaged = 0;    // entries that were dropped because their checksum or size was wrong
  std::uint64_t evictions = 0;  // for want of room

  friend bool operator==(const KvTierStats&, const KvTierStats&) = default;
};

// Blocks of the prefix cache that were given up, by reason.
struct BlockEvictions {
  std::uint64_t capacity = 0;  // others needed the memory
  std::uint64_t expired = 0;   // likewise; the time for which they had been retained was over
  std::uint64_t retained = 0;  // likewise; they were retained still, but there was nothing else
  std::uint64_t reset = 0;     // somebody asked for it

  friend bool operator==(const BlockEvictions&, const BlockEvictions&) = default;
};

// Gauges are of now, counters since the engine started.
struct EngineStats {
  int num_requests_running = 0;
  int num_requests_waiting = 0;
  int num_blocks_total = 0;
  int num_blocks_free = 0;    // never used or evicted
  int num_blocks_cached = 0;  // held by the prefix cache only: can be had
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generation_tokens = 0;
  std::uint64_t prefix_cache_queries = 0;         // tokens looked up
  std::uint64_t prefix_cache_hits = 0;            // tokens found
  std::uint64_t tier_hits = 0;                    // tokens that were not, and came from a lower tier
  std::uint64_t prefix_cache_evicted_blocks = 0;  // for any reason
  BlockEvictions block_evictions;
  int num_blocks_retained = 0;  // of the prefix cache, whether requests use them or not
  // Of blocks that were given up because others needed the memory: since they were cached, and since their last use.
  DurationHistogram block_lifetime, block_idle_before_evict;
  DurationHistogram block_reuse_gap;  // of blocks that were found: since their last use, 0 when they were in use
  std::uint64_t preemptions = 0;
  int num_swap_blocks_total = 0;
  int num_swap_blocks_used = 0;        // by preempted sequences
  std::uint64_t swap_preemptions = 0;  // of the preemptions, those that saved keys and values
  std::uint64_t swapped_out_blocks = 0;
  std::uint64_t swapped_in_blocks = 0;
  std::uint64_t steps = 0;
  // Counts of steps by number of tokens in the step; bucket i holds steps with at most kStepTokenBuckets[i] tokens
  // and more than the one before; one more bucket for the rest.
  std::vector<std::uint64_t> step_tokens_histogram;
  std::uint64_t step_tokens_sum = 0;
  std::vector<KvTierStats> kv_tiers;       // in the order in which they are asked
  std::uint64_t kv_tier_backlog_lost = 0;  // blocks that were evicted before they could be written to a tier
  std::int64_t num_queued_tokens = 0;      // a gauge: prompt tokens of requests that never ran
  std::uint64_t requests_shed = 0;         // that never ran, because they would have been late
  std::uint64_t queue_timeouts = 0;        // that never ran, because they had waited too long
};

inline constexpr int kStepTokenBuckets[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

}  // namespace quire
