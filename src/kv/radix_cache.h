// Which blocks of the pool hold the keys and values of which token ids: a radix tree per namespace.
//
// A node stands for a run of one or more blocks, and starts at a block boundary:
//
//   root ─┬─ [A A A A|B B B B|C C C C] ─┬─ [D D D D]           full node: every block is full
//         │                             └─ [D D E E|F F F F]   siblings may share the start of their first
//         block └─ [A A B]                                           tail: one block that is not full, never
//         a parent
//
// * Children of a node are ordered by the tokens of their first block, so the child that shares most tokens
// with a
//   prompt stands next to the place where the prompt would be inserted: matching is exact to the token
//   although the memory is paged. A hit that ends inside a block names the block to copy from.
// * Tokens are compared in full, never by hash.
// * A Lock pins a node and so all nodes above it. Nodes without pins form one list in the order in which they
// will
//   be evicted. Unpinning appends a path from its end upwards, so a child always stands before its parent,
//   the head of the list is always a leaf, and evicting a block from the least recently used leaf takes O(1).
// * No tail is a prefix of a sibling: when a sibling that continues it is inserted, the tail goes.
//
// The cache owns one reference to each of its blocks. Whoever uses a cached block holds a Lock on its node,
// so the blocks of nodes without pins have no other owner, and evicting them frees them.
#pragma once

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/strong_id.h"
#include "kv/block_allocator.h"
#include "kv/block_table.h"

namespace quire::kv {

// One thread. The allocator outlives it, and it outlives its locks.
class RadixCache final {
 private:
  struct Node;

 public:
  // Keeps the blocks of a path in the cache. Move-only.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)), node_(other.node_) {}
    Lock& operator=(Lock&& other) noexcept;
    ~Lock() { Reset(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    explicit operator bool() const { return cache_ != nullptr; }
    Lock Share() const;
    void Reset();

   private:
    friend class RadixCache;
    Lock(RadixCache* cache, Node* node);

    RadixCache* cache_ = nullptr;
    Node* node_ = nullptr;
  };

  struct MatchResult {
    Lock lock;                // of the path of the full blocks; of the namespace's root when there are none
    int num_full_blocks = 0;  // appended to the table, in order
    int num_tail_tokens = 0;  // further tokens that match inside one more block, < block_size
    BlockId
        tail_block;  // that block, when num_tail_tokens > 0. It is not pinned: copy from it within this step
  };

  RadixCache(BlockAllocator* allocator, int block_size);
  ~RadixCache();
  RadixCache(const RadixCache&) = delete;
  RadixCache& operator=(const RadixCache&) = delete;

  // The longest cached prefix of `tokens`. Appends the full blocks to `table`, which is empty. Counts as a
  // use.
  MatchResult Match(std::string_view cache_namespace, std::span<const TokenId> tokens, BlockTable* table);
  // The length of that prefix in tokens, and nothing else changes.
  int Peek(std::string_view cache_namespace, std::span<const TokenId> tokens) const;

  // Adds further full blocks of a sequence below the node of `lock`, and moves the lock to the node where
  // they end. `tokens` are those of the blocks [first_block, first_block + tokens.size() / block_size) of
  // `table`; the lock's node ends where they begin. A block that the cache has already replaces the one in
  // `table`, whose reference is dropped: both hold the same bits, since keys and values are a function of the
  // tokens and the namespace.
  void Extend(Lock* lock, std::span<const TokenId> tokens, int first_block, BlockTable* table);
  // Adds a block that is only partly filled, with 1 … block_size - 1 tokens, below the node of `lock`. The
  // block must have no other owner. It is dropped when the cache knows its tokens already.
  void AddTail(const Lock& lock, std::span<const TokenId> tokens, BlockRef block);

  // Frees up to `num_blocks` blocks, least recently used first; returns how many.
  int Evict(int num_blocks);

  int num_evictable_blocks() const { return num_evictable_blocks_; }                // in nodes without pins
  int num_protected_blocks() const { return num_blocks_ - num_evictable_blocks_; }  // in nodes with pins
  std::uint64_t num_evicted_blocks() const { return num_evicted_blocks_; }          // so far

  // CHECKs every invariant above; O(size).
  void CheckIntegrity() const;
  // For tests and logs: the nodes of a namespace in order, one a line, indented by depth, as "tokens /
  // blocks", with " *pins" behind pinned ones.
  std::string ToString(std::string_view cache_namespace) const;

 private:
  friend class Lock;

  struct ByFirstBlock;
  using Children = boost::intrusive::set<Node, boost::intrusive::compare<ByFirstBlock>,
                                         boost::intrusive::constant_time_size<false>,
                                         boost::intrusive::base_hook<boost::intrusive::set_base_hook<>>>;
  using EvictionList =
      boost::intrusive::list<Node, boost::intrusive::base_hook<boost::intrusive::list_base_hook<>>>;
  using Roots = std::unordered_map<std::string, Node*>;

  // Where a walk along a prompt ended.
  struct Position {
    Node* node = nullptr;       // the last node of which at least one block matched, or the root
    int num_node_blocks = 0;    // how many of its blocks matched
    int num_full_blocks = 0;    // on the whole path
    Node* tail_node = nullptr;  // that holds the partly matching block; may be `node` itself
    BlockId tail_block;
    int num_tail_tokens = 0;
  };

  std::span<const TokenId> BlockTokens(BlockId block, int num_tokens) const;
  void SetBlockTokens(BlockId block, std::span<const TokenId> tokens);
  int CommonBlocks(const Node& node, std::span<const TokenId> tokens) const;
  Position Walk(Node* root, std::span<const TokenId> tokens) const;
  Node* FindChild(Node* parent, std::span<const TokenId> block_tokens) const;
  void FindTail(Node* parent, std::span<const TokenId> tokens, Position* position) const;
  void ConsiderTail(Node* node, BlockId block, int num_block_tokens, std::span<const TokenId> tokens,
                    Position* position) const;

  Node* NewNode(Node* parent);
  void DeleteNode(Node* node);
  Node* Split(Node* node, int num_upper_blocks);
  void DropTailsBefore(Node* parent, std::span<const TokenId> tokens);
  void MoveLockTo(Lock* lock, Node* descendant);
  void Pin(Node* node);
  void Unpin(Node* node);
  void EvictLastBlock(Node* leaf);
  Node* FindRoot(std::string_view cache_namespace) const;
  void DropRootIfUnused(Node* root);

  BlockAllocator* allocator_;
  const int block_size_;
  std::vector<TokenId> tokens_;    // [num_blocks, block_size]: the tokens of each cached block
  std::deque<Node> nodes_;         // all nodes ever made at once; at most one per block and root
  std::vector<Node*> free_nodes_;  // of nodes_, not in any tree
  Roots roots_;                    // namespaces with blocks or locks
  EvictionList eviction_list_;     // nodes with blocks and without pins; the first goes first
  int num_blocks_ = 0;             // in all trees
  int num_evictable_blocks_ = 0;
  std::uint64_t num_evicted_blocks_ = 0;
};

}  // namespace quire::kv
