// Which nodes of a RadixCache are in use or retained, and in which order the others go.
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
    is_use_ = other.is_use_;
  }
  return *this;
}

RadixCache::Lock RadixCache::Lock::Share() const {
  return cache_ == nullptr ? Lock() : Lock(cache_, node_);
}

void RadixCache::Lock::Reset() {
  if (cache_ != nullptr) std::exchange(cache_, nullptr)->UnpinPath(node_, is_use_);
}

void RadixCache::PinOne(Node* node) {
  if (node->num_pins++ > 0 || node->is_root()) return;
  LeaveOrder(node);
  num_evictable_blocks_ -= static_cast<int>(node->blocks.size());
}

void RadixCache::PinPath(Node* node) {
  for (; node != nullptr; node = node->parent) PinOne(node);
}

void RadixCache::UnpinPath(Node* node, bool was_used) {
  while (node != nullptr) {
    Node* const parent = node->parent;
    CHECK(node->num_pins > 0);
    if (was_used) node->used_until = now_;
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
  node->priority = EvictionPriority(config_.eviction_policy, node->age, node->num_uses, node->blocks.size());
  // With LRU it is the last one, unless it has just become a leaf: then this takes O(1).
  EvictionOrder& order = OrderOf(*node);
  order.insert(order.end(), *node);
}

void RadixCache::LeaveOrder(Node* node) {
  if (!node->is_in_order()) return;
  EvictionOrder& order = OrderOf(*node);
  order.erase(order.iterator_to(*node));
}

void RadixCache::Touch(Node* node) {
  if (node->num_pins > 0) return;
  LeaveOrder(node);
  NoteRecentUse(node);
  JoinOrder(node);
}

void RadixCache::CountUse(Lock* lock) {
  CHECK(lock->cache_ == this && !lock->is_use_);
  lock->is_use_ = true;
  for (Node* node = lock->node_; !node->is_root(); node = node->parent) {
    ++node->num_uses;
    const Duration gap = node->num_pins > 1 ? Duration() : now_ - node->used_until;  // one pin is the lock's
    stats_.reuse_gap.Add(gap, node->blocks.size());
  }
}

void RadixCache::NoteSize(Node* node) {
  if (config_.eviction_policy != EvictionPolicy::kSizeAware || !node->is_in_order()) return;
  LeaveOrder(node);
  JoinOrder(node);
}

// ---------------------------------------------------------------- retention

bool RadixCache::EndsBefore::operator()(const Node& a, const Node& b) const {
  return a.retained_until < b.retained_until;
}

void RadixCache::SetTime(TimePoint now) {
  now_ = std::max(now_, now);
  while (!retention_order_.empty() && retention_order_.begin()->retained_until <= now_) {
    EndRetention(&*retention_order_.begin(), Retention::kOver);
  }
}

void RadixCache::Retain(const Lock& lock, TimePoint until) {
  CHECK(lock.cache_ == this);
  // A step is committed as of its end, when the time of the next one's plan is known already.
  if (until <= now_) return;
  for (Node* node = lock.node_; !node->is_root(); node = node->parent) {  // pinned, so not in the order of eviction
    if (node->is_retained()) {
      until = std::max(until, node->retained_until);  // so that what is above ends no sooner
      retention_order_.erase(retention_order_.iterator_to(*node));
    } else {
      num_retained_blocks_ += static_cast<int>(node->blocks.size());
    }
    node->retention = Retention::kNow;
    node->retained_until = until;
    retention_order_.insert(*node);  // behind those that end at the same time
  }
  while (num_retained_blocks_ > config_.max_retained_blocks) {
    EndRetention(&*retention_order_.begin(), Retention::kNever);
  }
}

void RadixCache::EndRetention(Node* node, Retention after) {
  LeaveOrder(node);
  retention_order_.erase(retention_order_.iterator_to(*node));
  num_retained_blocks_ -= static_cast<int>(node->blocks.size());
  node->retention = after;
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
  if (leaf->is_retained()) --num_retained_blocks_;
  if (!leaf->blocks.empty()) return NoteSize(leaf);
  Node* const parent = leaf->parent;
  LeaveOrder(leaf);
  if (leaf->is_retained()) retention_order_.erase(retention_order_.iterator_to(*leaf));
  parent->children.erase(parent->children.iterator_to(*leaf));
  DeleteNode(leaf);
  if (parent->is_root()) return DropRootIfUnused(parent);
  JoinOrder(parent);
}

void RadixCache::NoteEviction(const Node& leaf) {
  switch (leaf.retention) {
    case Retention::kNever:
      ++stats_.evicted_for_capacity;
      break;
    case Retention::kNow:
      ++stats_.evicted_while_retained;
      break;
    case Retention::kOver:
      ++stats_.evicted_after_retention;
      break;
  }
  stats_.lifetime.Add(now_ - cached_since_[static_cast<std::size_t>(leaf.blocks.back().value())]);
  stats_.idle_before_evict.Add(now_ - leaf.used_until);
}

// There is one while any block can be evicted: whatever stands below a node without pins has none either.
RadixCache::Node& RadixCache::FirstToGo() {
  return *eviction_orders_[eviction_orders_[0].empty() ? 1 : 0].begin();
}

int RadixCache::Evict(int num_blocks) {
  int count = 0;
  for (; count < num_blocks && num_evictable_blocks_ > 0; ++count) {
    Node& first = FirstToGo();
    age_ = std::max(age_, first.priority);
    NoteEviction(first);
    EvictLastBlock(&first);
  }
  return count;
}

void RadixCache::Clear() {
  stats_.evicted_by_reset += static_cast<std::uint64_t>(num_evictable_blocks_);
  while (num_evictable_blocks_ > 0) EvictLastBlock(&FirstToGo());
}

}  // namespace quire::kv
