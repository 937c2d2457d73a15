#include "kv/radix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kv/cache_namespace.h"
#include "kv/kv_test_util.h"

namespace quire::kv {
namespace {

// A cache of blocks of four tokens, and what a sequence does with it.
class RadixCacheTest : public testing::Test {
 protected:
  struct Sequence {
    RadixCache::Lock lock;
    BlockTable table;
    int num_matched = 0;  // tokens
    BlockId tail_block;
  };

  Sequence Match(const std::vector<TokenId>& tokens, const std::string& cache_namespace = "") {
    Sequence sequence{.lock = {}, .table = BlockTable(&allocator_, 4), .tail_block = {}};
    const int peeked = cache_.Peek(cache_namespace, tokens);
    RadixCache::MatchResult match = cache_.Match(cache_namespace, tokens, &sequence.table);
    sequence.lock = std::move(match.lock);
    sequence.num_matched = match.num_full_blocks * 4 + match.num_tail_tokens;
    sequence.tail_block = match.tail_block;
    EXPECT_EQ(sequence.num_matched, peeked);
    Check();
    return sequence;
  }

  // Runs a sequence through: matches, computes the rest, and puts it in the cache, with the tail if there is one.
  // The lock of the full blocks is kept.
  Sequence Insert(const std::vector<TokenId>& tokens, const std::string& cache_namespace = "") {
    Sequence sequence = Match(tokens, cache_namespace);
    const int first = sequence.table.num_blocks();
    while (sequence.table.capacity() < static_cast<int>(tokens.size())) {
      if (allocator_.num_free() == 0) {
        EXPECT_EQ(cache_.Evict(1), 1);
      }
      sequence.table.Append(allocator_.Allocate());
    }
    const auto num_full = static_cast<int>(tokens.size()) / 4;
    const std::span<const TokenId> all(tokens);
    if (num_full > first) {
      cache_.Extend(all.subspan(static_cast<std::size_t>(first) * 4, static_cast<std::size_t>(num_full - first) * 4),
                    first, &sequence.lock, &sequence.table);
    }
    if (sequence.table.num_blocks() > num_full) {
      cache_.AddTail(sequence.lock, all.subspan(static_cast<std::size_t>(num_full) * 4), sequence.table.TakeLast());
    }
    Check();
    return sequence;
  }

  static void Drop(Sequence* sequence) {
    sequence->table.Clear();
    sequence->lock.Reset();
  }
  void InsertAndDrop(const std::vector<TokenId>& tokens, const std::string& cache_namespace = "") {
    Sequence sequence = Insert(tokens, cache_namespace);
    Drop(&sequence);
    Check();
  }

  void Check() const {
    std::vector<std::int32_t> ref_counts(static_cast<std::size_t>(allocator_.num_blocks()), 0);
    cache_.CheckIntegrity(&ref_counts);
    allocator_.CheckIntegrity();
  }

  BlockAllocator allocator_{16};
  RadixCache cache_{&allocator_, 4};
};

TEST_F(RadixCacheTest, NodesSplitWherePromptsPart) {
  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(cache_.ToString(""), "1 2 3 4 | 5 6 7 8 | 9 10 11 12\n");

  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 6, 0, 0, 9, 9, 9, 9}));
  EXPECT_EQ(cache_.ToString(""),
            "1 2 3 4\n"
            "  5 6 0 0 | 9 9 9 9\n"
            "  5 6 7 8 | 9 10 11 12\n");

  // A prompt that ends inside a node splits it too: its lock covers no more than it uses.
  Sequence short_one = Match(Tokens({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(cache_.ToString(""),
            "1 2 3 4 *\n"
            "  5 6 0 0 | 9 9 9 9\n"
            "  5 6 7 8 *\n"
            "    9 10 11 12\n");
  EXPECT_EQ(cache_.num_protected_blocks(), 2);
  EXPECT_EQ(cache_.num_evictable_blocks(), 3);
  Drop(&short_one);
  EXPECT_EQ(cache_.num_evictable_blocks(), 5);
}

TEST_F(RadixCacheTest, MatchesToTheToken) {
  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 6, 7, 8}));
  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 5, 5, 5}));
  // Inside the second block, nearest to 5 6 7 8, whose place is behind 5 5 5 5 …
  Sequence sequence = Match(Tokens({1, 2, 3, 4, 5, 6, 7, 9, 1, 1}));
  EXPECT_EQ(sequence.num_matched, 7);
  EXPECT_EQ(sequence.table.num_blocks(), 1);
  // … and before its first child.
  EXPECT_EQ(Match(Tokens({1, 2, 3, 4, 5, 5, 5, 0})).num_matched, 7);
  EXPECT_EQ(Match(Tokens({1, 2, 3})).num_matched, 3);
  EXPECT_EQ(Match(Tokens({2, 2, 3})).num_matched, 0);
  EXPECT_EQ(Match(Tokens({})).num_matched, 0);
  // Inside a node, not at its first block.
  InsertAndDrop(Tokens({8, 8, 8, 8, 9, 9, 9, 9, 7, 7, 7, 7}));
  EXPECT_EQ(Match(Tokens({8, 8, 8, 8, 9, 9, 0, 0})).num_matched, 6);
}

TEST_F(RadixCacheTest, TailsAreFoundAndReplacedByWhatContinuesThem) {
  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(cache_.ToString(""), "1 2 3 4\n  5 6\n");
  EXPECT_EQ(Match(Tokens({1, 2, 3, 4, 5, 6, 7, 8})).num_matched, 6);

  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(cache_.ToString(""), "1 2 3 4\n  5 6 7\n");
  InsertAndDrop(Tokens({1, 2, 3, 4, 5}));  // known already
  EXPECT_EQ(cache_.ToString(""), "1 2 3 4\n  5 6 7\n");
  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 0}));  // something else
  EXPECT_EQ(cache_.ToString(""), "1 2 3 4\n  5 0\n  5 6 7\n");
  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(cache_.ToString(""), "1 2 3 4\n  5 0\n  5 6 7 8\n    9\n");
  InsertAndDrop(Tokens({1, 2, 3, 4, 5, 6}));  // part of a full block
  EXPECT_EQ(cache_.ToString(""), "1 2 3 4\n  5 0\n  5 6 7 8\n    9\n");
  EXPECT_EQ(allocator_.num_free(), 16 - 4);
}

TEST_F(RadixCacheTest, GrowsInPlaceWhileNobodyElseLooks) {
  Sequence a = Insert(Tokens({1, 1, 1, 1}));
  const auto extend = [&](Sequence* sequence, const std::vector<TokenId>& tokens) {
    const int first = sequence->table.num_blocks();
    sequence->table.Append(allocator_.Allocate());
    cache_.Extend(tokens, first, &sequence->lock, &sequence->table);
    Check();
  };
  extend(&a, Tokens({2, 2, 2, 2}));
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 | 2 2 2 2 *\n");
  Sequence b = Match(Tokens({1, 1, 1, 1, 2, 2, 2, 2}));
  extend(&a, Tokens({3, 3, 3, 3}));
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 | 2 2 2 2 **\n  3 3 3 3 *\n");

  // B computes the same block: it gets A's, and its own is free again.
  const int num_free = allocator_.num_free();
  extend(&b, Tokens({3, 3, 3, 3}));
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 | 2 2 2 2 **\n  3 3 3 3 **\n");
  EXPECT_EQ(b.table.blocks()[2], a.table.blocks()[2]);
  EXPECT_EQ(allocator_.num_free(), num_free);
  EXPECT_EQ(allocator_.ref_count(a.table.blocks()[2]), 3);
}

TEST_F(RadixCacheTest, LocksOfPrefixes) {
  Sequence a = Insert(Tokens({1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}));
  const RadixCache::Lock same = a.lock.Share();
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 | 2 2 2 2 | 3 3 3 3 **\n");
  RadixCache::Lock shorter = cache_.LockPrefix(a.lock, 1);
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 | 2 2 2 2 ***\n  3 3 3 3 **\n");
  const RadixCache::Lock root = cache_.LockPrefix(shorter, 2);
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 | 2 2 2 2 ***\n  3 3 3 3 **\n");
  const RadixCache::Lock shortest = cache_.LockPrefix(a.lock, 2);
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 ****\n  2 2 2 2 ***\n    3 3 3 3 **\n");
  Check();
  shorter.Reset();
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 ***\n  2 2 2 2 **\n    3 3 3 3 **\n");
}

TEST_F(RadixCacheTest, EvictsTheLeastRecentlyUsedFromTheEnd) {
  InsertAndDrop(Tokens({1, 1, 1, 1, 2, 2, 2, 2}));
  InsertAndDrop(Tokens({5, 5, 5, 5, 6, 6, 6, 6}));
  InsertAndDrop(Tokens({1, 1, 1, 1, 3, 3, 3, 3}));
  EXPECT_EQ(cache_.Evict(1), 1);
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1\n  3 3 3 3\n5 5 5 5 | 6 6 6 6\n");
  EXPECT_EQ(cache_.Evict(1), 1);
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1\n  3 3 3 3\n5 5 5 5\n");
  Sequence used = Match(Tokens({5, 5, 5, 5}));
  Drop(&used);  // now the youngest
  EXPECT_EQ(cache_.Evict(1), 1);
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1\n5 5 5 5\n");
  EXPECT_EQ(cache_.Evict(1), 1);
  EXPECT_EQ(cache_.ToString(""), "5 5 5 5\n");
  EXPECT_EQ(cache_.Evict(5), 1);
  EXPECT_EQ(cache_.stats().evicted_for_capacity, 5u);
  EXPECT_EQ(allocator_.num_free(), 16);
  Check();
}

TEST_F(RadixCacheTest, AHitInsideABlockIsAUse) {
  InsertAndDrop(Tokens({1, 1, 1, 1}));
  InsertAndDrop(Tokens({5, 5, 5, 5}));
  Sequence used = Match(Tokens({1, 1, 1, 2}));
  EXPECT_EQ(used.num_matched, 3);
  Drop(&used);
  EXPECT_EQ(cache_.Evict(1), 1);
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1\n");
}

TEST_F(RadixCacheTest, LockedBlocksStay) {
  Sequence a = Insert(Tokens({1, 1, 1, 1, 2, 2, 2, 2}));
  InsertAndDrop(Tokens({1, 1, 1, 1, 3, 3, 3, 3}));
  EXPECT_EQ(cache_.Evict(16), 1);
  EXPECT_EQ(cache_.ToString(""), "1 1 1 1 *\n  2 2 2 2 *\n");
  Drop(&a);
  EXPECT_EQ(cache_.Evict(16), 2);
  EXPECT_EQ(cache_.ToString(""), "");
}

// PFX-01, PFX-03: namespaces never meet, and components of different types never give the same one.
TEST_F(RadixCacheTest, NamespacesAreApart) {
  const std::string base = MakeCacheNamespace(""), salt = MakeCacheNamespace("X"), adapter = MakeCacheNamespace("", 1);
  const auto prompt = Tokens({1, 1, 1, 1, 2, 2});
  InsertAndDrop(prompt, base);
  EXPECT_EQ(cache_.Peek(base, prompt), 6);
  EXPECT_EQ(cache_.Peek(salt, prompt), 0);
  EXPECT_EQ(cache_.Peek(adapter, prompt), 0);
  InsertAndDrop(prompt, adapter);
  EXPECT_EQ(cache_.num_blocks(), 4);
  EXPECT_EQ(cache_.Peek(MakeCacheNamespace("", 2), prompt), 0);  // the adapter was loaded anew
  EXPECT_EQ(cache_.Peek(MakeCacheNamespace("X", 1), prompt), 0);
}

TEST(CacheNamespace, IsInjective) {
  std::map<std::string, std::pair<std::string, std::uint64_t>> seen;
  std::vector<std::string> salts = {"", "X", "XX", "A", "S", std::string(1, '\0'), std::string(8, '\0')};
  // Salts that look like what another salt and an adapter turn into.
  for (const std::uint64_t generation : {0, 1, 88}) {
    salts.push_back(MakeCacheNamespace("", generation));
    salts.push_back(MakeCacheNamespace("X", generation));
    salts.push_back("X" + MakeCacheNamespace("", generation));
  }
  int count = 0;
  for (const std::string& salt : salts) {
    seen[MakeCacheNamespace(salt)] = {salt, 0};
    ++count;
    for (const std::uint64_t generation : {0, 1, 88}) {
      seen[MakeCacheNamespace(salt, generation)] = {salt, generation};
      ++count;
    }
  }
  std::ranges::sort(salts);
  ASSERT_EQ(std::ranges::unique(salts).begin(), salts.end());
  EXPECT_EQ(static_cast<int>(seen.size()), count);
}

// Random sequences against a model that knows the whole text before and in every cached block. The longest match of a
// prompt is then what shares most tokens with it. PFX-07.
class RandomRadixCache {
 public:
  explicit RandomRadixCache(unsigned seed)
      : random_(seed),
        block_size_(Draw(1, 5)),
        allocator_(Draw(1, 40)),
        cache_(&allocator_, block_size_, DrawConfig()) {}

  void Run() {
    for (int step = 0; step < 400 && !testing::Test::HasFailure(); ++step) {
      const int action = Draw(0, 11);
      if (action == 11) {
        cache_.SetTime(TimePoint() + std::chrono::seconds(step));
      } else if (action == 10) {
        Retain(step);
      } else if (action < 4) {
        Begin();
      } else if (action < 8) {
        Grow();
      } else if (action == 8) {
        End();
      } else {
        cache_.Evict(Draw(1, 4));
      }
      Check();
    }
    while (!live_.empty()) End();
    Check();
    cache_.Evict(allocator_.num_blocks());
    EXPECT_EQ(allocator_.num_free(), allocator_.num_blocks());
  }

 private:
  struct Live {
    std::string cache_namespace;
    std::vector<TokenId> tokens;
    RadixCache::Lock lock;
    BlockTable table;
    int num_published = 0;  // blocks
  };
  struct Known {
    std::string cache_namespace;
    std::vector<TokenId> text;  // up to the end of the block
  };

  int Draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  RadixCacheConfig DrawConfig() {
    return {.eviction_policy = kEvictionPolicies[Draw(0, std::size(kEvictionPolicies) - 1)],
            .max_retained_blocks = Draw(0, 20)};
  }
  std::vector<TokenId> DrawTokens(int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(TokenId(Draw(0, 1) * Draw(0, 2)));  // many alike
    return tokens;
  }
  bool TakeBlock(BlockTable* table) {
    if (allocator_.num_free() == 0 && cache_.Evict(1) == 0) return false;
    table->Append(allocator_.Allocate());
    return true;
  }
  static int CountCommon(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
    return static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
  }

  void Begin() {
    Live live{.cache_namespace = Draw(0, 3) == 0 ? "other" : "",
              .tokens = DrawTokens(Draw(0, 20)),
              .lock = {},
              .table = BlockTable(&allocator_, block_size_)};
    int expected = 0;
    for (const auto& [block, known] : known_) {
      if (known.cache_namespace == live.cache_namespace)
        expected = std::max(expected, CountCommon(known.text, live.tokens));
    }
    ASSERT_EQ(cache_.Peek(live.cache_namespace, live.tokens), expected);
    RadixCache::MatchResult match = cache_.Match(live.cache_namespace, live.tokens, &live.table);
    ASSERT_EQ(match.num_full_blocks * block_size_ + match.num_tail_tokens, expected);
    live.lock = std::move(match.lock);
    if (Draw(0, 3) > 0) cache_.CountUse(&live.lock);
    live.num_published = match.num_full_blocks;
    for (int i = 0; i < match.num_full_blocks; ++i)
      CheckBlock(live, live.table.blocks()[static_cast<std::size_t>(i)], (i + 1) * block_size_);
    if (match.num_tail_tokens > 0) CheckBlock(live, match.tail_block, expected);
    // The tokens behind the full blocks would be computed now.
    live.tokens.resize(static_cast<std::size_t>(live.num_published * block_size_));
    live_.push_back(std::move(live));
  }

  // The block holds at least `num_tokens` of the sequence's tokens, and what came before.
  void CheckBlock(const Live& live, BlockId block, int num_tokens) {
    const Known& known = known_.at(block);
    ASSERT_EQ(known.cache_namespace, live.cache_namespace);
    ASSERT_GE(CountCommon(known.text, live.tokens), num_tokens);
  }

  // Part of what a sequence has published, for some time.
  void Retain(int step) {
    if (live_.empty()) return;
    const Live& live = live_[static_cast<std::size_t>(Draw(0, static_cast<int>(live_.size()) - 1))];
    const RadixCache::Lock prefix = cache_.LockPrefix(live.lock, Draw(0, live.num_published));
    cache_.Retain(prefix, TimePoint() + std::chrono::seconds(step + Draw(1, 60)));
  }

  void Grow() {
    if (live_.empty()) return;
    Live& live = live_[static_cast<std::size_t>(Draw(0, static_cast<int>(live_.size()) - 1))];
    const int count = Draw(1, 3);
    for (int i = 0; i < count; ++i) {
      if (!TakeBlock(&live.table)) break;
      const auto more = DrawTokens(block_size_);
      live.tokens.insert(live.tokens.end(), more.begin(), more.end());
    }
    const auto first = static_cast<std::size_t>(live.num_published * block_size_);
    cache_.Extend(std::span<const TokenId>(live.tokens).subspan(first), live.num_published, &live.lock, &live.table);
    for (int i = live.num_published; i < live.table.num_blocks(); ++i) {
      const auto end = live.tokens.begin() + (i + 1) * block_size_;
      known_[live.table.blocks()[static_cast<std::size_t>(i)]] = {live.cache_namespace, {live.tokens.begin(), end}};
    }
    live.num_published = live.table.num_blocks();
  }

  void End() {
    if (live_.empty()) return;
    const auto index = Draw(0, static_cast<int>(live_.size()) - 1);
    Live live = std::move(live_[static_cast<std::size_t>(index)]);
    live_.erase(live_.begin() + index);
    if (block_size_ > 1 && Draw(0, 1) == 0 && TakeBlock(&live.table)) {
      const auto tail = DrawTokens(Draw(1, block_size_ - 1));
      BlockRef block = live.table.TakeLast();
      const BlockId id = block.id();
      cache_.AddTail(live.lock, tail, std::move(block));
      live.tokens.insert(live.tokens.end(), tail.begin(), tail.end());
      known_[id] = {live.cache_namespace, live.tokens};  // forgotten by Check() unless it was taken in
    }
    live.table.Clear();
    live.lock.Reset();
  }

  void Check() {
    allocator_.CheckIntegrity();
    std::vector<std::int32_t> ref_counts(static_cast<std::size_t>(allocator_.num_blocks()), 0);
    cache_.CheckIntegrity(&ref_counts);
    std::erase_if(known_,
                  [&](const auto& entry) { return ref_counts[static_cast<std::size_t>(entry.first.value())] == 0; });
    ASSERT_EQ(static_cast<int>(known_.size()), cache_.num_blocks());
    for (const Live& live : live_) {
      for (const BlockId block : live.table.blocks()) ++ref_counts[static_cast<std::size_t>(block.value())];
    }
    for (int i = 0; i < allocator_.num_blocks(); ++i)
      ASSERT_EQ(ref_counts[static_cast<std::size_t>(i)], allocator_.ref_count(BlockId(i)));
    // The whole of what a live sequence has published can be found.
    for (const Live& live : live_)
      ASSERT_EQ(cache_.Peek(live.cache_namespace, live.tokens), static_cast<int>(live.tokens.size()));
  }

  std::mt19937 random_;
  const int block_size_;
  BlockAllocator allocator_;
  RadixCache cache_;
  std::map<BlockId, Known> known_;  // what is in the cache
  std::vector<Live> live_;
};

TEST(RadixCache, RandomOperationsAgreeWithTheModel) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRadixCache(seed).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace quire::kv
