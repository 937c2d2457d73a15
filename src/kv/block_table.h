// The blocks of one sequence, in order.
//
//   position   0 ........ block_size-1 | block_size ...... 2*block_size-1 | ...
//   blocks()   [0]                       [1]                                [2]
//   slot of a position = blocks()[position / block_size] * block_size + position % block_size
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/strong_id.h"
#include "kv/block_allocator.h"

namespace quire::kv {

// Owns one reference to each of its blocks. A block with further owners is read only: whoever wants to write
// into it replaces it first (ReplaceForWriting). Move-only; one thread; the allocator outlives it.
class BlockTable final {
 public:
  BlockTable(BlockAllocator* allocator, int block_size);
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable() { Clear(); }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  std::span<const BlockId> blocks() const { return blocks_; }
  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  // Tokens for which there is room.
  int capacity() const { return num_blocks() * block_size_; }
  // Where the key and value of this position stand in the pool.
  std::int64_t Slot(int position) const;
  // Whether anybody else refers to the block at `index`: it may not be written then.
  bool IsShared(int index) const;

  // Room for so many blocks, so that appending them allocates nothing.
  void Reserve(int num_blocks) { blocks_.reserve(static_cast<std::size_t>(num_blocks)); }
  std::size_t num_reserved_blocks() const { return blocks_.capacity(); }

  void Append(BlockRef block);
  // Appends a further reference to a block that somebody else owns too.
  void AppendShared(BlockId block);
  // Puts `block`, whose content is equal, in the place of the block at `index`.
  void ReplaceShared(int index, BlockId block);
  // Copy on write: puts `fresh` in the place of the block at `index` and returns the block from which the
  // content has to be copied into it before anything is read.
  BlockId ReplaceForWriting(int index, BlockRef fresh);
  // Takes the last block out of the table.
  BlockRef TakeLast();
  // A table that shares this table's first blocks, as many as hold `num_tokens` tokens.
  BlockTable Fork(int num_tokens) const;
  // Gives every block back, the last one first, so that the free list hands them out in order again.
  void Clear();

 private:
  BlockAllocator* allocator_;
  int block_size_;  // tokens
  std::vector<BlockId> blocks_;
};

}  // namespace quire::kv
