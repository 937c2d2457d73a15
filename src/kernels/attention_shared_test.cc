// Sequences that have leading partitions in the same blocks, computed together and alone: the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_cases.h"
#include "kernels/kernels_test_util.h"

namespace quire::kernels {
namespace {

// Sequences over one pool of random keys and values.
class SharedSequences {
 public:
  SharedSequences(KvDtype dtype, int head_dim, int group, const std::vector<CachedSequence>& shapes, std::uint64_t seed)
      : layout_{.num_layers = 1, .num_kv_heads = 2, .head_dim = head_dim, .dtype = dtype},
        group_(group),
        tables_(MakeBlockTables(shapes, seed)) {
    const auto num_blocks = static_cast<std::size_t>(tables_.num_blocks);
    pool_ = AlignedBuffer::Allocate(num_blocks * layout_.block_bytes()).value();
    FillRandomBlocks(layout_, tables_.num_blocks, seed, pool_.data());
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal;
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      std::vector<float>& q = q_.emplace_back(static_cast<std::size_t>(shapes[s].num_queries * group * head_dim));
      for (float& x : q) x = normal(rng);
      queries_.push_back({.blocks = tables_.blocks[s].data(),
                          .first_position = shapes[s].length - shapes[s].num_queries,
                          .num_queries = shapes[s].num_queries,
                          .q = q.data(),
                          .shared_partitions = s == 0 ? 0 : shapes[s].shared_tokens / kAttentionPartition});
    }
  }

  // Outputs of all sequences in turn, computed `at_a_time`.
  std::vector<float> Attend(const KernelTable& table, std::size_t at_a_time, std::int64_t window) {
    std::vector<float> out;
    for (const auto& q : q_) out.resize(out.size() + q.size(), -7.0f);
    std::size_t offset = 0;
    for (std::size_t s = 0; s < q_.size(); ++s) {
      queries_[s].out = out.data() + offset;
      offset += q_[s].size();
    }
    auto scratch = AlignedBuffer::Allocate(table.attention_scratch_bytes(layout_, group_)).value();
    const std::int64_t stride = std::int64_t{group_} * layout_.head_dim;
    for (std::size_t s = 0; s < q_.size(); s += at_a_time) {
      table.attention({.layout = &layout_,
                       .pool = pool_.data(),
                       .sequences = &queries_[s],
                       .num_sequences = static_cast<std::int64_t>(std::min(at_a_time, q_.size() - s)),
                       .kv_head = 1,
                       .group = group_,
                       .q_stride = stride,
                       .out_stride = stride,
                       .scale = 1.0f / std::sqrt(static_cast<float>(layout_.head_dim)),
                       .window = window,
                       .scratch = scratch.data()});
    }
    return out;
  }

 private:
  KvLayout layout_;
  int group_;
  BlockTables tables_;
  AlignedBuffer pool_;
  std::vector<std::vector<float>> q_;
  std::vector<AttentionQueries> queries_;
};

const std::vector<std::vector<CachedSequence>> kShapes = {
    // One prefix of whole partitions, decode at different lengths.
    {{0, 600, 1}, {512, 513, 1}, {512, 700, 1}, {512, 515, 1}, {512, 1025, 1}},
    // Prefixes that end inside a partition and inside a block, or are shorter than one.
    {{0, 400, 1}, {300, 380, 1}, {300, 301, 1}, {100, 330, 1}, {90, 400, 1}, {256, 256, 1}},
    // A tree: the third shares less than the second, and the fourth more again.
    {{0, 1100, 1}, {1024, 1050, 1}, {256, 900, 1}, {768, 800, 1}, {0, 300, 1}, {256, 257, 1}},
    // Several queries (drafts), a chunk across a partition's edge, and one with more rows than are in flight.
    {{0, 520, 3}, {512, 600, 1}, {256, 262, 10}, {256, 300, 40}, {256, 530, 70}, {512, 600, 2}},
    // Nobody shares.
    {{0, 20, 1}, {0, 300, 2}, {0, 1, 1}},
};

TEST(SharedAttention, TogetherIsTheSameBitsAsAlone) {
  std::uint64_t seed = 900;
  for (const KvDtype dtype : kKvDtypes) {
    for (const auto& shapes : kShapes) {
      for (const auto& [head_dim, group] : {std::pair{16, 1}, {40, 7}, {64, 4}, {8, 20}}) {
        SharedSequences sequences(dtype, head_dim, group, shapes, ++seed);
        for (const std::int64_t window : {0, 100, 300}) {
          for (const KernelTable* table : AvailableKernels().subspan(1)) {
            const std::vector<float> alone = sequences.Attend(*table, 1, window);
            for (const std::size_t at_a_time : {3, 100}) {
              const std::vector<float> together = sequences.Attend(*table, at_a_time, window);
              ASSERT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * 4), 0)
                  << table->isa << " dtype " << static_cast<int>(dtype) << " head_dim " << head_dim << " group "
                  << group << " window " << window << " at a time " << at_a_time << " seed " << seed;
            }
          }
        }
      }
    }
  }
}

TEST(SharedAttention, ManySequencesOverOnePrefixAreWhatTheReferenceSays) {
  std::vector<CachedSequence> shapes;
  for (std::int64_t i = 0; i < 32; ++i) shapes.push_back({i == 0 ? 0 : 256, 257 + i * 3, 1});
  SharedSequences sequences(KvDtype::kF32, 16, 7, shapes, 1000);
  const std::vector<float> expected = sequences.Attend(ReferenceKernels(), 100, 0);
  for (const KernelTable* table : AvailableKernels().subspan(1)) {
    const std::vector<float> out = sequences.Attend(*table, 100, 0);
    EXPECT_EQ(out, sequences.Attend(*table, 1, 0));
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-4) << table->isa;
  }
}

}  // namespace
}  // namespace quire::kernels
