// What RadixCache promises, checked, and a picture of it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kv/radix_cache.h"

namespace quire::kv {

// One node against its parent, its children and the blocks that it names.
void RadixCache::CheckNode(const Node& node) const {
  if (node.is_root()) {
    CHECK(node.blocks.empty());
    CHECK(node.num_pins > 0 || !node.children.empty());
  } else {
    CHECK(!node.blocks.empty() && !node.first_tokens.empty());
    CHECK(node.first_tokens.data() == BlockTokens(node.blocks.front()).data());
    CHECK(node.is_in_order() == node.is_evictable_leaf());
    CHECK(static_cast<const RetentionHook&>(node).is_linked() == node.is_retained());
    // What is retained is retained from the root on, and goes from the end.
    if (node.is_retained()) {
      CHECK(node.retained_until > now_);
      CHECK(node.parent->is_root() || (node.parent->is_retained() && !EndsBefore()(*node.parent, node)));
    }
    CHECK(node.num_uses > 0 && node.age <= age_ && node.last_use <= num_recent_uses_);
    if (node.is_in_order()) {
      CHECK(node.priority == EvictionPriority(config_.eviction_policy, node.age, node.num_uses, node.blocks.size()));
    }
    const bool is_tail = node.first_tokens.size() < static_cast<std::size_t>(block_size_);
    if (is_tail) CHECK(node.blocks.size() == 1 && node.children.empty() && node.num_pins == 0);
    for (const BlockId block : node.blocks) {
      CHECK(node.num_pins == 0 ? allocator_->ref_count(block) == 1 : allocator_->ref_count(block) >= 1);
    }
  }
  int num_child_pins = 0;
  const Node* before = nullptr;
  for (const Node& child : node.children) {
    CHECK(child.parent == &node);
    num_child_pins += child.num_pins;
    if (before != nullptr) {
      CHECK(ByFirstBlock()(*before, child));
      // No tail is a prefix of a sibling.
      CHECK(!std::ranges::equal(before->first_tokens, child.first_tokens.first(std::min(before->first_tokens.size(),
                                                                                        child.first_tokens.size()))));
    }
    before = &child;
  }
  CHECK(node.num_pins >= num_child_pins);
}

void RadixCache::CheckIntegrity(std::vector<std::int32_t>* ref_counts) const {
  CHECK(ref_counts->size() == static_cast<std::size_t>(allocator_->num_blocks()));
  for (const bool retained : {false, true}) {
    const EvictionOrder& order = eviction_orders_[retained ? 1 : 0];
    CHECK(std::ranges::is_sorted(order, GoesBefore()));
    CHECK(std::ranges::all_of(order, [&](const Node& node) { return node.is_retained() == retained; }));
  }
  CHECK(std::ranges::is_sorted(retention_order_, EndsBefore()));
  CHECK(num_retained_blocks_ <= config_.max_retained_blocks);
  int num_blocks = 0, num_evictable_blocks = 0, num_retained_blocks = 0;
  std::size_t num_nodes = 0, num_leaves = 0;
  std::vector<const Node*> todo;
  for (const auto& [cache_namespace, root] : roots_) {
    CHECK(root->is_root() && root->cache_namespace == cache_namespace);
    todo.push_back(root);
  }
  std::vector<bool> seen(ref_counts->size(), false);
  while (!todo.empty()) {
    const Node& node = *todo.back();
    todo.pop_back();
    ++num_nodes;
    CheckNode(node);
    num_blocks += static_cast<int>(node.blocks.size());
    if (node.is_retained()) num_retained_blocks += static_cast<int>(node.blocks.size());
    if (node.num_pins == 0 && !node.is_root()) {
      num_evictable_blocks += static_cast<int>(node.blocks.size());
      if (node.children.empty()) ++num_leaves;
    }
    for (const BlockId block : node.blocks) {
      const auto index = static_cast<std::size_t>(block.value());
      CHECK(!seen[index]);
      seen[index] = true;
      ++(*ref_counts)[index];
    }
    for (const Node& child : node.children) todo.push_back(&child);
  }
  CHECK(num_blocks == num_blocks_ && num_evictable_blocks == num_evictable_blocks_);
  CHECK(num_leaves == eviction_orders_[0].size() + eviction_orders_[1].size());
  CHECK(num_retained_blocks == num_retained_blocks_);
  CHECK(num_nodes + free_nodes_.size() == nodes_.size());
}

std::string RadixCache::ToString(std::string_view cache_namespace) const {
  std::string text;
  const Node* const root = FindRoot(cache_namespace);
  if (root == nullptr) return text;
  std::vector<std::pair<const Node*, std::size_t>> todo;  // with the depth
  const auto push_children = [&](const Node& node, std::size_t depth) {
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) todo.emplace_back(&*child, depth);
  };
  push_children(*root, 0);
  while (!todo.empty()) {
    const auto [node, depth] = todo.back();
    todo.pop_back();
    text.append(2 * depth, ' ');
    for (const BlockId block : node->blocks) {
      if (block != node->blocks.front()) text += " | ";
      const auto tokens = BlockTokens(block).first(node->first_tokens.size());
      for (std::size_t i = 0; i < tokens.size(); ++i)
        fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : " ", tokens[i]);
    }
    text += node->num_pins == 0 ? "\n" : " " + std::string(static_cast<std::size_t>(node->num_pins), '*') + "\n";
    push_children(*node, depth + 1);
  }
  return text;
}

}  // namespace quire::kv
