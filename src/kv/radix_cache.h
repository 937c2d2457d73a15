// Which blocks of the pool hold the keys and values of which token ids: a radix tree per namespace.
//
// A node stands for a run of one or more blocks, and starts at a block boundary:
//
//   root ─┬─ [A A A A|B B B B|C C C C] ─┬─ [D D D D]           every block of a node is full …
//         │                             └─ [D D E E|F F F F]   siblings may share the start of their first
//         block └─ [A A B]                                           … except a tail: one partly filled
//         block, no children
//
// * Children of a node are ordered by the tokens of their first block, so the child that shares most tokens
// with a
//   prompt stands next to the place where the prompt would be inserted: matching is exact to the token
//   although the memory is paged. A hit that ends inside a block names the block to copy from.
// * Tokens are compared in full, never by hash.
// * A Lock pins a node and so all nodes above it. Leaves without pins stand in the order in which they give up blocks,
//   from their end: a search tree by EvictionPriority and last use. With LRU, joining and leaving the order takes
//   O(1), amortised, and O(log n) when the last child of a node is gone; with the others, O(log n).
// * The blocks of a node have been used equally often, and all or none of them are retained: whatever is used or
//   retained in part is split.
// * Retained leaves have an order of their own, which is touched when the other one is empty. At most so many blocks are
//   retained; beyond that, those go back to the others whose time would be over first.
// * No tail is a prefix of a sibling: when a sibling that continues it is inserted, the tail goes.
//
// The cache owns one reference to each of its blocks. Whoever uses a cached block holds a Lock on its node,
// so the blocks of nodes without pins have no other owner, and evicting them frees them.
#pragma once

#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/strong_id.h"
#include "kv/block_allocator.h"
#include "kv/block_table.h"
#include "kv/cache_stats.h"
#include "kv/eviction_policy.h"

namespace quire::kv {

struct RadixCacheConfig {
  EvictionPolicy eviction_policy = EvictionPolicy::kLru;
  int max_retained_blocks = 0;  // at a time, ≥ 0
};

// One thread. The allocator outlives it, and it outlives its locks.
class RadixCache final {
 private:
  struct Node;

 public:
  // Keeps the blocks of a path in the cache. Move-only.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), node_(other.node_), is_use_(other.is_use_) {}
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
    bool is_use_ = true;  // false: of a look-up that CountUse() has not been told of
  };

  struct MatchResult {
    Lock lock;                // of the path of the full blocks; of the namespace's root when there are none
    int num_full_blocks = 0;  // appended to the table, in order
    int num_tail_tokens = 0;  // further tokens that match inside one more block, < block_size
    BlockId tail_block;       // that block, when num_tail_tokens > 0. It is not pinned: copy it within this step
  };

  RadixCache(BlockAllocator* allocator, int block_size, const RadixCacheConfig& config = {});
  ~RadixCache();
  RadixCache(const RadixCache&) = delete;
  RadixCache& operator=(const RadixCache&) = delete;

  // The longest cached prefix of `tokens`. Appends the full blocks to `table`, which is empty. It is recently used then.
  MatchResult Match(std::string_view cache_namespace, std::span<const TokenId> tokens, BlockTable* table);
  // A sequence will use the path of a match: for the policies that count. Apart from Match(), because a sequence may
  // have to try more than once before there is room for it.
  void CountUse(Lock* lock);
  // The length of the longest cached prefix in tokens, and nothing changes.
  int Peek(std::string_view cache_namespace, std::span<const TokenId> tokens) const;

  // Adds further full blocks of a sequence below the node of `lock`, and moves the lock to the node where
  // they end. `tokens` are those of the blocks [first_block, first_block + tokens.size() / block_size) of
  // `table`; the lock's node ends where they begin. A block that the cache has already replaces the one in
  // `table`, whose reference is dropped: both hold the same bits, since keys and values are a function of the
  // tokens and the namespace. Returns how many blocks at the end are new to the cache.
  int Extend(std::span<const TokenId> tokens, int first_block, Lock* lock, BlockTable* table);
  // Adds a block that is only partly filled, with 1 … block_size - 1 tokens, below the node of `lock`. Nobody
  // else may own the block. It is dropped when the cache knows its tokens already.
  void AddTail(const Lock& lock, std::span<const TokenId> tokens, BlockRef block);
  // A lock of the same path without its last `num_blocks` blocks.
  Lock LockPrefix(const Lock& lock, int num_blocks);

  // How many blocks of a lock's path no other lock pins.
  int CountBlocksOnlyOf(const Lock& lock) const;

  // Frees up to `num_blocks` blocks that nobody uses, in the policy's order, those that are retained after all others;
  // returns how many.
  int Evict(int num_blocks);
  // Frees all blocks that nobody uses, whether retained or not.
  void Clear();

  // What it is now; it never goes back. Ends the retention of blocks whose time is over.
  void SetTime(TimePoint now);
  // Retains the path of a lock until then, or longer if it is so already. Of a path with more than max_retained_blocks
  // the end goes first; see LockPrefix().
  void Retain(const Lock& lock, TimePoint until);

  int num_blocks() const { return num_blocks_; }
  int num_evictable_blocks() const { return num_evictable_blocks_; }                // in nodes without pins
  int num_protected_blocks() const { return num_blocks_ - num_evictable_blocks_; }  // in nodes with pins
  // Counts the evictions of a block: while it stays the same, the block holds what it held.
  std::uint32_t num_evictions_of(BlockId block) const {
    return num_evictions_of_[static_cast<std::size_t>(block.value())];
  }
  int num_retained_blocks() const { return num_retained_blocks_; }
  int max_retained_blocks() const { return config_.max_retained_blocks; }
  const CacheStats& stats() const { return stats_; }

  // CHECKs every invariant above, and adds 1 for each block of the cache to `ref_counts` [num_blocks of the
  // pool]. O(size).
  void CheckIntegrity(std::vector<std::int32_t>* ref_counts) const;
  // The nodes of a namespace in order, one a line, indented by depth: the tokens, "|" between blocks, and "*"
  // for each pin.
  std::string ToString(std::string_view cache_namespace) const;

 private:
  struct ByFirstBlock {
    bool operator()(const Node& a, const Node& b) const;
    bool operator()(const Node& a, std::span<const TokenId> b) const;
    bool operator()(std::span<const TokenId> a, const Node& b) const;
  };
  using ChildHook = boost::intrusive::set_base_hook<>;
  struct EvictionTag;
  using EvictionHook = boost::intrusive::set_base_hook<boost::intrusive::tag<EvictionTag>>;
  struct GoesBefore {
    bool operator()(const Node& a, const Node& b) const;
  };
  struct RetentionTag;
  using RetentionHook = boost::intrusive::set_base_hook<boost::intrusive::tag<RetentionTag>>;
  struct EndsBefore {
    bool operator()(const Node& a, const Node& b) const;
  };
  using Children =
      boost::intrusive::set<Node, boost::intrusive::compare<ByFirstBlock>, boost::intrusive::constant_time_size<false>,
                            boost::intrusive::base_hook<ChildHook>>;
  using EvictionOrder = boost::intrusive::multiset<Node, boost::intrusive::compare<GoesBefore>,
                                                   boost::intrusive::constant_time_size<false>,
                                                   boost::intrusive::base_hook<EvictionHook>>;
  using RetentionOrder = boost::intrusive::multiset<Node, boost::intrusive::compare<EndsBefore>,
                                                    boost::intrusive::constant_time_size<false>,
                                                    boost::intrusive::base_hook<RetentionHook>>;
  enum class Retention : std::uint8_t { kNever, kNow, kOver };

  struct Node : ChildHook, EvictionHook, RetentionHook {
    bool is_root() const { return parent == nullptr; }
    bool is_evictable_leaf() const { return num_pins == 0 && !is_root() && children.empty(); }
    bool is_in_order() const { return EvictionHook::is_linked(); }  // of eviction
    bool is_retained() const { return retention == Retention::kNow; }

    Node* parent = nullptr;
    std::vector<BlockId> blocks;            // at least one, except in a root
    std::span<const TokenId> first_tokens;  // of the first block: block_size, or fewer in a tail
    int num_pins = 0;                       // locks of this node and of all below it
    Children children;
    std::string_view cache_namespace;  // of a root: its key in roots_

    std::uint64_t num_uses = 0;  // sequences that computed or found these blocks
    std::uint64_t last_use = 0;  // grows with time; of a node without pins
    std::uint64_t age = 0;       // the cache's at that time
    std::uint64_t priority = 0;  // in the order of eviction
    TimePoint used_until{};      // of a node without pins
    TimePoint retained_until{};  // while it is retained
    Retention retention = Retention::kNever;
  };

  struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Roots = std::unordered_map<std::string, Node*, StringHash, std::equal_to<>>;

  // Where a walk along a prompt ended.
  struct Position {
    Node* node = nullptr;       // the last node of which a block matched, or the root
    int num_node_blocks = 0;    // how many of its blocks matched
    int num_full_blocks = 0;    // on the whole path
    Node* tail_node = nullptr;  // with the block that matches in part; may be `node`
    BlockId tail_block;
    int num_tail_tokens = 0;
  };

  Position Walk(Node* root, std::span<const TokenId> tokens) const;
  Node* FindChild(Node* parent, std::span<const TokenId> tokens) const;
  void FindTail(Node* parent, std::span<const TokenId> tokens, Position* position) const;
  int CountCommonBlocks(const Node& node, std::span<const TokenId> tokens) const;
  std::span<const TokenId> BlockTokens(BlockId block) const;

  Node* FindRoot(std::string_view cache_namespace) const;
  Node* FindOrMakeRoot(std::string_view cache_namespace);
  void DropRootIfUnused(Node* root);
  Node* NewNode(Node* parent);
  void DeleteNode(Node* node);
  Node* AddChild(Node* parent, BlockId first_block, std::span<const TokenId> first_tokens);
  void AppendBlock(Node* node, BlockId block, std::span<const TokenId> tokens);
  Node* Split(Node* node, int num_upper_blocks);
  void DropTailBefore(Node* parent, std::span<const TokenId> tokens);
  void EvictLastBlock(Node* leaf);
  void Touch(Node* node);          // a use without a lock
  void NoteRecentUse(Node* node);  // of a node that is not in the order
  void JoinOrder(Node* node);      // when it is an evictable leaf
  void LeaveOrder(Node* node);     // when it is there
  void NoteSize(Node* node);       // has changed
  EvictionOrder& OrderOf(const Node& node) { return eviction_orders_[node.is_retained() ? 1 : 0]; }
  void EndRetention(Node* node, Retention after);
  Node& FirstToGo();
  void NoteEviction(const Node& leaf);  // of its last block, which is still there
  void PinOne(Node* node);
  void PinPath(Node* node);
  void UnpinPath(Node* node, bool was_used);
  void CheckNode(const Node& node) const;

  BlockAllocator* allocator_;
  const int block_size_;
  const RadixCacheConfig config_;
  std::vector<TokenId> tokens_;               // [pool's num_blocks, block_size]: the tokens of each cached block
  std::vector<std::unique_ptr<Node>> nodes_;  // in a tree or in free_nodes_; at most one per block and root
  std::vector<Node*> free_nodes_;
  Roots roots_;                        // the namespaces that have blocks or locks
  EvictionOrder eviction_orders_[2];   // the evictable leaves, and those that are retained; the first goes first
  RetentionOrder retention_order_;     // all nodes that are retained
  std::uint64_t num_recent_uses_ = 0;  // makes Node::last_use
  std::uint64_t age_ = 0;              // the highest priority that was evicted, see EvictionPriority
  std::vector<Node*> path_;            // scratch of Match
  int num_blocks_ = 0;                 // in all trees
  int num_evictable_blocks_ = 0;
  int num_retained_blocks_ = 0;
  TimePoint now_{};
  CacheStats stats_;
  std::vector<TimePoint> cached_since_;          // [pool's num_blocks]
  std::vector<std::uint32_t> num_evictions_of_;  // [pool's num_blocks]
};

}  // namespace quire::kv
