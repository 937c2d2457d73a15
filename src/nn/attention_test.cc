#include "nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "kernels/kernel_cases.h"
#include "kernels/kernels_test_util.h"

namespace quire::nn {
namespace {

constexpr std::int32_t kBlockSize = kernels::KvLayout::block_size;

// How often each query of a batch [num_tokens, num_kv_heads] is computed.
std::vector<int> Coverage(std::span<const AttentionSequence> sequences, std::span<const AttentionTask> tasks,
                          int num_tokens, int num_kv_heads) {
  std::vector<int> seen(static_cast<std::size_t>(num_tokens * num_kv_heads));
  for (const AttentionTask& task : tasks) {
    for (std::int32_t s = task.sequence; s < task.sequence + task.num_sequences; ++s) {
      const AttentionSequence& sequence = sequences[static_cast<std::size_t>(s)];
      const std::int32_t count = task.num_sequences == 1 ? task.num_queries : sequence.num_tokens;
      for (std::int32_t i = 0; i < count; ++i) {
        ++seen[static_cast<std::size_t>((sequence.token_begin + task.query_begin + i) * num_kv_heads + task.kv_head)];
      }
    }
  }
  return seen;
}

TEST(AttentionPlanTest, TasksCoverEveryQueryOnceCostlyFirst) {
  std::vector<AttentionSequence> sequences{
      {.token_begin = 0, .num_tokens = 1, .first_position = 5000},
      {.token_begin = 1, .num_tokens = 70, .first_position = 0},
      {.token_begin = 71, .num_tokens = 33, .first_position = 900},
  };
  std::vector<AttentionTask> memory(MaxAttentionTasks(104, 3));
  const auto tasks = PlanAttention(sequences, {.num_heads = 24, .num_kv_heads = 3}, 2, memory.data());
  EXPECT_THAT(Coverage(sequences, tasks, 104, 3), testing::Each(1));
  std::int64_t last = INT64_MAX;
  for (const AttentionTask& task : tasks) {
    const AttentionSequence& sequence = sequences[static_cast<std::size_t>(task.sequence)];
    EXPECT_EQ(task.cost,
              std::int64_t{sequence.first_position + task.query_begin + task.num_queries} * task.num_queries);
    EXPECT_LE(task.cost, last);
    last = task.cost;
  }
}

// A batch of sequences with block tables over one pool.
struct Batch {
  std::vector<std::vector<BlockId>> blocks;
  std::vector<AttentionSequence> sequences;
  std::int32_t num_tokens = 0, num_blocks = 0;

  // Its first `shared` tokens lie in the blocks of sequence `parent`, whole blocks only.
  void Add(std::size_t parent, std::int32_t shared, std::int32_t first_position, std::int32_t count) {
    std::vector<BlockId> own;
    if (shared > 0) own.assign(blocks[parent].begin(), blocks[parent].begin() + shared / kBlockSize);
    while (static_cast<std::int32_t>(own.size()) * kBlockSize < first_position + count) {
      own.push_back(BlockId(num_blocks++));
    }
    blocks.push_back(std::move(own));
    sequences.push_back({.token_begin = num_tokens, .num_tokens = count, .first_position = first_position});
    num_tokens += count;
    for (std::size_t s = 0; s < sequences.size(); ++s) sequences[s].blocks = blocks[s].data();
  }
};

// Two families over prefixes of 1,024 and 512 tokens, told apart only by their blocks and mixed in the batch, and some
// that share nothing.
Batch MixedBatch() {
  Batch batch;
  batch.Add(0, 0, 1100, 1);
  batch.Add(0, 0, 600, 1);
  for (int i = 0; i < 9; ++i) {
    batch.Add(0, 1024, 1030 + 17 * i, 1);
    batch.Add(1, 512, 520 + 40 * i, 1 + i % 3);
  }
  batch.Add(0, 0, 40, 1);
  batch.Add(0, 0, 0, 300);
  batch.Add(0, 0, 2000, 1);
  batch.Add(0, 300, 310, 1);
  return batch;
}

TEST(AttentionPlanTest, SequencesInTheSameBlocksShareATask) {
  for (const int num_threads : {1, 2, 16}) {
    Batch batch = MixedBatch();
    std::vector<AttentionTask> memory(MaxAttentionTasks(batch.num_tokens, 2));
    const auto tasks = PlanAttention(batch.sequences, {.num_heads = 8, .num_kv_heads = 2}, num_threads, memory.data());
    EXPECT_THAT(Coverage(batch.sequences, tasks, batch.num_tokens, 2), testing::Each(1));
    int joined = 0;
    for (const AttentionTask& task : tasks) {
      std::int64_t rows = 0;
      for (std::int32_t s = task.sequence; s < task.sequence + task.num_sequences; ++s) {
        const AttentionSequence& sequence = batch.sequences[static_cast<std::size_t>(s)];
        rows += sequence.num_tokens * 4;
        if (s == task.sequence) continue;
        ++joined;
        EXPECT_GE(sequence.shared_partitions, 1);
        const AttentionSequence& before = batch.sequences[static_cast<std::size_t>(s) - 1];
        for (std::int32_t b = 0; b < sequence.shared_partitions * 16; ++b)
          EXPECT_EQ(sequence.blocks[b], before.blocks[b]);
      }
      if (task.num_sequences > 1) EXPECT_LE(rows, 64 + 12) << num_threads;
    }
    // 20 sequences of two families, and the one with 300 common tokens, for each of two KV heads; each part of a family
    // begins with one that joins nobody.
    EXPECT_GE(joined, num_threads == 16 ? 2 : 2 * 14) << num_threads;
  }
}

TEST(AttentionPlanTest, TheOrderOfTheBatchDoesNotMatter) {
  std::mt19937 random(5);
  Batch batch = MixedBatch();
  std::vector<AttentionTask> memory(MaxAttentionTasks(batch.num_tokens, 2));
  std::set<std::size_t> counts;
  for (int i = 0; i < 20; ++i) {
    std::shuffle(batch.sequences.begin(), batch.sequences.end(), random);
    counts.insert(PlanAttention(batch.sequences, {.num_heads = 8, .num_kv_heads = 2}, 2, memory.data()).size());
  }
  EXPECT_EQ(counts.size(), 1u);
}

class RunAttentionTest : public kernels::TierTest {};

INSTANTIATE_TEST_SUITE_P(Tiers, RunAttentionTest, kernels::EveryTier(), kernels::TierName);

TEST_P(RunAttentionTest, ABatchIsTheSameBitsAsItsSequencesAlone) {
  constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 16;
  constexpr std::int64_t kRow = kHeads * kHeadDim;
  const bool slow = GetParam() == &kernels::ReferenceKernels();
  for (const kernels::KvDtype dtype : kernels::kKvDtypes) {
    if (slow && dtype != kernels::KvDtype::kInt4) continue;
    Batch batch = MixedBatch();
    const kernels::KvLayout layout{.num_layers = 1, .num_kv_heads = kKvHeads, .head_dim = kHeadDim, .dtype = dtype};
    KvPool kv = *KvPool::Create(layout, batch.num_blocks);
    std::mt19937 random(6);
    std::normal_distribution<float> normal;
    std::vector<float> q(static_cast<std::size_t>(batch.num_tokens * kRow));
    for (float& x : q) x = normal(random);
    kernels::FillRandomBlocks(layout, batch.num_blocks, 6, kv.data());
    const auto run = [&](std::vector<AttentionSequence> sequences, int num_threads, std::vector<float>* out) {
      ThreadPool pool(num_threads);
      const ExecContext context{&pool, GetParam(), nullptr};
      std::vector<AttentionTask> memory(MaxAttentionTasks(batch.num_tokens, kKvHeads));
      const auto tasks =
          PlanAttention(sequences, {.num_heads = kHeads, .num_kv_heads = kKvHeads}, num_threads, memory.data());
      auto scratch = *AlignedBuffer::Allocate(AttentionScratchBytes(*GetParam(), layout, kHeads, num_threads));
      RunAttention(context, kv, 0, {.num_heads = kHeads, .scale = 0.25f}, sequences, tasks, q.data(), kRow, out->data(),
                   kRow, scratch.data());
    };
    std::vector<float> alone(q.size()), together(q.size());
    for (const AttentionSequence& sequence : batch.sequences) run({sequence}, 1, &alone);
    for (const int num_threads : {1, 2, 3}) {
      std::ranges::fill(together, -7.0f);
      run(batch.sequences, num_threads, &together);
      ASSERT_EQ(together, alone) << num_threads << " threads, dtype " << static_cast<int>(dtype);
    }
  }
}

}  // namespace
}  // namespace quire::nn
