// Cached blocks that wait to be written to lower tiers, by reference only: whoever takes one copies it then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strong_id.h"
#include "kv/content_key.h"

namespace quire::kv {

struct KeyedBlock {
  ContentKey key;
  BlockId block;
  // RadixCache::num_evictions_of(block) when it was noted: the block holds the same while it is the same.
  std::uint32_t num_evictions = 0;
};

// A ring: the oldest gives way when it is full. One thread; allocates nothing after it was made.
class KeyedBlocks final {
 public:
  KeyedBlocks(std::string_view identity, std::size_t capacity) : hasher_(identity), ring_(capacity) {}

  ContentHasher& hasher() { return hasher_; }
  bool empty() const { return size_ == 0; }
  std::uint64_t num_lost() const { return num_lost_; }
  void CountLost() { ++num_lost_; }

  void Push(const KeyedBlock& block) {
    if (size_ == ring_.size()) {
      (void)Pop();
      CountLost();
    }
    ring_[(first_ + size_++) % ring_.size()] = block;
  }
  // Only when it is not empty.
  KeyedBlock Pop() {
    --size_;
    return ring_[std::exchange(first_, (first_ + 1) % ring_.size())];
  }

 private:
  ContentHasher hasher_;
  std::vector<KeyedBlock> ring_;
  std::size_t first_ = 0, size_ = 0;
  std::uint64_t num_lost_ = 0;
};

}  // namespace quire::kv
