#include "nn/attention.h"

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

namespace quire::nn {
namespace {

constexpr std::int64_t kPartition = kernels::kAttentionPartition;
constexpr std::int64_t kBlocksPerPartition = kPartition / kernels::KvLayout::block_size;
// Queries of one task. More share a pass over the keys' blocks; fewer balance better.
constexpr std::int32_t kQueriesPerTask = 32;
// Rows (queries times heads of a KV head) of a task that joins sequences. The kernel keeps so many in flight: more would
// read the shared keys again.
constexpr std::int64_t kRowsPerTask = 64;
// Fewer rows than a register tile has are not worth a task of their own.
constexpr std::int64_t kRowsPerTaskMin = 8;
constexpr std::int64_t kSequencesPerCall = kRowsPerTask;  // each has one row at least

std::int64_t Cost(const AttentionSequence& sequence, std::int64_t query_begin, std::int64_t num_queries) {
  return (sequence.first_position + query_begin + num_queries) * num_queries;
}

// Whole partitions of the tokens that the sequence has after this step.
std::int64_t NumPartitions(const AttentionSequence& sequence) {
  return (std::int64_t{sequence.first_position} + sequence.num_tokens) / kPartition;
}

// Leading partitions in the same blocks.
std::int64_t NumShared(const AttentionSequence& a, const AttentionSequence& b) {
  const std::int64_t most = std::min(NumPartitions(a), NumPartitions(b)) * kBlocksPerPartition;
  return (std::mismatch(a.blocks, a.blocks + most, b.blocks).first - a.blocks) / kBlocksPerPartition;
}

// Puts sequences that share blocks next to each other, and after them those with too many rows to gain anything.
// Returns how many came first.
std::size_t SortByBlocks(std::span<AttentionSequence> sequences, std::int64_t group) {
  const auto joinable = std::partition(sequences.begin(), sequences.end(), [&](const AttentionSequence& sequence) {
    return sequence.num_tokens * group <= kRowsPerTask && NumPartitions(sequence) > 0;
  });
  std::sort(sequences.begin(), joinable, [](const AttentionSequence& a, const AttentionSequence& b) {
    const std::int64_t a_blocks = NumPartitions(a) * kBlocksPerPartition;
    const std::int64_t b_blocks = NumPartitions(b) * kBlocksPerPartition;
    return std::lexicographical_compare(a.blocks, a.blocks + a_blocks, b.blocks, b.blocks + b_blocks);
  });
  return static_cast<std::size_t>(joinable - sequences.begin());
}

class Planner {
 public:
  Planner(std::span<AttentionSequence> sequences, const AttentionHeads& heads, int num_threads, AttentionTask* tasks)
      : sequences_(sequences),
        group_(heads.num_heads / heads.num_kv_heads),
        num_kv_heads_(heads.num_kv_heads),
        num_threads_(num_threads),
        tasks_(tasks) {}

  std::span<AttentionTask> Plan() {
    for (AttentionSequence& sequence : sequences_) sequence.shared_partitions = 0;
    const std::size_t num_joinable = sequences_.size() > 1 ? SortByBlocks(sequences_, group_) : 0;
    for (std::size_t s = 1; s < num_joinable; ++s) {
      sequences_[s].shared_partitions = static_cast<std::int32_t>(NumShared(sequences_[s - 1], sequences_[s]));
    }
    for (std::size_t begin = 0; begin < sequences_.size();) {
      std::size_t end = begin + 1;
      while (end < sequences_.size() && sequences_[end].shared_partitions > 0) ++end;
      end - begin == 1 ? CutSequence(begin) : CutRun(begin, end);
      begin = end;
    }
    std::sort(tasks_, tasks_ + count_, [](const AttentionTask& a, const AttentionTask& b) {
      return std::tuple(b.cost, a.sequence, a.query_begin, a.kv_head) <
             std::tuple(a.cost, b.sequence, b.query_begin, b.kv_head);
    });
    return {tasks_, count_};
  }

 private:
  void Add(AttentionTask task) {
    for (task.kv_head = 0; task.kv_head < num_kv_heads_; ++task.kv_head) tasks_[count_++] = task;
  }

  void CutSequence(std::size_t index) {
    const AttentionSequence& sequence = sequences_[index];
    for (std::int32_t begin = 0; begin < sequence.num_tokens; begin += kQueriesPerTask) {
      const std::int32_t num_queries = std::min(kQueriesPerTask, sequence.num_tokens - begin);
      Add({.sequence = static_cast<std::int32_t>(index),
           .query_begin = begin,
           .num_queries = num_queries,
           .cost = Cost(sequence, begin, num_queries)});
    }
  }

  // Sequences [begin, end), each of which shares something with the one before: parts of nearly equal numbers, so
  // many that the rows of each are in flight together and all threads have work.
  void CutRun(std::size_t begin, std::size_t end) {
    const auto num_sequences = static_cast<std::int64_t>(end - begin);
    std::int64_t rows = 0;
    for (std::size_t s = begin; s < end; ++s) rows += sequences_[s].num_tokens * group_;
    const std::int64_t for_threads = (2 * num_threads_ + num_kv_heads_ - 1) / num_kv_heads_;
    const std::int64_t worthwhile = std::max<std::int64_t>(1, rows / kRowsPerTaskMin);
    const std::int64_t in_flight = (rows + kRowsPerTask - 1) / kRowsPerTask;
    const std::int64_t parts =
        std::min(num_sequences, std::max(in_flight, num_threads_ > 1 ? std::min(for_threads, worthwhile) : 1));
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto first = begin + static_cast<std::size_t>(num_sequences * part / parts);
      const auto last = begin + static_cast<std::size_t>(num_sequences * (part + 1) / parts);
      if (last - first == 1) {
        CutSequence(first);
        continue;
      }
      AttentionTask task{.sequence = static_cast<std::int32_t>(first),
                         .num_sequences = static_cast<std::int32_t>(last - first)};
      for (std::size_t s = first; s < last; ++s) task.cost += Cost(sequences_[s], 0, sequences_[s].num_tokens);
      Add(task);
    }
  }

  std::span<AttentionSequence> sequences_;
  std::int64_t group_;
  int num_kv_heads_;
  int num_threads_;
  AttentionTask* tasks_;
  std::size_t count_ = 0;
};

std::size_t RoundToCacheLine(std::size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace

std::size_t MaxAttentionTasks(std::int64_t num_tokens, int num_kv_heads) {
  return static_cast<std::size_t>(num_tokens * num_kv_heads);  // every token may be a sequence of its own
}

std::span<AttentionTask> PlanAttention(std::span<AttentionSequence> sequences, const AttentionHeads& heads,
                                       int num_threads, AttentionTask* tasks) {
  return Planner(sequences, heads, num_threads, tasks).Plan();
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
    static_assert(sizeof(BlockId) == sizeof(std::int32_t));  // an array of ids is an array of their values
    const std::int64_t column = std::int64_t{task.kv_head} * group * layout.head_dim;
    kernels::AttentionQueries queries[kSequencesPerCall];
    const auto call = [&](std::int64_t count) {
      context.kernels->attention({.layout = &layout,
                                  .pool = kv.data(),
                                  .sequences = queries,
                                  .num_sequences = count,
                                  .layer = layer,
                                  .kv_head = task.kv_head,
                                  .group = group,
                                  .q_stride = ld_q,
                                  .out_stride = ld_out,
                                  .scale = shape.scale,
                                  .window = shape.window,
                                  .scratch = scratch + scratch_bytes * static_cast<std::size_t>(thread)});
    };
    std::int64_t count = 0;
    for (std::int32_t s = task.sequence; s < task.sequence + task.num_sequences; ++s) {
      const AttentionSequence& sequence = sequences[static_cast<std::size_t>(s)];
      const std::int64_t row = std::int64_t{sequence.token_begin} + task.query_begin;
      queries[count++] = {.blocks = reinterpret_cast<const std::int32_t*>(sequence.blocks),
                          .first_position = std::int64_t{sequence.first_position} + task.query_begin,
                          .num_queries = task.num_sequences == 1 ? task.num_queries : sequence.num_tokens,
                          .q = q + row * ld_q + column,
                          .out = out + row * ld_out + column,
                          .shared_partitions = sequence.shared_partitions};
      if (count == kSequencesPerCall) call(std::exchange(count, 0));
    }
    if (count > 0) call(count);
  };
  if (tasks.size() <= 1 || context.pool->num_threads() == 1) {
    for (const AttentionTask& task : tasks) run(task, 0);
    return;
  }
  // Relaxed: the counter hands out numbers only; the pool orders what the tasks read and write.
  std::atomic<std::size_t> next{0};
  RunOnPool(context, [&](int thread) {
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks.size();) run(tasks[i], thread);
  });
}

}  // namespace quire::nn
