// Causal paged attention of a flat batch of tokens, spread over the threads. The kernel computes consecutive queries of
// one sequence, or of several whose leading blocks are the same, for the query heads of one KV head; here a step is cut
// into such tasks. How it is cut never changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/strong_id.h"
#include "nn/exec_context.h"
#include "nn/kv_pool.h"

namespace quire::nn {

// Consecutive tokens of one sequence in a flat batch.
struct AttentionSequence {
  std::int32_t token_begin = 0;  // its first token in the batch
  std::int32_t num_tokens = 0;
  std::int32_t first_position = 0;  // of that token in the sequence
  const BlockId* blocks = nullptr;  // of the sequence from position 0, enough for all its positions
  // Filled by PlanAttention: leading partitions of 256 positions in the same blocks as the sequence before it.
  std::int32_t shared_partitions = 0;
};

// Either some queries of one sequence, or all queries of several sequences that follow each other.
struct AttentionTask {
  std::int32_t sequence = 0;  // the first
  std::int32_t num_sequences = 1;
  std::int32_t kv_head = 0;
  std::int32_t query_begin = 0;  // within the sequence's tokens of this batch
  std::int32_t num_queries = 0;  // of a single sequence
  std::int64_t cost = 0;         // keys times queries
};

// An upper bound of the tasks of any batch with this many tokens.
std::size_t MaxAttentionTasks(std::int64_t num_tokens, int num_kv_heads);

struct AttentionHeads {
  int num_heads = 0;
  int num_kv_heads = 0;
};

// Cuts a batch into tasks, the costly ones first, so that the threads finish together. Sequences with few queries whose
// first partitions lie in the same blocks are put next to each other (`sequences` is sorted) and into one task, which
// reads those once for all of them. `tasks` has room for MaxAttentionTasks(); returns the part that was filled. The same
// tasks serve every layer.
std::span<AttentionTask> PlanAttention(std::span<AttentionSequence> sequences, const AttentionHeads& heads,
                                       int num_threads, AttentionTask* tasks);

struct AttentionShape {
  int num_heads = 0;
  float scale = 1;          // multiplies q · k
  std::int64_t window = 0;  // 0: all earlier tokens are seen
};

// Bytes of scratch memory for all threads.
std::size_t AttentionScratchBytes(const kernels::KernelTable& kernels, const kernels::KvLayout& layout, int num_heads,
                                  int num_threads);

// out [num_tokens, num_heads · head_dim] (row stride ld_out) = attention of q (row stride ld_q) against the
// keys and values of `layer` in `kv`, which must hold those of this batch already. `scratch` is 64-byte
// aligned.
void RunAttention(const ExecContext& context, const KvPool& kv, int layer, const AttentionShape& shape,
                  std::span<const AttentionSequence> sequences, std::span<const AttentionTask> tasks, const float* q,
                  std::int64_t ld_q, float* out, std::int64_t ld_out, std::byte* scratch);

}  // namespace quire::nn
