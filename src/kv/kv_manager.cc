#include "kv/kv_manager.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace quire::kv {

KvManager::KvManager(int num_blocks, int block_size, bool enable_prefix_caching, int num_swap_blocks,
                     int num_landing_blocks, const RadixCacheConfig& cache_config)
    : block_size_(block_size),
      allocator_(std::make_unique<BlockAllocator>(num_blocks)),
      swap_(std::make_unique<BlockAllocator>(num_swap_blocks, num_blocks)),
      landing_(std::make_unique<BlockAllocator>(num_landing_blocks, num_blocks + num_swap_blocks)) {
  if (enable_prefix_caching) {
    cache_ = std::make_unique<RadixCache>(allocator_.get(), block_size, cache_config);
  }
}

int KvManager::Peek(std::string_view cache_namespace, std::span<const TokenId> tokens) const {
  return cache_ ? cache_->Peek(cache_namespace, tokens) : 0;
}

// Only when num_available_blocks() > 0.
BlockRef KvManager::TakeBlock() {
  if (allocator_->num_free() == 0) CHECK(cache_ && cache_->Evict(1) == 1);
  BlockRef block = allocator_->Allocate();
  CHECK(block);
  return block;
}

std::optional<int> KvManager::Attach(std::string_view cache_namespace, std::span<const TokenId> tokens, int num_blocks,
                                     int num_spare_blocks, SequenceBlocks* sequence, std::vector<BlockCopy>* copies) {
  CHECK(sequence->table.num_blocks() == 0 && !sequence->lock);
  sequence->num_restored_tokens = 0;
  if (!cache_) {
    if (num_blocks + num_spare_blocks > num_available_blocks()) return std::nullopt;
    return Continues(sequence->saved, 0, 0) ? TakeSaved(sequence, copies) : 0;
  }
  if (keyed_) {
    sequence->root_key = keyed_->hasher().Root(cache_namespace);
    sequence->num_keyed_blocks = 0;
    sequence->num_tier_blocks = 0;
  }
  RadixCache::MatchResult match = cache_->Match(cache_namespace, tokens, &sequence->table);
  sequence->lock = std::move(match.lock);
  sequence->num_published_blocks = match.num_full_blocks;
  // Counted after the match has pinned what it found, which cannot be had any more.
  if (num_blocks - match.num_full_blocks + num_spare_blocks > num_available_blocks()) {
    Release(sequence);
    return std::nullopt;
  }
  cache_->CountUse(&sequence->lock);
  const int num_matched_tokens = match.num_full_blocks * block_size_ + match.num_tail_tokens;
  if (Continues(sequence->saved, match.num_full_blocks, num_matched_tokens)) return TakeSaved(sequence, copies);
  if (match.num_tail_tokens > 0) {
    BlockRef block = TakeBlock();
    // When the pool is that small, the block itself was evicted: the tokens are in place.
    if (block.id() != match.tail_block) copies->push_back({match.tail_block, block.id()});
    sequence->table.Append(std::move(block));
  }
  return num_matched_tokens;
}

bool KvManager::Continues(const SavedBlocks& saved, int num_full_blocks, int num_matched_tokens) const {
  return !saved.empty() && saved.first_block <= num_full_blocks && saved.num_tokens > num_matched_tokens;
}

int KvManager::TakeSaved(SequenceBlocks* sequence, std::vector<BlockCopy>* copies) {
  const SavedBlocks& saved = sequence->saved;
  sequence->num_restored_tokens = saved.num_tokens - sequence->table.capacity();
  if (landing_->Has(saved.blocks.front().id())) sequence->num_tier_blocks = saved.num_tokens / block_size_;
  for (int i = sequence->table.num_blocks(); i < BlocksFor(saved.num_tokens); ++i) {
    BlockRef block = TakeBlock();
    copies->push_back({saved.blocks[static_cast<std::size_t>(i - saved.first_block)].id(), block.id()});
    sequence->table.Append(std::move(block));
  }
  return saved.num_tokens;
}

bool KvManager::SwapOut(int num_tokens, SequenceBlocks* sequence, std::vector<BlockCopy>* copies) {
  const int count = BlocksFor(num_tokens);
  CHECK(num_tokens > 0 && count <= sequence->table.num_blocks());
  if (count > swap_->num_free()) return false;
  sequence->saved.Clear();
  sequence->saved.num_tokens = num_tokens;
  sequence->saved.blocks.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    sequence->saved.blocks.push_back(swap_->Allocate());
    copies->push_back({sequence->table.blocks()[static_cast<std::size_t>(i)], sequence->saved.blocks.back().id()});
  }
  return true;
}

int KvManager::CountPrivateTokens(int num_tokens, const SequenceBlocks& sequence) const {
  const int num_published = sequence.num_published_blocks;
  const int held_by_others = cache_ ? num_published - cache_->CountBlocksOnlyOf(sequence.lock) : 0;
  return std::max(0, num_tokens - held_by_others * block_size_);
}

int KvManager::CountBlocksToTake(int first_position, int num_tokens, const BlockTable& table) const {
  const int end = BlocksFor(first_position + num_tokens);
  int count = std::max(0, end - table.num_blocks());
  for (int i = first_position / block_size_; i < std::min(end, table.num_blocks()); ++i) {
    if (table.IsShared(i)) ++count;
  }
  return count;
}

bool KvManager::Reserve(int first_position, int num_tokens, SequenceBlocks* sequence, std::vector<BlockCopy>* copies) {
  BlockTable& table = sequence->table;
  CHECK(first_position <= table.capacity() && num_tokens > 0);
  if (CountBlocksToTake(first_position, num_tokens, table) > num_available_blocks()) return false;
  const int first_block = first_position / block_size_;
  const int end = BlocksFor(first_position + num_tokens);
  for (int i = first_block; i < std::min(end, table.num_blocks()); ++i) {
    if (!table.IsShared(i)) continue;
    BlockRef fresh = TakeBlock();
    const BlockId to = fresh.id();
    copies->push_back({table.ReplaceForWriting(i, std::move(fresh)), to});
  }
  // A fork that begins to write inside a published block leaves the path that it shared.
  if (const int fewer = sequence->num_published_blocks - first_block; fewer > 0) {
    sequence->lock = cache_->LockPrefix(sequence->lock, fewer);
    sequence->num_published_blocks = first_block;
    sequence->num_keyed_blocks = 0;  // its key is of that path
  }
  while (table.num_blocks() < end) table.Append(TakeBlock());
  return true;
}

SequenceBlocks KvManager::Fork(const SequenceBlocks& sequence, int num_tokens) {
  SequenceBlocks fork(sequence.table.Fork(num_tokens));
  fork.root_key = sequence.root_key;
  fork.num_published_blocks = std::min(sequence.num_published_blocks, fork.table.num_blocks());
  if (cache_) fork.lock = cache_->LockPrefix(sequence.lock, sequence.num_published_blocks - fork.num_published_blocks);
  return fork;
}

void KvManager::Publish(std::span<const TokenId> computed_tokens, SequenceBlocks* sequence) {
  if (!cache_) return;
  const auto size = static_cast<std::size_t>(block_size_);
  const auto first = static_cast<std::size_t>(sequence->num_published_blocks);
  const std::size_t end = computed_tokens.size() / size;
  if (end <= first) return;
  const int num_new = cache_->Extend(computed_tokens.subspan(first * size, (end - first) * size),
                                     sequence->num_published_blocks, &sequence->lock, &sequence->table);
  sequence->num_published_blocks = static_cast<int>(end);
  if (keyed_ && num_new > 0) NoteNewBlocks(computed_tokens, static_cast<int>(end), num_new, sequence);
}

void KvManager::Retain(int num_tokens, TimePoint until, const SequenceBlocks& sequence) {
  if (!cache_) return;
  const int most = std::min(sequence.num_published_blocks, cache_->max_retained_blocks());
  const int num_blocks = std::min(num_tokens / block_size_, most);
  if (num_blocks == 0) return;
  cache_->Retain(cache_->LockPrefix(sequence.lock, sequence.num_published_blocks - num_blocks), until);
}

// The blocks num_full_blocks - num_new … num_full_blocks - 1 of the sequence.
void KvManager::NoteNewBlocks(std::span<const TokenId> tokens, int num_full_blocks, int num_new,
                              SequenceBlocks* sequence) {
  CHECK(sequence->num_keyed_blocks <= num_full_blocks - num_new);
  if (sequence->num_keyed_blocks == 0) sequence->last_key = sequence->root_key;
  for (int& i = sequence->num_keyed_blocks; i < num_full_blocks; ++i) {
    const auto begin = static_cast<std::size_t>(i * block_size_);
    sequence->last_key =
        keyed_->hasher().Next(sequence->last_key, tokens.subspan(begin, static_cast<std::size_t>(block_size_)));
    if (i < num_full_blocks - num_new || i < sequence->num_tier_blocks) continue;
    const BlockId block = sequence->table.blocks()[static_cast<std::size_t>(i)];
    keyed_->Push({sequence->last_key, block, cache_->num_evictions_of(block)});
  }
}

void KvManager::KeyBlocks(std::string_view identity) {
  if (cache_) keyed_ = std::make_unique<KeyedBlocks>(identity, static_cast<std::size_t>(num_blocks()));
}

std::optional<KeyedBlock> KvManager::NextUnsaved() {
  while (has_unsaved()) {
    const KeyedBlock next = keyed_->Pop();
    if (cache_->num_evictions_of(next.block) == next.num_evictions) return next;
    keyed_->CountLost();
  }
  return std::nullopt;
}

void KvManager::Release(SequenceBlocks* sequence) {
  // In this order: the blocks of nodes without pins have no owner but the cache.
  sequence->table.Clear();
  sequence->lock.Reset();
  sequence->num_published_blocks = 0;
}

void KvManager::Finish(std::span<const TokenId> computed_tokens, SequenceBlocks* sequence) {
  Publish(computed_tokens, sequence);
  const int num_full_blocks = static_cast<int>(computed_tokens.size()) / block_size_;
  BlockTable& table = sequence->table;
  if (cache_ && table.num_blocks() == num_full_blocks + 1 && !table.IsShared(num_full_blocks)) {
    const auto tail = computed_tokens.subspan(static_cast<std::size_t>(num_full_blocks * block_size_));
    if (!tail.empty()) cache_->AddTail(sequence->lock, tail, table.TakeLast());
  }
  Release(sequence);
}

void KvManager::ResetPrefixCache() {
  if (cache_) cache_->Clear();
}

void KvManager::CheckIntegrity(std::span<const SequenceBlocks* const> sequences) const {
  allocator_->CheckIntegrity();
  swap_->CheckIntegrity();
  landing_->CheckIntegrity();
  int num_swapped = 0;
  std::vector<std::int32_t> ref_counts(static_cast<std::size_t>(num_blocks()), 0);
  if (cache_) cache_->CheckIntegrity(&ref_counts);
  const std::vector<std::int32_t> cached = ref_counts;
  for (const SequenceBlocks* sequence : sequences) {
    CHECK(sequence->num_published_blocks <= sequence->table.num_blocks());
    for (const BlockRef& block : sequence->saved.blocks) num_swapped += swap_->Has(block.id()) ? 1 : 0;
    for (const BlockId block : sequence->table.blocks()) ++ref_counts[static_cast<std::size_t>(block.value())];
  }
  CHECK(num_swapped == swap_->num_used());
  int num_owned = 0;
  for (int i = 0; i < num_blocks(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    CHECK(ref_counts[index] == allocator_->ref_count(BlockId(i)));
    if (ref_counts[index] > 0 && cached[index] == 0) ++num_owned;
  }
  CHECK(num_free_blocks() + num_evictable_blocks() + num_protected_blocks() + num_owned == num_blocks());
}

}  // namespace quire::kv
