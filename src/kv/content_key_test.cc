#include "kv/content_key.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>

#include "kv/cache_namespace.h"
#include "kv/kv_manager.h"
#include "kv/kv_test_util.h"

namespace quire::kv {
namespace {

TEST(ContentKey, EverythingThatMattersIsInTheKey) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6, 7, 8});
  std::set<std::string> keys;
  for (const char* identity : {"", "a", "ab"}) {
    for (const std::string& cache_namespace :
         {MakeCacheNamespace(""), MakeCacheNamespace("a"), MakeCacheNamespace("b"), MakeCacheNamespace("a", 1),
          MakeCacheNamespace("", 1), MakeCacheNamespace("", 2), std::string("b")}) {
      ContentHasher hasher(identity);
      keys.insert(hasher.Root(cache_namespace).ToHex());
      for (const ContentKey& key : hasher.Keys(cache_namespace, tokens, 4)) keys.insert(key.ToHex());
      for (const ContentKey& key : hasher.Keys(cache_namespace, tokens, 8)) keys.insert(key.ToHex());
    }
  }
  EXPECT_EQ(keys.size(), 3u * 7 * (1 + 2 + 1));
}

TEST(ContentKey, StandsForTheWholePrefix) {
  ContentHasher hasher("x");
  const auto a = hasher.Keys("", Tokens({1, 2, 3, 4}), 2), b = hasher.Keys("", Tokens({9, 2, 3, 4}), 2),
             longer = hasher.Keys("", Tokens({1, 2, 3, 4, 5, 6, 7}), 2);
  EXPECT_NE(a[1], b[1]);
  ASSERT_EQ(longer.size(), 3u);  // of full blocks only
  EXPECT_EQ(longer[0], a[0]);
  EXPECT_EQ(longer[1], a[1]);
}

class KeyedBlocksTest : public testing::Test {
 protected:
  KeyedBlocksTest() { kv_.KeyBlocks("model"); }
  SequenceBlocks Run(const std::vector<TokenId>& tokens) {
    SequenceBlocks sequence = kv_.MakeEmpty();
    const std::span<const TokenId> all(tokens);
    const int size = static_cast<int>(tokens.size());
    const std::optional<int> cached =
        kv_.Attach("", all.first(all.size() - 1), kv_.BlocksFor(size), 0, &sequence, &copies_);
    EXPECT_TRUE(cached && kv_.Reserve(*cached, size - *cached, &sequence, &copies_));
    kv_.Publish(tokens, &sequence);
    return sequence;
  }
  std::vector<std::string> TakeUnsaved() {
    std::vector<std::string> keys;
    while (const auto next = kv_.NextUnsaved()) keys.push_back(next->key.ToHex());
    return keys;
  }
  static std::vector<std::string> KeysOf(const std::vector<TokenId>& tokens) {
    ContentHasher hasher("model");
    std::vector<std::string> keys;
    for (const ContentKey& key : hasher.Keys("", tokens, 4)) keys.push_back(key.ToHex());
    return keys;
  }

  KvManager kv_{6, 4, true, 0, 2};
  std::vector<BlockCopy> copies_;
};

TEST_F(KeyedBlocksTest, NewBlocksAreNotedOnce) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9});
  SequenceBlocks first = Run(tokens);
  EXPECT_EQ(TakeUnsaved(), KeysOf(tokens));
  SequenceBlocks second = Run(tokens);
  EXPECT_TRUE(TakeUnsaved().empty());
  kv_.Release(&first);
  kv_.Release(&second);
}

TEST_F(KeyedBlocksTest, EvictedBlocksAreNotSaved) {
  SequenceBlocks first = Run(Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  kv_.Release(&first);
  kv_.ResetPrefixCache();
  const auto other = Tokens({7, 7, 7, 7, 7});
  SequenceBlocks second = Run(other);
  EXPECT_EQ(TakeUnsaved(), KeysOf(other));
  EXPECT_EQ(kv_.num_lost_unsaved(), 2u);
  kv_.Release(&second);
}

// A fork that writes into a published block has another key from there on, also when it meets known blocks first.
TEST_F(KeyedBlocksTest, AForkHasItsOwnKeys) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6, 7, 8});
  SequenceBlocks first = Run(tokens);
  SequenceBlocks fork = kv_.Fork(first, 7);
  const auto other = Tokens({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13});
  ASSERT_TRUE(kv_.Reserve(7, 5, &fork, &copies_));
  kv_.Publish(other, &fork);
  std::vector<std::string> expected = KeysOf(tokens);
  expected.push_back(KeysOf(other)[1]);
  expected.push_back(KeysOf(other)[2]);
  EXPECT_EQ(TakeUnsaved(), expected);

  SequenceBlocks again = kv_.Fork(first, 7);
  ASSERT_TRUE(kv_.Reserve(7, 1, &again, &copies_));
  kv_.Publish(std::span(other).first(8), &again);  // the fork's second block takes the place of its own
  const auto third = Tokens({1, 2, 3, 4, 5, 6, 7, 9, 20, 21, 22, 23});
  kv_.Release(&first);
  ASSERT_TRUE(kv_.Reserve(8, 4, &again, &copies_));
  kv_.Publish(third, &again);
  EXPECT_EQ(TakeUnsaved(), std::vector{KeysOf(third)[2]});
  kv_.Release(&fork);
  kv_.Release(&again);
}

TEST_F(KeyedBlocksTest, WhatCameFromATierIsNotWrittenAgain) {
  const auto tokens = Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  SequenceBlocks sequence = kv_.MakeEmpty();
  sequence.saved.num_tokens = 8;
  sequence.saved.blocks.push_back(kv_.TakeLandingBlock());
  sequence.saved.blocks.push_back(kv_.TakeLandingBlock());
  EXPECT_FALSE(kv_.TakeLandingBlock());
  EXPECT_EQ(sequence.saved.blocks[0].id(), BlockId(6));
  ASSERT_EQ(kv_.Attach("", std::span(tokens).first(12), 4, 0, &sequence, &copies_), 8);
  EXPECT_EQ(copies_.size(), 2u);
  ASSERT_TRUE(kv_.Reserve(8, 5, &sequence, &copies_));
  kv_.Publish(tokens, &sequence);
  EXPECT_EQ(TakeUnsaved(), std::vector{KeysOf(tokens)[2]});
  sequence.saved.Clear();
  EXPECT_EQ(kv_.num_free_landing_blocks(), 2);
  kv_.Release(&sequence);
}

}  // namespace
}  // namespace quire::kv
