#include "kv/radix_cache.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace quire::kv {
namespace {

// Nodes that are not in use keep room for this many blocks, so that they can be used again without
// allocating, and what they keep stays small beside the pool.
constexpr std::size_t kKeptNodeCapacity = 16;
// A node that grows with a sequence has room for at most so many further blocks at a time (16k tokens, 4 KiB).
constexpr std::size_t kGrowingNodeCapacity = 1024;

std::size_t CountCommonTokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t limit = std::min(a.size(), b.size());
  std::size_t count = 0;
  while (count < limit && a[count] == b[count]) ++count;
  return count;
}

bool IsBefore(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::ranges::lexicographical_compare(a, b);
}

}  // namespace

// ---------------------------------------------------------------- looking up

bool RadixCache::ByFirstBlock::operator()(const Node& a, const Node& b) const {
  return IsBefore(a.first_tokens, b.first_tokens);
}
bool RadixCache::ByFirstBlock::operator()(const Node& a, std::span<const TokenId> b) const {
  return IsBefore(a.first_tokens, b);
}
bool RadixCache::ByFirstBlock::operator()(std::span<const TokenId> a, const Node& b) const {
  return IsBefore(a, b.first_tokens);
}

std::span<const TokenId> RadixCache::BlockTokens(BlockId block) const {
  const auto size = static_cast<std::size_t>(block_size_);
  return std::span(tokens_).subspan(static_cast<std::size_t>(block.value()) * size, size);
}

// The child whose first block holds exactly the first block of `tokens`; null when there is none.
RadixCache::Node* RadixCache::FindChild(Node* parent, std::span<const TokenId> tokens) const {
  if (tokens.size() < static_cast<std::size_t>(block_size_)) return nullptr;
  const auto child = parent->children.find(tokens.first(static_cast<std::size_t>(block_size_)), ByFirstBlock());
  return child == parent->children.end() ? nullptr : &*child;
}

// How many blocks at the start of a full node hold the start of `tokens`.
int RadixCache::CountCommonBlocks(const Node& node, std::span<const TokenId> tokens) const {
  const auto size = static_cast<std::size_t>(block_size_);
  const std::size_t limit = std::min(node.blocks.size(), tokens.size() / size);
  std::size_t count = 0;
  while (count < limit && std::ranges::equal(BlockTokens(node.blocks[count]), tokens.subspan(count * size, size))) {
    ++count;
  }
  return static_cast<int>(count);
}

// No child's first block matches in full; the one that matches longest is a neighbour of the place of
// `tokens`.
void RadixCache::FindTail(Node* parent, std::span<const TokenId> tokens, Position* position) const {
  const auto wanted = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(block_size_)));
  if (wanted.empty()) return;
  const auto consider = [&](Node& child) {
    const int common = static_cast<int>(CountCommonTokens(child.first_tokens, wanted));
    if (common <= position->num_tail_tokens) return;
    position->num_tail_tokens = common;
    position->tail_node = &child;
    position->tail_block = child.blocks.front();
  };
  const auto next = parent->children.lower_bound(wanted, ByFirstBlock());
  if (next != parent->children.end()) consider(*next);
  if (next != parent->children.begin()) consider(*std::prev(next));
}

RadixCache::Position RadixCache::Walk(Node* root, std::span<const TokenId> tokens) const {
  Position position;
  position.node = root;
  while (Node* const child = FindChild(position.node, tokens)) {
    const int count = CountCommonBlocks(*child, tokens);
    position.node = child;
    position.num_node_blocks = count;
    position.num_full_blocks += count;
    tokens = tokens.subspan(static_cast<std::size_t>(count) * static_cast<std::size_t>(block_size_));
    if (count == static_cast<int>(child->blocks.size())) continue;
    const BlockId next = child->blocks[static_cast<std::size_t>(count)];
    position.num_tail_tokens = static_cast<int>(CountCommonTokens(BlockTokens(next), tokens));
    position.tail_node = child;
    position.tail_block = next;
    return position;
  }
  FindTail(position.node, tokens, &position);
  return position;
}

int RadixCache::Peek(std::string_view cache_namespace, std::span<const TokenId> tokens) const {
  Node* const root = FindRoot(cache_namespace);
  if (root == nullptr) return 0;
  const Position position = Walk(root, tokens);
  return position.num_full_blocks * block_size_ + position.num_tail_tokens;
}

RadixCache::MatchResult RadixCache::Match(std::string_view cache_namespace, std::span<const TokenId> tokens,
                                          BlockTable* table) {
  CHECK(table->num_blocks() == 0);
  const Position position = Walk(FindOrMakeRoot(cache_namespace), tokens);
  Node* node = position.node;
  if (position.num_node_blocks < static_cast<int>(node->blocks.size())) node = Split(node, position.num_node_blocks);

  MatchResult result;
  result.lock = Lock(this, node);
  result.lock.is_use_ = false;
  result.num_full_blocks = position.num_full_blocks;
  path_.clear();
  for (; !node->is_root(); node = node->parent) path_.push_back(node);
  for (auto step = path_.rbegin(); step != path_.rend(); ++step) {
    for (const BlockId block : (*step)->blocks) table->AppendShared(block);
  }
  CHECK(table->num_blocks() == result.num_full_blocks);
  if (position.num_tail_tokens > 0) {
    result.num_tail_tokens = position.num_tail_tokens;
    result.tail_block = position.tail_block;
    Touch(position.tail_node);
  }
  return result;
}

// ---------------------------------------------------------------- growing

RadixCache::RadixCache(BlockAllocator* allocator, int block_size, const RadixCacheConfig& config)
    : allocator_(allocator), block_size_(block_size), config_(config) {
  CHECK(allocator != nullptr && block_size > 0 && config.max_retained_blocks >= 0);
  cached_since_.resize(static_cast<std::size_t>(allocator->num_blocks()));
  num_evictions_of_.assign(static_cast<std::size_t>(allocator->num_blocks()), 0);
  tokens_.resize(static_cast<std::size_t>(allocator->num_blocks()) * static_cast<std::size_t>(block_size));
}

RadixCache::~RadixCache() {
  Clear();
  CHECK(roots_.empty());  // no lock is left
}

RadixCache::Node* RadixCache::FindRoot(std::string_view cache_namespace) const {
  const auto found = roots_.find(cache_namespace);
  return found == roots_.end() ? nullptr : found->second;
}

RadixCache::Node* RadixCache::FindOrMakeRoot(std::string_view cache_namespace) {
  if (Node* const root = FindRoot(cache_namespace)) return root;
  Node* const root = NewNode(nullptr);
  const auto [entry, inserted] = roots_.emplace(std::string(cache_namespace), root);
  CHECK(inserted);
  root->cache_namespace = entry->first;
  return root;
}

void RadixCache::DropRootIfUnused(Node* root) {
  if (root->num_pins > 0 || !root->children.empty()) return;
  roots_.erase(roots_.find(root->cache_namespace));
  DeleteNode(root);
}

RadixCache::Node* RadixCache::NewNode(Node* parent) {
  if (free_nodes_.empty()) {
    nodes_.push_back(std::make_unique<Node>());
    free_nodes_.push_back(nodes_.back().get());
  }
  Node* const node = free_nodes_.back();
  free_nodes_.pop_back();
  node->parent = parent;
  return node;
}

void RadixCache::DeleteNode(Node* node) {
  CHECK(node->num_pins == 0 && node->children.empty());
  node->parent = nullptr;
  node->blocks.clear();
  if (node->blocks.capacity() > kKeptNodeCapacity) node->blocks.shrink_to_fit();
  node->first_tokens = {};
  node->cache_namespace = {};
  node->num_uses = 0;
  node->retention = Retention::kNever;
  free_nodes_.push_back(node);
}

// Takes a reference to `block`, whose tokens these are. The caller counts it as evictable when the node has
// no pins.
void RadixCache::AppendBlock(Node* node, BlockId block, std::span<const TokenId> tokens) {
  allocator_->AddRef(block);
  std::ranges::copy(tokens, tokens_.begin() + std::ptrdiff_t{block.value()} * block_size_);
  cached_since_[static_cast<std::size_t>(block.value())] = now_;
  node->blocks.push_back(block);
  ++num_blocks_;
}

// A child with one block, used once, and neither pins nor a place in the order of eviction yet.
RadixCache::Node* RadixCache::AddChild(Node* parent, BlockId first_block, std::span<const TokenId> first_tokens) {
  Node* const node = NewNode(parent);
  node->num_uses = 1;
  AppendBlock(node, first_block, first_tokens);
  node->first_tokens = BlockTokens(first_block).first(first_tokens.size());
  CHECK(parent->children.insert(*node).second);
  return node;
}

// Cuts a node in two. `node` stays the lower part, since locks are of where a node ends; returns the new
// upper part.
RadixCache::Node* RadixCache::Split(Node* node, int num_upper_blocks) {
  CHECK(num_upper_blocks > 0 && num_upper_blocks < static_cast<int>(node->blocks.size()));
  Node* const parent = node->parent;
  Node* const upper = NewNode(parent);
  parent->children.erase(parent->children.iterator_to(*node));
  const auto cut = node->blocks.begin() + num_upper_blocks;
  upper->blocks.assign(node->blocks.begin(), cut);
  upper->first_tokens = node->first_tokens;
  node->blocks.erase(node->blocks.begin(), cut);
  node->first_tokens = BlockTokens(node->blocks.front());
  node->parent = upper;
  CHECK(parent->children.insert(*upper).second);
  CHECK(upper->children.insert(*node).second);
  upper->num_pins = node->num_pins;
  upper->num_uses = node->num_uses;
  upper->age = node->age;
  upper->last_use = node->last_use;
  upper->used_until = node->used_until;
  upper->retention = node->retention;
  upper->retained_until = node->retained_until;
  // The end of a path goes first.
  if (node->is_retained()) retention_order_.insert_before(std::next(retention_order_.iterator_to(*node)), *upper);
  NoteSize(node);
  return upper;
}

// Drops the tail that is a prefix of `tokens`, if there is one. Nothing stands between the two in the order:
// it would begin with the tail's tokens too, and the tail would have gone when it came.
void RadixCache::DropTailBefore(Node* parent, std::span<const TokenId> tokens) {
  const auto next = parent->children.lower_bound(tokens, ByFirstBlock());
  if (next == parent->children.begin()) return;
  Node& before = *std::prev(next);
  if (before.first_tokens.size() < tokens.size() &&
      CountCommonTokens(before.first_tokens, tokens) == before.first_tokens.size()) {
    EvictLastBlock(&before);
  }
}

int RadixCache::Extend(std::span<const TokenId> tokens, int first_block, Lock* lock, BlockTable* table) {
  const auto size = static_cast<std::size_t>(block_size_);
  CHECK(lock->cache_ == this && tokens.size() % size == 0);
  const auto block_at = [&](int index) { return table->blocks()[static_cast<std::size_t>(index)]; };
  while (!tokens.empty()) {
    Node* const child = FindChild(lock->node_, tokens);
    if (child == nullptr) break;
    const int count = CountCommonBlocks(*child, tokens);
    Node* const common = count < static_cast<int>(child->blocks.size()) ? Split(child, count) : child;
    for (const BlockId block : common->blocks) {
      if (block_at(first_block) != block) table->ReplaceShared(first_block, block);
      ++first_block;
    }
    PinOne(common);  // what is above is pinned by the lock already
    ++common->num_uses;
    lock->node_ = common;
    tokens = tokens.subspan(static_cast<std::size_t>(count) * size);
  }
  if (tokens.empty()) return 0;

  const auto num_new = static_cast<int>(tokens.size() / size);
  Node* node = lock->node_;
  if (node->is_root() || node->num_pins > 1 || node->num_uses > 1 || node->is_retained() || !node->children.empty()) {
    DropTailBefore(node, tokens.first(size));
    node = AddChild(node, block_at(first_block++), tokens.first(size));
    node->num_pins = 1;
    lock->node_ = node;
    tokens = tokens.subspan(size);
  }
  // Nobody else has a lock on the node or ever used it, and it is not retained: so it may grow, as far as the sequence
  // does, without allocating in each step.
  const std::size_t to_come = table->num_reserved_blocks() - static_cast<std::size_t>(first_block);
  if (node->blocks.size() + tokens.size() / size > node->blocks.capacity()) {
    node->blocks.reserve(node->blocks.size() + std::max(tokens.size() / size, std::min(to_come, kGrowingNodeCapacity)));
  }
  for (; !tokens.empty(); tokens = tokens.subspan(size)) AppendBlock(node, block_at(first_block++), tokens.first(size));
  return num_new;
}

void RadixCache::AddTail(const Lock& lock, std::span<const TokenId> tokens, BlockRef block) {
  CHECK(lock.cache_ == this && !tokens.empty() && tokens.size() < static_cast<std::size_t>(block_size_));
  CHECK(allocator_->ref_count(block.id()) == 1);
  Node* const parent = lock.node_;
  const auto next = parent->children.lower_bound(tokens, ByFirstBlock());
  if (next != parent->children.end() && CountCommonTokens(next->first_tokens, tokens) == tokens.size()) return;
  DropTailBefore(parent, tokens);
  Node* const tail = AddChild(parent, block.id(), tokens);
  ++num_evictable_blocks_;
  NoteRecentUse(tail);
  tail->used_until = now_;
  JoinOrder(tail);
}

RadixCache::Lock RadixCache::LockPrefix(const Lock& lock, int num_blocks) {
  CHECK(lock.cache_ == this && num_blocks >= 0);
  Node* node = lock.node_;
  while (num_blocks > 0 && num_blocks >= static_cast<int>(node->blocks.size())) {
    CHECK(!node->is_root());
    num_blocks -= static_cast<int>(node->blocks.size());
    node = node->parent;
  }
  if (num_blocks > 0) node = Split(node, static_cast<int>(node->blocks.size()) - num_blocks);
  return Lock(this, node);
}

}  // namespace quire::kv
