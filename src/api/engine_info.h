// What an engine says about itself: once when it is ready (EngineInfo), and whenever it is asked (EngineStats).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  std::uint64_t prefix_cache_queries = 0;  // tokens looked up
  std::uint64_t prefix_cache_hits = 0;     // tokens found
  std::uint64_t prefix_cache_evicted_blocks = 0;
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
};

inline constexpr int kStepTokenBuckets[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

}  // namespace quire
