// The memory manager: gives sequences the blocks they need, from the prefix cache, the free list, or by
// eviction.
//
// Every block of the pool is, at any time, exactly one of
//   free       nobody refers to it
//   evictable  only the prefix cache refers to it
//   protected  in the prefix cache, and pinned because a sequence uses it
//   owned      only sequences refer to it
// and free + evictable + protected + owned = total, which CheckIntegrity() counts.
//
// About copies: they run before the step, in order, and only ever fill blocks that had nobody's content. So a
// source may be evicted and given to somebody else in the same plan: what the new owner puts into it comes
// later.
//
// Behind the pool's blocks stand those of the swap area: the same memory with the same ids, but no step computes on
// them; keys and values only wait there for their sequence (SavedBlocks). Behind these stand the landing blocks, which
// are filled from lower tiers before their sequence is admitted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/strong_id.h"
#include "kv/block_allocator.h"
#include "kv/block_copy.h"
#include "kv/block_table.h"
#include "kv/content_key.h"
#include "kv/keyed_blocks.h"
#include "kv/radix_cache.h"
#include "kv/saved_blocks.h"

namespace quire::kv {

// The memory of one sequence: its block table, and its place in the prefix cache.
struct SequenceBlocks {
  explicit SequenceBlocks(BlockTable empty) : table(std::move(empty)) {}

  RadixCache::Lock lock;  // outlives the table's references; empty without memory, or when caching is off
  BlockTable table;
  // The first blocks of the table, which the cache has too; the lock ends where they end.
  int num_published_blocks = 0;
  // What Attach() may take instead of having it computed; to be kept until the step that copies it has run.
  SavedBlocks saved;
  int num_restored_tokens = 0;  // that the last Attach() took from there
  // With content keys: the namespace's, and that of the block num_keyed_blocks - 1.
  ContentKey root_key, last_key;
  int num_keyed_blocks = 0;
  int num_tier_blocks = 0;  // the first blocks, as far as they came from a lower tier or stood before what did
};

// One thread.
class KvManager final {
 public:
  KvManager(int num_blocks, int block_size, bool enable_prefix_caching, int num_swap_blocks = 0,
            int num_landing_blocks = 0, const RadixCacheConfig& cache_config = {});

  int block_size() const { return block_size_; }
  int num_blocks() const { return allocator_->num_blocks(); }
  int num_free_blocks() const { return allocator_->num_free(); }
  int num_evictable_blocks() const { return cache_ ? cache_->num_evictable_blocks() : 0; }
  int num_protected_blocks() const { return cache_ ? cache_->num_protected_blocks() : 0; }
  int num_owned_blocks() const {
    return num_blocks() - num_free_blocks() - num_evictable_blocks() - num_protected_blocks();
  }
  int num_swap_blocks() const { return swap_->num_blocks(); }
  int num_used_swap_blocks() const { return swap_->num_used(); }
  int num_landing_blocks() const { return landing_->num_blocks(); }
  int num_free_landing_blocks() const { return landing_->num_free(); }
  // An empty reference when there is none.
  BlockRef TakeLandingBlock() { return landing_->Allocate(); }
  // What can be had without taking anything from a sequence.
  int num_available_blocks() const { return num_free_blocks() + num_evictable_blocks(); }
  int BlocksFor(int num_tokens) const { return num_tokens / block_size_ + (num_tokens % block_size_ != 0 ? 1 : 0); }

  SequenceBlocks MakeEmpty() { return SequenceBlocks(BlockTable(allocator_.get(), block_size_)); }

  // How many of these tokens the cache has; nothing changes.
  int Peek(std::string_view cache_namespace, std::span<const TokenId> tokens) const;

  // Admits an empty sequence that will need `num_blocks` blocks in all: gives it what the cache has of
  // `tokens`, pins it, and returns the number of tokens that need not be computed. What was saved of the sequence is
  // copied behind that, if it goes further. When the match ends inside
  // a block, a block is taken for a copy of it. nullopt, and nothing has changed, unless the blocks that are
  // still missing can be had with `num_spare_blocks` to spare.
  std::optional<int> Attach(std::string_view cache_namespace, std::span<const TokenId> tokens, int num_blocks,
                            int num_spare_blocks, SequenceBlocks* sequence, std::vector<BlockCopy>* copies);

  // Makes the positions [first_position, first_position + num_tokens) writable: takes blocks, and replaces
  // shared ones (copy on write). All or nothing: false when there are not enough blocks.
  bool Reserve(int first_position, int num_tokens, SequenceBlocks* sequence, std::vector<BlockCopy>* copies);

  // A sequence that shares the blocks of the first `num_tokens` tokens. The last of them may be partly
  // filled: who writes into it first gets a copy.
  SequenceBlocks Fork(const SequenceBlocks& sequence, int num_tokens);

  // Puts the full blocks of a sequence's computed tokens in the cache.
  void Publish(std::span<const TokenId> computed_tokens, SequenceBlocks* sequence);
  // Retains the full blocks among the first `num_tokens` of a sequence until then, as far as they are published and as
  // many as may be: they are evicted after all others.
  void Retain(int num_tokens, TimePoint until, const SequenceBlocks& sequence);
  // What it is now: for how long blocks were cached or not used, and whether they are retained still.
  void SetTime(TimePoint now) {
    if (cache_) cache_->SetTime(now);
  }
  // Saves the first `num_tokens` tokens of a sequence in the swap area, as far as the step that is being planned; false,
  // and nothing has changed, when there is no room.
  bool SwapOut(int num_tokens, SequenceBlocks* sequence, std::vector<BlockCopy>* copies);
  // How many tokens of a sequence's blocks nobody else holds, so that they can get lost when it gives them back.
  int CountPrivateTokens(int num_tokens, const SequenceBlocks& sequence) const;
  // Takes a sequence's memory away, except what is saved. What it published stays in the cache until it is evicted.
  void Release(SequenceBlocks* sequence);
  // The same at the end of a sequence: the block behind its full ones is cached too, so that a conversation's
  // next turn finds every token. It costs nothing, since the block can be evicted.
  void Finish(std::span<const TokenId> computed_tokens, SequenceBlocks* sequence);

  // From now on blocks that are new to the cache get a content key and wait in a queue to be written to lower tiers; only
  // with prefix caching.
  void KeyBlocks(std::string_view identity);
  // The next of them that is still in the cache; nullopt when there is none.
  std::optional<KeyedBlock> NextUnsaved();
  bool has_unsaved() const { return keyed_ && !keyed_->empty(); }
  std::uint64_t num_lost_unsaved() const { return keyed_ ? keyed_->num_lost() : 0; }

  // Forgets everything cached that no sequence uses.
  void ResetPrefixCache();

  // CHECKs the invariants; `sequences` are all that have memory. O(num_blocks).
  void CheckIntegrity(std::span<const SequenceBlocks* const> sequences) const;

  const BlockAllocator& allocator() const { return *allocator_; }
  const RadixCache* cache() const { return cache_.get(); }  // null when caching is off

 private:
  BlockRef TakeBlock();
  void NoteNewBlocks(std::span<const TokenId> tokens, int num_full_blocks, int num_new, SequenceBlocks* sequence);
  // Whether saved blocks continue a match of so many tokens without a gap, and further than it goes.
  bool Continues(const SavedBlocks& saved, int num_full_blocks, int num_matched_tokens) const;
  int TakeSaved(SequenceBlocks* sequence, std::vector<BlockCopy>* copies);
  int CountBlocksToTake(int first_position, int num_tokens, const BlockTable& table) const;

  const int block_size_;
  std::unique_ptr<BlockAllocator> allocator_;  // outlives what refers to it
  std::unique_ptr<BlockAllocator> swap_;       // likewise
  std::unique_ptr<BlockAllocator> landing_;    // likewise
  std::unique_ptr<KeyedBlocks> keyed_;         // null without lower tiers
  std::unique_ptr<RadixCache> cache_;
};

}  // namespace quire::kv
