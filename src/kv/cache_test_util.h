// A prefix cache as tests of what it evicts want it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/strong_id.h"
#include "kv/block_allocator.h"
#include "kv/block_table.h"
#include "kv/eviction_policy.h"
#include "kv/radix_cache.h"

namespace quire::kv {

// A cache of blocks of two tokens, and sequences that pass through it.
class TestCache {
 public:
  explicit TestCache(EvictionPolicy policy, int max_retained_blocks = 0)
      : cache_(&allocator_, 2, {.eviction_policy = policy, .max_retained_blocks = max_retained_blocks}) {}

  struct Sequence {
    RadixCache::Lock lock;
    BlockTable table;
    std::vector<std::string> texts;  // up to the end of each full block
    std::string matched;             // the picture after the look-up
    std::string touched;             // the text of the block in which the match ended, if it did so
  };

  // A sequence finds what it can of its tokens, has the rest computed, and publishes it.
  Sequence Begin(const std::vector<TokenId>& tokens) {
    Sequence sequence{.lock = {}, .table = BlockTable(&allocator_, 2)};
    RadixCache::MatchResult match = cache_.Match("", tokens, &sequence.table);
    sequence.lock = std::move(match.lock);
    cache_.CountUse(&sequence.lock);
    sequence.matched = ToString();
    if (match.num_tail_tokens > 0) sequence.touched = texts_.at(match.tail_block);
    const auto num_full = tokens.size() / 2;
    const auto first = static_cast<std::size_t>(match.num_full_blocks);
    while (sequence.table.capacity() < static_cast<int>(tokens.size())) sequence.table.Append(allocator_.Allocate());
    const std::span<const TokenId> all(tokens);
    cache_.Extend(all.subspan(first * 2, (num_full - first) * 2), match.num_full_blocks, &sequence.lock,
                  &sequence.table);
    NoteTexts(tokens, &sequence);
    if (tokens.size() % 2 != 0) cache_.AddTail(sequence.lock, all.last(1), sequence.table.TakeLast());
    Check();
    return sequence;
  }
  // A sequence goes on by whole blocks.
  void Append(const std::vector<TokenId>& tokens, Sequence* sequence) {
    const int first = sequence->table.num_blocks();
    for (std::size_t i = 0; i < tokens.size(); i += 2) sequence->table.Append(allocator_.Allocate());
    cache_.Extend(tokens, first, &sequence->lock, &sequence->table);
    Check();
  }
  void Clear() {
    cache_.Clear();
    Check();
  }
  void End(Sequence* sequence) {
    sequence->table.Clear();
    sequence->lock.Reset();
    Check();
  }
  void Run(const std::vector<TokenId>& tokens, int times = 1) {
    for (int i = 0; i < times; ++i) {
      Sequence sequence = Begin(tokens);
      End(&sequence);
    }
  }
  int Evict(int count) {
    const int evicted = cache_.Evict(count);
    Check();
    return evicted;
  }
  void SetTime(TimePoint now) {
    cache_.SetTime(now);
    Check();
  }
  // Has a sequence run, and retains its full blocks.
  void RunRetained(const std::vector<TokenId>& tokens, TimePoint until) {
    Sequence sequence = Begin(tokens);
    cache_.Retain(sequence.lock, until);
    End(&sequence);
  }
  std::string ToString() const { return cache_.ToString(""); }
  RadixCache& cache() { return cache_; }
  // The number of full blocks that were found.
  int LookUp(const std::vector<TokenId>& tokens) {
    BlockTable table(&allocator_, 2);
    const RadixCache::MatchResult match = cache_.Match("", tokens, &table);
    table.Clear();
    return match.num_full_blocks;
  }

 private:
  void NoteTexts(const std::vector<TokenId>& tokens, Sequence* sequence) {
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); i += 2) {
      const bool is_full = i + 1 < tokens.size();
      text += is_full ? fmt::format("{} {};", tokens[i], tokens[i + 1]) : fmt::format("{};", tokens[i]);
      texts_[sequence->table.blocks()[i / 2]] = text;
      if (is_full) sequence->texts.push_back(text);
    }
  }
  void Check() const {
    std::vector<std::int32_t> ref_counts(static_cast<std::size_t>(allocator_.num_blocks()), 0);
    cache_.CheckIntegrity(&ref_counts);
    allocator_.CheckIntegrity();
  }

  BlockAllocator allocator_{1024};
  RadixCache cache_;
  std::map<BlockId, std::string> texts_;
};

}  // namespace quire::kv
