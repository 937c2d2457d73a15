// Which blocks of the KV pool are in use, and by how many owners. Metadata only: the bytes are nn::KvPool's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/strong_id.h"

namespace quire::kv {

class BlockAllocator;

// One reference to one block, given back when it goes away. Move-only; another owner is made with Share().
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(BlockRef&& other) noexcept : allocator_(std::exchange(other.allocator_, nullptr)), id_(other.id_) {}
  BlockRef& operator=(BlockRef&& other) noexcept;
  ~BlockRef() { Reset(); }
  BlockRef(const BlockRef&) = delete;
  BlockRef& operator=(const BlockRef&) = delete;

  explicit operator bool() const { return allocator_ != nullptr; }
  // The block; only of a reference that holds one.
  BlockId id() const;
  // A second reference to the same block.
  BlockRef Share() const;
  void Reset();

  // For containers that keep bare ids and count for themselves (BlockTable, RadixCache): the reference leaves
  // this handle, and whoever takes the id owes the allocator one Release().
  BlockId Detach();

 private:
  friend class BlockAllocator;
  BlockRef(BlockAllocator* allocator, BlockId id) : allocator_(allocator), id_(id) {}

  BlockAllocator* allocator_ = nullptr;
  BlockId id_;
};

// The blocks first_id … first_id + num_blocks - 1. Invariant: a block is on the free list exactly when its reference
// count is 0. One thread; outlives every BlockRef.
class BlockAllocator final {
 public:
  explicit BlockAllocator(int num_blocks, int first_id = 0);
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  int num_blocks() const { return static_cast<int>(ref_counts_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  int num_used() const { return num_blocks() - num_free(); }
  bool Has(BlockId id) const { return id.value() >= first_id_ && id.value() < first_id_ + num_blocks(); }
  std::int32_t ref_count(BlockId id) const;

  // A block that nobody had; an empty BlockRef when all are in use. The block freed last is handed out first:
  // it is the likeliest to be in a CPU cache still.
  BlockRef Allocate();

  // The counting behind BlockRef, for containers of bare ids. `id` must have an owner.
  void AddRef(BlockId id);
  void Release(BlockId id);

  // The reverse of Detach(): a handle takes over a reference that a container owed.
  BlockRef Adopt(BlockId id);

  // CHECKs the invariant; O(num_blocks).
  void CheckIntegrity() const;

 private:
  std::size_t IndexOf(BlockId id) const;  // CHECKs that it is one of its own

  const int first_id_;
  std::vector<std::int32_t> ref_counts_;  // [num_blocks]
  std::vector<BlockId> free_;             // a stack; its capacity never grows
};

}  // namespace quire::kv
