#include "kv/block_allocator.h"

#include <cstddef>

#include "base/check.h"

namespace quire::kv {

BlockRef& BlockRef::operator=(BlockRef&& other) noexcept {
  if (this != &other) {
    Reset();
    allocator_ = std::exchange(other.allocator_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

BlockId BlockRef::id() const {
  CHECK(allocator_ != nullptr);
  return id_;
}

BlockRef BlockRef::Share() const {
  CHECK(allocator_ != nullptr);
  allocator_->AddRef(id_);
  return BlockRef(allocator_, id_);
}

void BlockRef::Reset() {
  if (allocator_ != nullptr) std::exchange(allocator_, nullptr)->Release(id_);
}

BlockId BlockRef::Detach() {
  CHECK(allocator_ != nullptr);
  allocator_ = nullptr;
  return id_;
}

BlockAllocator::BlockAllocator(int num_blocks, int first_id) : first_id_(first_id) {
  CHECK(num_blocks >= 0 && first_id >= 0);
  ref_counts_.assign(static_cast<std::size_t>(num_blocks), 0);
  free_.reserve(static_cast<std::size_t>(num_blocks));
  for (int i = num_blocks - 1; i >= 0; --i) free_.push_back(BlockId(first_id + i));
}

std::size_t BlockAllocator::IndexOf(BlockId id) const {
  CHECK(Has(id));
  return static_cast<std::size_t>(id.value() - first_id_);
}

std::int32_t BlockAllocator::ref_count(BlockId id) const {
  return ref_counts_[IndexOf(id)];
}

BlockRef BlockAllocator::Allocate() {
  if (free_.empty()) return BlockRef();
  const BlockId id = free_.back();
  free_.pop_back();
  std::int32_t& count = ref_counts_[IndexOf(id)];
  CHECK(count == 0);
  count = 1;
  return BlockRef(this, id);
}

BlockRef BlockAllocator::Adopt(BlockId id) {
  CHECK(ref_count(id) > 0);
  return BlockRef(this, id);
}

void BlockAllocator::AddRef(BlockId id) {
  CHECK(ref_count(id) > 0);
  ++ref_counts_[IndexOf(id)];
}

void BlockAllocator::Release(BlockId id) {
  CHECK(ref_count(id) > 0);
  if (--ref_counts_[IndexOf(id)] == 0) free_.push_back(id);
}

void BlockAllocator::CheckIntegrity() const {
  std::vector<bool> is_free(ref_counts_.size(), false);
  for (const BlockId id : free_) {
    CHECK(!is_free[IndexOf(id)]);
    is_free[IndexOf(id)] = true;
  }
  for (std::size_t i = 0; i < ref_counts_.size(); ++i) {
    CHECK(ref_counts_[i] >= 0);
    CHECK(is_free[i] == (ref_counts_[i] == 0));
  }
}

}  // namespace quire::kv
