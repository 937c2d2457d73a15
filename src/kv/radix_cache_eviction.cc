// Which nodes of a RadixCache are in use, and in which order the others go.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "kv/radix_cache.h"

namespace quire::kv {

// ---------------------------------------------------------------- locks

RadixCache::Lock::Lock(RadixCache* cache, Node* node) : cache_(cache), node_(node) {
  cache->PinPath(node);
}

RadixCache::Lock& RadixCache::Lock::operator=(Lock&& other) noexcept {
  if (this != &other) {
    Reset();
    cache_ = std::exchange(other.cache_, nullptr);
    node_ = other.node_;
  }
  return *this;
}

RadixCache::Lock RadixCache::Lock::Share() const {
  return cache_ == nullptr ? Lock() : Lock(cache_, node_);
}

void RadixCache::Lock::Reset() {
  if (cache_ != nullptr) std::exchange(cache_, nullptr)->UnpinPath(node_);
}

void RadixCache::PinOne(Node* node) {
  if (node->num_pins++ > 0 || node->is_root()) return;
  LeaveOrder(node);
  num_evictable_blocks_ -= static_cast<int>(node->blocks.size());
}

void RadixCache::PinPath(Node* node) {
  for (; node != nullptr; node = node->parent) PinOne(node);
}

void RadixCache::UnpinPath(Node* node) {
  while (node != nullptr) {
    Node* const parent = node->parent;
    CHECK(node->num_pins > 0);
    if (--node->num_pins == 0) {
      if (node->is_root()) {
        DropRootIfUnused(node);
      } else {
        num_evictable_blocks_ += static_cast<int>(node->blocks.size());
        NoteRecentUse(node);
        JoinOrder(node);
      }
    }
    node = parent;
  }
}

int RadixCache::CountBlocksOnlyOf(const Lock& lock) const {
  int count = 0;
  for (const Node* node = lock.cache_ == this ? lock.node_ : nullptr; node != nullptr && node->num_pins == 1;
       node = node->parent) {
    count += static_cast<int>(node->blocks.size());
  }
  return count;
}

// ---------------------------------------------------------------- the order

bool RadixCache::GoesBefore::operator()(const Node& a, const Node& b) const {
  return std::pair(a.priority, a.last_use) < std::pair(b.priority, b.last_use);
}

void RadixCache::NoteRecentUse(Node* node) {
  node->last_use = ++num_recent_uses_;
  node->age = age_;
}

void RadixCache::JoinOrder(Node* node) {
  if (!node->is_evictable_leaf()) return;
  node->priority = EvictionPriority(policy_, node->age, node->num_uses, node->blocks.size());
  // With LRU it is the last one, unless it has just become a leaf: then this takes O(1).
  eviction_order_.insert(eviction_order_.end(), *node);
}

void RadixCache::LeaveOrder(Node* node) {
  if (node->is_in_order()) eviction_order_.erase(eviction_order_.iterator_to(*node));
}

void RadixCache::Touch(Node* node) {
  if (node->num_pins > 0) return;
  LeaveOrder(node);
  NoteRecentUse(node);
  JoinOrder(node);
}

void RadixCache::CountUse(const Lock& lock) {
  CHECK(lock.cache_ == this);
  for (Node* node = lock.node_; !node->is_root(); node = node->parent) ++node->num_uses;
}

void RadixCache::NoteSize(Node* node) {
  if (policy_ != EvictionPolicy::kSizeAware || !node->is_in_order()) return;
  LeaveOrder(node);
  JoinOrder(node);
}

// ---------------------------------------------------------------- shrinking

void RadixCache::EvictLastBlock(Node* leaf) {
  CHECK(leaf->is_evictable_leaf());
  const BlockId block = leaf->blocks.back();
  CHECK(allocator_->ref_count(block) == 1);
  allocator_->Release(block);
  ++num_evictions_of_[static_cast<std::size_t>(block.value())];
  leaf->blocks.pop_back();
  --num_blocks_;
  --num_evictable_blocks_;
  if (!leaf->blocks.empty()) return NoteSize(leaf);
  Node* const parent = leaf->parent;
  LeaveOrder(leaf);
  parent->children.erase(parent->children.iterator_to(*leaf));
  DeleteNode(leaf);
  if (parent->is_root()) return DropRootIfUnused(parent);
  JoinOrder(parent);
}

int RadixCache::Evict(int num_blocks) {
  int count = 0;
  for (; count < num_blocks && !eviction_order_.empty(); ++count) {
    Node& first = *eviction_order_.begin();
    age_ = std::max(age_, first.priority);
    EvictLastBlock(&first);
  }
  num_evicted_blocks_ += static_cast<std::uint64_t>(count);
  return count;
}

}  // namespace quire::kv
