#include "nn/attention.h"

#include <algorithm>
#include <atomic>
#include <tuple>

namespace quire::nn {
namespace {

// Queries of one task. More share a pass over the keys' blocks; fewer balance better.
constexpr std::int32_t kQueriesPerTask = 32;

// Keys times queries, which is what a task costs.
std::int64_t Cost(const AttentionSequence& sequence, const AttentionTask& task) {
  return (std::int64_t{sequence.first_position} + task.query_begin + task.num_queries) * task.num_queries;
}

std::size_t RoundToCacheLine(std::size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace

std::size_t MaxAttentionTasks(std::int64_t num_tokens, int num_kv_heads) {
  return static_cast<std::size_t>(num_tokens * num_kv_heads);  // every token may be a sequence of its own
}

std::span<AttentionTask> PlanAttention(std::span<const AttentionSequence> sequences, int num_kv_heads,
                                       AttentionTask* tasks) {
  std::size_t count = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::int32_t begin = 0; begin < sequences[s].num_tokens; begin += kQueriesPerTask) {
      const std::int32_t num_queries = std::min(kQueriesPerTask, sequences[s].num_tokens - begin);
      for (std::int32_t head = 0; head < num_kv_heads; ++head) {
        tasks[count++] = {static_cast<std::int32_t>(s), head, begin, num_queries};
      }
    }
  }
  std::sort(tasks, tasks + count, [&](const AttentionTask& a, const AttentionTask& b) {
    const std::int64_t cost_a = Cost(sequences[static_cast<std::size_t>(a.sequence)], a);
    const std::int64_t cost_b = Cost(sequences[static_cast<std::size_t>(b.sequence)], b);
    return std::tuple(cost_b, a.sequence, a.query_begin, a.kv_head) <
           std::tuple(cost_a, b.sequence, b.query_begin, b.kv_head);
  });
  return {tasks, count};
}

std::size_t AttentionScratchBytes(const kernels::KernelTable& kernels, const kernels::KvLayout& layout, int num_heads,
                                  int num_threads) {
  return RoundToCacheLine(kernels.attention_scratch_bytes(layout, num_heads / layout.num_kv_heads)) *
         static_cast<std::size_t>(num_threads);
}

void RunAttention(const ExecContext& context, const KvPool& kv, int layer, const AttentionShape& shape,
                  std::span<const AttentionSequence> sequences, std::span<const AttentionTask> tasks, const float* q,
                  std::int64_t ld_q, float* out, std::int64_t ld_out, std::byte* scratch) {
  const kernels::KvLayout& layout = kv.layout();
  const int group = shape.num_heads / layout.num_kv_heads;
  const std::size_t scratch_bytes = AttentionScratchBytes(*context.kernels, layout, shape.num_heads, 1);
  const auto run = [&](const AttentionTask& task, int thread) {
    const AttentionSequence& sequence = sequences[static_cast<std::size_t>(task.sequence)];
    const std::int64_t row = std::int64_t{sequence.token_begin} + task.query_begin;
    const std::int64_t column = std::int64_t{task.kv_head} * group * layout.head_dim;
    static_assert(sizeof(BlockId) == sizeof(std::int32_t));  // an array of ids is an array of their values
    context.kernels->attention({.layout = &layout,
                                .pool = kv.data(),
                                .blocks = reinterpret_cast<const std::int32_t*>(sequence.blocks),
                                .layer = layer,
                                .kv_head = task.kv_head,
                                .group = group,
                                .first_position = std::int64_t{sequence.first_position} + task.query_begin,
                                .num_queries = task.num_queries,
                                .q = q + row * ld_q + column,
                                .q_stride = ld_q,
                                .scale = shape.scale,
                                .window = shape.window,
                                .out = out + row * ld_out + column,
                                .out_stride = ld_out,
                                .scratch = scratch + scratch_bytes * static_cast<std::size_t>(thread)});
  };
  if (tasks.size() <= 1 || context.pool->num_threads() == 1) {
    for (const AttentionTask& task : tasks) run(task, 0);
    return;
  }
  // Relaxed: the counter hands out numbers only; the pool orders what the tasks read and write.
  std::atomic<std::size_t> next{0};
  context.pool->Run([&](int thread) {
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks.size();) run(tasks[i], thread);
  });
}

}  // namespace quire::nn
