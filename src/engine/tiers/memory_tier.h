// A tier in the memory of this process: for `quire verify` and for tests, which need one that is always there.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "engine/tiers/kv_tier.h"

namespace quire::engine {

class MemoryTier final : public KvTier {
 public:
  explicit MemoryTier(std::size_t blocks_max) : blocks_max_(blocks_max) {}

  std::string_view name() const override { return "memory"; }
  void Contains(std::span<const kv::ContentKey> keys, std::span<bool> found) override {
    for (std::size_t i = 0; i < keys.size(); ++i) found[i] = found[i] || blocks_.contains(keys[i]);
  }
  bool Get(const kv::ContentKey& key, std::span<std::byte> block) override {
    const auto entry = blocks_.find(key);
    if (entry == blocks_.end() || entry->second.size() != block.size()) return false;
    std::ranges::copy(entry->second, block.begin());
    return true;
  }
  void Put(const kv::ContentKey& key, std::span<const std::byte> block) override {
    if (blocks_.size() < blocks_max_) blocks_.try_emplace(key, block.begin(), block.end());
  }

 private:
  const std::size_t blocks_max_;
  std::unordered_map<kv::ContentKey, std::vector<std::byte>, kv::ContentKeyHash> blocks_;
};

}  // namespace quire::engine
