// Which blocks RadixCache gives up: trees are drawn, then they shrink.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kv/cache_test_util.h"
#include "kv/eviction_policy.h"
#include "kv/kv_test_util.h"
#include "kv/radix_cache.h"

namespace quire::kv {
namespace {

TEST(Eviction, LeastRecentlyUsed) {
  TestCache cache(EvictionPolicy::kLru);
  cache.Run(Tokens({1, 1, 2, 2}), 9);
  cache.Run(Tokens({1, 1, 3, 3}));
  cache.Run(Tokens({5, 5, 6, 6}));
  EXPECT_EQ(cache.ToString(), "1 1\n  2 2\n  3 3\n5 5 | 6 6\n");
  cache.Evict(1);  // however often it was used
  EXPECT_EQ(cache.ToString(), "1 1\n  3 3\n5 5 | 6 6\n");
  cache.Run(Tokens({1, 1}));  // above 3 3, which nobody has used since
  cache.Evict(2);
  EXPECT_EQ(cache.ToString(), "1 1\n5 5\n");
  cache.Evict(1);
  EXPECT_EQ(cache.ToString(), "1 1\n");
}

TEST(Eviction, LeastFrequentlyUsed) {
  TestCache cache(EvictionPolicy::kLfu);
  cache.Run(Tokens({1, 1, 2, 2}), 3);
  cache.Run(Tokens({1, 1, 3, 3}), 2);
  cache.Run(Tokens({5, 5, 6, 6}));
  cache.Run(Tokens({7, 7}));
  EXPECT_EQ(cache.ToString(), "1 1\n  2 2\n  3 3\n5 5 | 6 6\n7 7\n");
  cache.Evict(1);  // used once, like 7 7, but before it; from its end
  EXPECT_EQ(cache.ToString(), "1 1\n  2 2\n  3 3\n5 5\n7 7\n");
  cache.Evict(2);
  EXPECT_EQ(cache.ToString(), "1 1\n  2 2\n  3 3\n");
  cache.Evict(1);  // used twice
  EXPECT_EQ(cache.ToString(), "1 1\n  2 2\n");
  cache.Evict(1);  // three times; what is above it, five times
  EXPECT_EQ(cache.ToString(), "1 1\n");
}

// Five uses that are long past weigh less than one that is recent, once as much was evicted.
TEST(Eviction, FrequencyAges) {
  TestCache cache(EvictionPolicy::kLfu);
  cache.Run(Tokens({1, 1}), 5);
  for (int i = 10; i < 14; ++i) {
    cache.Run(Tokens({i, i}));
    cache.Evict(1);
    EXPECT_EQ(cache.ToString(), "1 1\n");  // the age is i - 9
  }
  cache.Run(Tokens({20, 20}));
  cache.Evict(1);  // both have the priority 5
  EXPECT_EQ(cache.ToString(), "20 20\n");
}

TEST(Eviction, SizeAware) {
  TestCache cache(EvictionPolicy::kSizeAware);
  cache.Run(Tokens({5, 5, 6, 6}));
  cache.Run(Tokens({1, 1, 2, 2, 3, 3, 4, 4}));
  cache.Run(Tokens({7, 7}));
  EXPECT_EQ(cache.ToString(), "1 1 | 2 2 | 3 3 | 4 4\n5 5 | 6 6\n7 7\n");
  cache.Evict(2);  // the longest, down to the length of the next one, which was used before it
  EXPECT_EQ(cache.ToString(), "1 1 | 2 2\n5 5 | 6 6\n7 7\n");
  cache.Evict(1);
  EXPECT_EQ(cache.ToString(), "1 1 | 2 2\n5 5\n7 7\n");
  cache.Evict(1);
  EXPECT_EQ(cache.ToString(), "1 1\n5 5\n7 7\n");
  cache.Evict(1);  // equally long and equally often: the least recently used
  EXPECT_EQ(cache.ToString(), "1 1\n7 7\n");
}

TEST(Eviction, SizeAwareWeighsUses) {
  TestCache cache(EvictionPolicy::kSizeAware);
  cache.Run(Tokens({1, 1, 2, 2, 3, 3, 4, 4}), 5);  // 5/4 a block
  cache.Run(Tokens({5, 5}));                       // 1
  EXPECT_EQ(cache.ToString(), "1 1 | 2 2 | 3 3 | 4 4\n5 5\n");
  cache.Evict(1);
  EXPECT_EQ(cache.ToString(), "1 1 | 2 2 | 3 3 | 4 4\n");
}

// Only what was used counts: what a sequence adds behind a prefix that many use is used once.
TEST(Eviction, ANodeDoesNotGrowOnceItWasUsed) {
  TestCache cache(EvictionPolicy::kLfu);
  cache.Run(Tokens({1, 1}), 3);
  cache.Run(Tokens({1, 1, 2, 2}));
  cache.Run(Tokens({5, 5}), 2);
  EXPECT_EQ(cache.ToString(), "1 1\n  2 2\n5 5\n");
  cache.Evict(1);
  EXPECT_EQ(cache.ToString(), "1 1\n5 5\n");
  cache.Evict(1);
  EXPECT_EQ(cache.ToString(), "1 1\n");
}

// A sequence that looks the cache up but finds no room has used nothing yet.
TEST(Eviction, ALookUpIsNotAUse) {
  TestCache cache(EvictionPolicy::kLfu);
  cache.Run(Tokens({1, 1}));
  cache.Run(Tokens({5, 5}), 2);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(cache.LookUp(Tokens({1, 1})), 1);
  }
  cache.Evict(1);
  EXPECT_EQ(cache.ToString(), "5 5\n");
}

TEST(Eviction, WhatIsInUseStays) {
  for (const EvictionPolicy policy : kEvictionPolicies) {
    SCOPED_TRACE(EvictionPolicyName(policy));
    TestCache cache(policy);
    TestCache::Sequence used = cache.Begin(Tokens({1, 1, 2, 2}));
    cache.Run(Tokens({1, 1, 2, 2, 3, 3}), 4);
    EXPECT_EQ(cache.Evict(9), 1);
    EXPECT_EQ(cache.ToString(), "1 1 | 2 2 *\n");
    cache.End(&used);
    EXPECT_EQ(cache.Evict(9), 2);
  }
}

// What the documentation says about the order, found by trying every leaf of the drawn tree: what is known of a block
// is kept under the text up to its end.
class NaiveModel {
 public:
  explicit NaiveModel(EvictionPolicy policy) : policy_(policy) {}

  struct Block {
    std::uint64_t num_uses = 1, last_use = 0, age = 0;
    TimePoint retained_until{};
  };
  // A line of a picture: the texts of its blocks, in order.
  struct Node {
    std::vector<std::string> blocks;
    bool is_leaf = true, is_pinned = false;
  };

  static std::vector<Node> Parse(const std::string& picture) {
    std::vector<Node> nodes;
    std::vector<std::size_t> path;  // by depth
    std::istringstream lines(picture);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t depth = line.find_first_not_of(' ') / 2;
      path.resize(depth);
      Node node;
      if (depth > 0) nodes[path.back()].is_leaf = false;
      std::string text = depth > 0 ? nodes[path.back()].blocks.back() : "";
      line = line.substr(2 * depth);
      if (const auto star = line.find(" *"); star != std::string::npos) {
        node.is_pinned = true;
        line.resize(star);
      }
      for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 3) {
        end = line.find(" | ", begin);
        text += line.substr(begin, end == std::string::npos ? end : end - begin) + ";";
        node.blocks.push_back(text);
      }
      path.push_back(nodes.size());
      nodes.push_back(node);
    }
    return nodes;
  }

  // A sequence came with these full blocks; `after` is the picture then.
  void Begin(const std::vector<std::string>& texts, const std::string& after) {
    for (const std::string& text : texts) {
      const auto [known, is_new] = blocks_.try_emplace(text);
      if (!is_new) ++known->second.num_uses;
    }
    // A new tail has no user.
    for (const Node& node : Parse(after)) {
      const auto [known, is_new] = blocks_.try_emplace(node.blocks.back());
      if (is_new) NoteUse(&known->second);
    }
    Forget(after);
  }
  // A match ended inside the block of this text, with which a node begins.
  void Touch(const std::string& text, const std::string& picture) {
    for (const Node& node : Parse(picture)) {
      if (node.is_pinned || node.blocks.front() != text) continue;
      const Block used = NextUse(blocks_.at(text));
      for (const std::string& block : node.blocks) blocks_.at(block) = used;
    }
  }
  // A sequence went: nodes that were pinned are not any more, the deepest first.
  void End(const std::string& before, const std::string& after) {
    const std::vector<Node> old_nodes = Parse(before), new_nodes = Parse(after);
    ASSERT_EQ(old_nodes.size(), new_nodes.size());
    for (std::size_t i = new_nodes.size(); i-- > 0;) {
      if (!old_nodes[i].is_pinned || new_nodes[i].is_pinned) continue;
      const Block used = NextUse(blocks_.at(new_nodes[i].blocks.back()));
      for (const std::string& block : new_nodes[i].blocks) blocks_.at(block) = used;
    }
  }
  // The text of the block that goes next; nullopt when none may.
  std::optional<std::string> Evict(const std::string& picture) {
    std::optional<std::string> victim;
    std::tuple<bool, std::uint64_t, std::uint64_t> least;
    for (const Node& node : Parse(picture)) {
      if (!node.is_leaf || node.is_pinned) continue;
      const Block& block = blocks_.at(node.blocks.back());
      const std::tuple key(block.retained_until > now_,
                           EvictionPriority(policy_, block.age, block.num_uses, node.blocks.size()), block.last_use);
      if (victim && key >= least) continue;
      victim = node.blocks.back();
      least = key;
    }
    if (victim) age_ = std::max(age_, std::get<1>(least));
    return victim;
  }
  // The path to this text, up to its last block.
  void Retain(const std::string& text, TimePoint until) {
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {  // a text comes after its beginnings
      if (!text.starts_with(block->first)) continue;
      until = std::max(until, block->second.retained_until);
      block->second.retained_until = until;
    }
  }
  void SetTime(TimePoint now) { now_ = now; }
  void Forget(const std::string& picture) {
    std::map<std::string, Block> kept;
    for (const Node& node : Parse(picture)) {
      for (const std::string& block : node.blocks) kept[block] = blocks_.at(block);
    }
    blocks_ = std::move(kept);
  }

 private:
  Block NextUse(const Block& block) {
    return {.num_uses = block.num_uses, .last_use = ++num_uses_, .age = age_, .retained_until = block.retained_until};
  }
  void NoteUse(Block* block) { *block = NextUse(*block); }

  const EvictionPolicy policy_;
  std::map<std::string, Block> blocks_;
  std::uint64_t num_uses_ = 0, age_ = 0;
  TimePoint now_{};
};

class RandomEvictions {
 public:
  RandomEvictions(EvictionPolicy policy, unsigned seed) : random_(seed), cache_(policy, 1024), model_(policy) {}

  void Run() {
    for (int step = 0; step < 300 && !testing::Test::HasFailure(); ++step) {
      const int action = Draw(0, 9);
      if (action < 5) {
        Begin();
      } else if (action < 8) {
        End();
      } else {
        Evict(Draw(1, 6));
      }
      Wait();
    }
    while (!live_.empty()) End();
    Evict(1024);
    EXPECT_EQ(cache_.ToString(), "");
  }

 private:
  int Draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  void Begin() {
    std::vector<TokenId> tokens;
    for (int i = Draw(1, 13); i > 0; --i) tokens.push_back(TokenId(Draw(0, 1) + Draw(0, 1)));
    live_.push_back(cache_.Begin(tokens));
    const TestCache::Sequence& sequence = live_.back();
    model_.Touch(sequence.touched, sequence.matched);
    model_.Begin(sequence.texts, cache_.ToString());
    if (!sequence.texts.empty() && Draw(0, 2) == 0) {
      const TimePoint until = clock_.Now() + std::chrono::seconds(Draw(1, 20));
      cache_.cache().Retain(sequence.lock, until);
      model_.Retain(sequence.texts.back(), until);
    }
    if (live_.size() > 4) End();
  }

  void Wait() {
    clock_.Advance(std::chrono::seconds(Draw(0, 2)));
    cache_.SetTime(clock_.Now());
    model_.SetTime(clock_.Now());
  }

  void End() {
    if (live_.empty()) return;
    const auto index = Draw(0, static_cast<int>(live_.size()) - 1);
    const std::string before = cache_.ToString();
    cache_.End(&live_[static_cast<std::size_t>(index)]);
    live_.erase(live_.begin() + index);
    model_.End(before, cache_.ToString());
  }

  void Evict(int count) {
    for (; count > 0 && !testing::Test::HasFailure(); --count) {
      const std::string before = cache_.ToString();
      const auto expected = model_.Evict(before);
      ASSERT_EQ(cache_.Evict(1), expected ? 1 : 0) << before;
      if (!expected) return;
      for (const NaiveModel::Node& node : NaiveModel::Parse(cache_.ToString())) {
        ASSERT_TRUE(std::ranges::find(node.blocks, *expected) == node.blocks.end()) << before << "went on with\n"
                                                                                    << cache_.ToString();
      }
      model_.Forget(cache_.ToString());
    }
  }

  std::mt19937 random_;
  ManualClock clock_;
  TestCache cache_;
  NaiveModel model_;
  std::vector<TestCache::Sequence> live_;
};

TEST(Eviction, RandomEvictionsAgreeWithTheModel) {
  for (const EvictionPolicy policy : kEvictionPolicies) {
    for (unsigned seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE(testing::Message() << EvictionPolicyName(policy) << ", seed " << seed);
      RandomEvictions(policy, seed).Run();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace quire::kv
