#include "kv/block_table.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "kv/block_allocator.h"
#include "kv/kv_test_util.h"

namespace quire::kv {
namespace {

TEST(BlockAllocator, HandsOutEveryBlockOnceAndThenNone) {
  BlockAllocator allocator(3);
  BlockRef a = allocator.Allocate(), b = allocator.Allocate(), c = allocator.Allocate();
  EXPECT_EQ(a.id(), BlockId(0));
  EXPECT_EQ(b.id(), BlockId(1));
  EXPECT_EQ(c.id(), BlockId(2));
  EXPECT_FALSE(allocator.Allocate());
  b.Reset();
  EXPECT_EQ(allocator.num_free(), 1);
  EXPECT_EQ(allocator.Allocate().id(), BlockId(1));
  allocator.CheckIntegrity();
}

TEST(BlockRef, CountsOwners) {
  BlockAllocator allocator(2);
  BlockRef a = allocator.Allocate();
  {
    BlockRef again = a.Share();
    EXPECT_EQ(allocator.ref_count(a.id()), 2);
    BlockRef moved = std::move(again);
    EXPECT_EQ(allocator.ref_count(a.id()), 2);
    EXPECT_FALSE(again);  // NOLINT(bugprone-use-after-move): that is what is tested
  }
  EXPECT_EQ(allocator.ref_count(a.id()), 1);
  const BlockId first = a.id();
  a = allocator.Allocate();  // the old block goes back
  EXPECT_EQ(allocator.ref_count(first), 0);
  const BlockId bare = a.Detach();
  EXPECT_EQ(allocator.ref_count(bare), 1);
  EXPECT_EQ(allocator.Adopt(bare).id(), bare);
  EXPECT_EQ(allocator.num_free(), 2);
}

TEST(BlockTable, PositionsBecomeSlots) {
  BlockAllocator allocator(8);
  const BlockRef taken = allocator.Allocate();  // block 0
  const BlockTable table = MakeTable(&allocator, 4, 9);
  ASSERT_EQ(table.num_blocks(), 3);
  EXPECT_EQ(table.capacity(), 12);
  EXPECT_EQ(table.Slot(0), 4);
  EXPECT_EQ(table.Slot(3), 7);
  EXPECT_EQ(table.Slot(4), 8);
  EXPECT_EQ(table.Slot(11), 15);
}

TEST(BlockTable, ForkSharesAndCopiesOnWrite) {
  BlockAllocator allocator(8);
  BlockTable table = MakeTable(&allocator, 4, 10);
  {
    BlockTable fork = table.Fork(6);
    ASSERT_EQ(fork.num_blocks(), 2);
    EXPECT_EQ(fork.blocks()[1], table.blocks()[1]);
    EXPECT_TRUE(table.IsShared(1));
    EXPECT_FALSE(table.IsShared(2));
    const BlockId shared = fork.blocks()[1];
    BlockRef fresh = allocator.Allocate();
    const BlockId to = fresh.id();
    EXPECT_EQ(fork.ReplaceForWriting(1, std::move(fresh)), shared);
    EXPECT_EQ(fork.blocks()[1], to);
    EXPECT_FALSE(table.IsShared(1));
    EXPECT_TRUE(table.IsShared(0));
  }
  EXPECT_FALSE(table.IsShared(0));
  EXPECT_EQ(table.Fork(0).num_blocks(), 0);
  table.Clear();
  EXPECT_EQ(allocator.num_free(), 8);
}

TEST(BlockTable, MovesOwnership) {
  BlockAllocator allocator(4);
  BlockTable a = MakeTable(&allocator, 2, 4), b = MakeTable(&allocator, 2, 2);
  a = std::move(b);
  EXPECT_EQ(a.num_blocks(), 1);
  EXPECT_EQ(allocator.num_free(), 3);
  const BlockRef last = a.TakeLast();
  EXPECT_EQ(a.num_blocks(), 0);
  EXPECT_EQ(allocator.ref_count(last.id()), 1);
}

// Against a model: who holds which block, by hand.
TEST(BlockAllocator, RandomOperationsKeepTheCount) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    BlockAllocator allocator(7);
    std::vector<BlockRef> held;
    std::vector<int> model(7, 0);
    for (int step = 0; step < 500; ++step) {
      const unsigned action = random() % 3;
      if (action == 0) {
        if (BlockRef block = allocator.Allocate()) {
          ASSERT_EQ(model[static_cast<std::size_t>(block.id().value())]++, 0);
          held.push_back(std::move(block));
        }
      } else if (!held.empty()) {
        const std::size_t index = random() % held.size();
        int& count = model[static_cast<std::size_t>(held[index].id().value())];
        if (action == 1 && held.size() < 30) {
          ++count;
          held.push_back(held[index].Share());
        } else {
          --count;
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
        }
      }
      allocator.CheckIntegrity();
      for (int i = 0; i < 7; ++i) ASSERT_EQ(allocator.ref_count(BlockId(i)), model[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(BlockAllocatorDeathTest, CatchesMisuse) {
  BlockAllocator allocator(1);
  EXPECT_DEATH(allocator.Release(BlockId(0)), "ref_count");
  EXPECT_DEATH(allocator.AddRef(BlockId(0)), "ref_count");
  EXPECT_DEATH(allocator.Release(BlockId(1)), "Has");
}

}  // namespace
}  // namespace quire::kv
