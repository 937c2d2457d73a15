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

BlockAllocator::BlockAllocator(int num_blocks) {
  CHECK(num_blocks >= 0);
  ref_counts_.assign(static_cast<std::size_t>(num_blocks), 0);
  free_.reserve(static_cast<std::size_t>(num_blocks));
  for (int i = num_blocks - 1; i >= 0; --i) free_.push_back(BlockId(i));
}

std::int32_t BlockAllocator::ref_count(BlockId id) const {
  CHECK(id.value() >= 0 && id.value() < num_blocks());
  return ref_counts_[static_cast<std::size_t>(id.value())];
}

BlockRef BlockAllocator::Allocate() {
  if (free_.empty()) return BlockRef();
  const BlockId id = free_.back();
  free_.pop_back();
  std::int32_t& count = ref_counts_[static_cast<std::size_t>(id.value())];
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
  ++ref_counts_[static_cast<std::size_t>(id.value())];
}

void BlockAllocator::Release(BlockId id) {
  CHECK(ref_count(id) > 0);
  if (--ref_counts_[static_cast<std::size_t>(id.value())] == 0) free_.push_back(id);
}

void BlockAllocator::CheckIntegrity() const {
  std::vector<bool> is_free(ref_counts_.size(), false);
  for (const BlockId id : free_) {
    CHECK(id.value() >= 0 && id.value() < num_blocks());
    CHECK(!is_free[static_cast<std::size_t>(id.value())]);
    is_free[static_cast<std::size_t>(id.value())] = true;
  }
  for (std::size_t i = 0; i < ref_counts_.size(); ++i) {
    CHECK(ref_counts_[i] >= 0);
    CHECK(is_free[i] == (ref_counts_[i] == 0));
  }
}

}  // namespace quire::kv
