#include "nn/kv_pool.h"

#include <cstring>

#include "base/check.h"

namespace quire::nn {

Result<KvPool> KvPool::Create(const kernels::KvLayout& layout, int num_blocks) {
  CHECK(num_blocks >= 1 && layout.head_dim % 2 == 0);
  KvPool pool;
  pool.layout_ = layout;
  pool.num_blocks_ = num_blocks;
  QUIRE_TRY(pool.memory_, AlignedBuffer::Allocate(layout.block_bytes() * static_cast<std::size_t>(num_blocks)));
  return pool;
}

std::span<std::byte> KvPool::BlockBytes(BlockId block) {
  CHECK(block.value() >= 0 && block.value() < num_blocks_);
  const std::size_t bytes = layout_.block_bytes();
  return {data() + bytes * static_cast<std::size_t>(block.value()), bytes};
}

void KvPool::CopyBlock(BlockId from, BlockId to) {
  if (from == to) return;
  const std::span<std::byte> source = BlockBytes(from);
  std::memcpy(BlockBytes(to).data(), source.data(), source.size());
}

}  // namespace quire::nn
