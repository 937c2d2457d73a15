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

void KvPool::CopyBlock(BlockId from, BlockId to) {
  CHECK(from.value() >= 0 && from.value() < num_blocks_ && to.value() >= 0 && to.value() < num_blocks_);
  if (from == to) return;
  const std::size_t bytes = layout_.block_bytes();
  std::memcpy(data() + bytes * static_cast<std::size_t>(to.value()),
              data() + bytes * static_cast<std::size_t>(from.value()), bytes);
}

}  // namespace quire::nn
