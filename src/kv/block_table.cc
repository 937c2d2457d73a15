#include "kv/block_table.h"

#include <cstddef>
#include <utility>

#include "base/check.h"

namespace quire::kv {

BlockTable::BlockTable(BlockAllocator* allocator, int block_size) : allocator_(allocator), block_size_(block_size) {
  CHECK(allocator != nullptr && block_size > 0);
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : allocator_(other.allocator_),
      block_size_(other.block_size_),
      blocks_(std::exchange(other.blocks_, std::vector<BlockId>())) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this != &other) {
    Clear();
    allocator_ = other.allocator_;
    block_size_ = other.block_size_;
    blocks_ = std::exchange(other.blocks_, std::vector<BlockId>());
  }
  return *this;
}

std::int64_t BlockTable::Slot(int position) const {
  CHECK(position >= 0 && position < capacity());
  const BlockId block = blocks_[static_cast<std::size_t>(position / block_size_)];
  return std::int64_t{block.value()} * block_size_ + position % block_size_;
}

bool BlockTable::IsShared(int index) const {
  CHECK(index >= 0 && index < num_blocks());
  return allocator_->ref_count(blocks_[static_cast<std::size_t>(index)]) > 1;
}

void BlockTable::Append(BlockRef block) {
  blocks_.push_back(block.Detach());
}

void BlockTable::AppendShared(BlockId block) {
  allocator_->AddRef(block);
  blocks_.push_back(block);
}

void BlockTable::ReplaceShared(int index, BlockId block) {
  CHECK(index >= 0 && index < num_blocks());
  allocator_->AddRef(block);
  allocator_->Release(std::exchange(blocks_[static_cast<std::size_t>(index)], block));
}

BlockId BlockTable::ReplaceForWriting(int index, BlockRef fresh) {
  CHECK(IsShared(index));
  const BlockId from = std::exchange(blocks_[static_cast<std::size_t>(index)], fresh.Detach());
  allocator_->Release(from);
  return from;
}

BlockRef BlockTable::TakeLast() {
  CHECK(!blocks_.empty());
  const BlockId last = blocks_.back();
  blocks_.pop_back();
  return allocator_->Adopt(last);
}

BlockTable BlockTable::Fork(int num_tokens) const {
  CHECK(num_tokens >= 0 && num_tokens <= capacity());
  BlockTable fork(allocator_, block_size_);
  const int count = (num_tokens + block_size_ - 1) / block_size_;
  fork.blocks_.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) fork.AppendShared(blocks_[static_cast<std::size_t>(i)]);
  return fork;
}

void BlockTable::Clear() {
  while (!blocks_.empty()) {
    allocator_->Release(blocks_.back());
    blocks_.pop_back();
  }
}

}  // namespace quire::kv
