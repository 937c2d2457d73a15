// The memory manager as a scheduler uses it; the whole of it together is simulated in engine/.
#include "kv/kv_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "kv/kv_test_util.h"

namespace quire::kv {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class KvManagerTest : public testing::Test {
 protected:
  void Check(std::initializer_list<const SequenceBlocks*> sequences) const {
    kv_.CheckIntegrity(std::vector<const SequenceBlocks*>(sequences));
  }
  // A sequence that has run all of `tokens`.
  SequenceBlocks Run(const std::vector<TokenId>& tokens) {
    SequenceBlocks sequence = kv_.MakeEmpty();
    const int size = static_cast<int>(tokens.size());
    const std::span<const TokenId> all(tokens);
    const std::optional<int> cached =
        kv_.Attach("", all.first(all.size() - 1), kv_.BlocksFor(size), 0, &sequence, &copies_);
    EXPECT_TRUE(cached.has_value());
    EXPECT_TRUE(kv_.Reserve(*cached, size - *cached, &sequence, &copies_));
    kv_.Publish(tokens, &sequence);
    return sequence;
  }

  KvManager kv_{6, 4, true};
  std::vector<BlockCopy> copies_;
};

TEST_F(KvManagerTest, BlocksAreFreeEvictableProtectedOrOwned) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6});
  SequenceBlocks sequence = Run(tokens);
  EXPECT_EQ(kv_.num_free_blocks(), 4);
  EXPECT_EQ(kv_.num_protected_blocks(), 1);
  EXPECT_EQ(kv_.num_owned_blocks(), 1);
  Check({&sequence});
  kv_.Finish(tokens, &sequence);
  EXPECT_EQ(kv_.num_free_blocks(), 4);
  EXPECT_EQ(kv_.num_evictable_blocks(), 2);
  EXPECT_EQ(kv_.num_available_blocks(), 6);
  Check({});
  kv_.ResetPrefixCache();
  EXPECT_EQ(kv_.num_free_blocks(), 6);
}

TEST_F(KvManagerTest, AHitInsideABlockIsCopied) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6});
  SequenceBlocks first = Run(tokens);
  const BlockId tail = first.table.blocks()[1];
  kv_.Finish(tokens, &first);
  SequenceBlocks second = kv_.MakeEmpty();
  EXPECT_EQ(kv_.Attach("", Tokens({1, 2, 3, 4, 5, 9, 9}), 2, 0, &second, &copies_), 5);
  ASSERT_EQ(second.table.num_blocks(), 2);
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{tail, second.table.blocks()[1]}));
  EXPECT_FALSE(second.table.IsShared(1));
  Check({&second});
  kv_.Release(&second);
}

// PFX-09: what cannot be had in full is not begun.
TEST_F(KvManagerTest, AnAdmissionThatFailsLeavesNoTrace) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6});
  SequenceBlocks first = Run(tokens);
  SequenceBlocks second = kv_.MakeEmpty();
  const auto longer = Tokens({1, 2, 3, 4, 7, 7, 7, 7, 7});
  // Four blocks are free and one is shared: six in all are too many, and so are five with one to spare.
  EXPECT_EQ(kv_.Attach("", longer, 6, 0, &second, &copies_), std::nullopt);
  EXPECT_EQ(kv_.Attach("", longer, 5, 1, &second, &copies_), std::nullopt);
  EXPECT_EQ(kv_.Attach("new", longer, 5, 0, &second, &copies_), std::nullopt);
  EXPECT_THAT(copies_, IsEmpty());
  EXPECT_EQ(second.table.num_blocks(), 0);
  EXPECT_EQ(kv_.num_free_blocks(), 4);
  Check({&first});
  EXPECT_EQ(kv_.Attach("", longer, 5, 0, &second, &copies_), 4);
  EXPECT_FALSE(kv_.Reserve(4, 17, &second, &copies_));
  EXPECT_EQ(second.table.num_blocks(), 1);
  EXPECT_TRUE(kv_.Reserve(4, 16, &second, &copies_));
  EXPECT_EQ(kv_.num_available_blocks(), 0);
  Check({&first, &second});
}

// In the smallest of pools the block to copy from is the block to copy to.
TEST(KvManager, TheLastBlockIsTakenWithItsContent) {
  KvManager kv(1, 4, true);
  std::vector<BlockCopy> copies;
  const auto tokens = Tokens({1, 2, 3});
  SequenceBlocks sequence = kv.MakeEmpty();
  ASSERT_EQ(kv.Attach("", tokens, 1, 0, &sequence, &copies), 0);
  ASSERT_TRUE(kv.Reserve(0, 3, &sequence, &copies));
  kv.Finish(tokens, &sequence);
  EXPECT_EQ(kv.Attach("", tokens, 1, 0, &sequence, &copies), 3);
  EXPECT_THAT(copies, IsEmpty());
  EXPECT_EQ(kv.num_owned_blocks(), 1);
}

TEST_F(KvManagerTest, ForksCopyWhatTheyWrite) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6});
  SequenceBlocks first = Run(tokens);
  SequenceBlocks fork = kv_.Fork(first, 5);
  Check({&first, &fork});
  EXPECT_EQ(kv_.num_free_blocks(), 4);
  const BlockId shared = first.table.blocks()[1];
  EXPECT_TRUE(kv_.Reserve(5, 1, &fork, &copies_));
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{shared, fork.table.blocks()[1]}));
  // The other is alone with the block now.
  EXPECT_TRUE(kv_.Reserve(6, 1, &first, &copies_));
  EXPECT_EQ(copies_.size(), 1u);
  EXPECT_EQ(first.table.blocks()[1], shared);
  Check({&first, &fork});
}

TEST_F(KvManagerTest, AForkThatWritesIntoAPublishedBlockLeavesIt) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6, 7, 8});
  SequenceBlocks first = Run(tokens);
  SequenceBlocks fork = kv_.Fork(first, 7);
  EXPECT_EQ(fork.num_published_blocks, 2);
  Check({&first, &fork});
  EXPECT_TRUE(kv_.Reserve(7, 1, &fork, &copies_));
  EXPECT_EQ(fork.num_published_blocks, 1);
  Check({&first, &fork});
  kv_.Finish(tokens, &first);
  EXPECT_EQ(kv_.num_evictable_blocks(), 1);  // the second block of the first; the fork uses the first one only
  EXPECT_EQ(kv_.num_protected_blocks(), 1);
  // It computes the same token: the cache's block takes the place of its own.
  kv_.Publish(tokens, &fork);
  EXPECT_EQ(kv_.num_protected_blocks(), 2);
  EXPECT_EQ(kv_.num_free_blocks(), 4);
  Check({&fork});
}

TEST(KvManager, WithoutCachingNothingIsKept) {
  KvManager kv(4, 4, false);
  std::vector<BlockCopy> copies;
  const auto tokens = Tokens({1, 2, 3, 4, 5});
  SequenceBlocks sequence = kv.MakeEmpty();
  EXPECT_EQ(kv.Attach("", tokens, 5, 0, &sequence, &copies), std::nullopt);
  EXPECT_EQ(kv.Attach("", tokens, 2, 0, &sequence, &copies), 0);
  ASSERT_TRUE(kv.Reserve(0, 5, &sequence, &copies));
  SequenceBlocks fork = kv.Fork(sequence, 4);
  EXPECT_EQ(fork.table.num_blocks(), 1);
  kv.Publish(tokens, &sequence);
  const std::array<const SequenceBlocks*, 2> both = {&sequence, &fork};
  kv.CheckIntegrity(both);
  kv.Finish(tokens, &sequence);
  EXPECT_EQ(kv.num_free_blocks(), 3);
  EXPECT_EQ(kv.Peek("", tokens), 0);
}

TEST(KvManager, ASwappedSequenceTakesBackWhatTheCacheLost) {
  KvManager kv(4, 4, true, 3);
  std::vector<BlockCopy> copies;
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const std::span<const TokenId> all(tokens);
  SequenceBlocks sequence = kv.MakeEmpty();
  ASSERT_EQ(kv.Attach("", all.first(9), 3, 0, &sequence, &copies), 0);
  ASSERT_TRUE(kv.Reserve(0, 10, &sequence, &copies));
  kv.Publish(all, &sequence);
  const std::vector<BlockId> had(sequence.table.blocks().begin(), sequence.table.blocks().end());
  EXPECT_EQ(kv.CountPrivateTokens(10, sequence), 10);

  ASSERT_TRUE(kv.SwapOut(10, &sequence, &copies));
  EXPECT_EQ(kv.num_used_swap_blocks(), 3);
  // The ids of the swap area follow those of the pool.
  EXPECT_THAT(copies,
              ElementsAre(BlockCopy{had[0], BlockId(4)}, BlockCopy{had[1], BlockId(5)}, BlockCopy{had[2], BlockId(6)}));
  kv.Release(&sequence);
  const std::array<const SequenceBlocks*, 1> alone = {&sequence};
  kv.CheckIntegrity(alone);

  // While the cache has all full blocks, only the last one is copied.
  copies.clear();
  ASSERT_EQ(kv.Attach("", all.first(9), 3, 0, &sequence, &copies), 10);
  EXPECT_THAT(copies, ElementsAre(BlockCopy{BlockId(6), sequence.table.blocks()[2]}));
  EXPECT_EQ(sequence.num_restored_tokens, 2);
  kv.Release(&sequence);

  // Three blocks are in nobody's way; with four wanted, nothing happens and what is saved stays.
  copies.clear();
  EXPECT_EQ(kv.Attach("", all.first(9), 3, 2, &sequence, &copies), std::nullopt);
  kv.ResetPrefixCache();
  ASSERT_EQ(kv.Attach("", all.first(9), 3, 0, &sequence, &copies), 10);
  EXPECT_EQ(copies.size(), 3u);
  EXPECT_EQ(sequence.num_restored_tokens, 10);
  kv.CheckIntegrity(alone);
  sequence.saved.Clear();
  EXPECT_EQ(kv.num_used_swap_blocks(), 0);
  kv.Finish(all, &sequence);
}

TEST(KvManager, AFullSwapAreaTakesNothing) {
  KvManager kv(4, 4, false, 1);
  std::vector<BlockCopy> copies;
  SequenceBlocks sequence = kv.MakeEmpty();
  ASSERT_EQ(kv.Attach("", Tokens({1, 2, 3, 4, 5}), 2, 0, &sequence, &copies), 0);
  ASSERT_TRUE(kv.Reserve(0, 5, &sequence, &copies));
  EXPECT_FALSE(kv.SwapOut(5, &sequence, &copies));
  EXPECT_THAT(copies, IsEmpty());
  EXPECT_TRUE(kv.SwapOut(4, &sequence, &copies));
  kv.Release(&sequence);
  // Without a cache too.
  EXPECT_EQ(kv.Attach("", Tokens({1, 2, 3, 4}), 2, 0, &sequence, &copies), 4);
  sequence.saved.Clear();
  kv.Release(&sequence);
  EXPECT_EQ(kv.num_free_blocks(), 4);
}

}  // namespace
}  // namespace quire::kv
