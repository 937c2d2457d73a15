// The bytes of all keys and values: num_blocks blocks in block-major order (kernels::KvLayout), zeroed at the
// start so that nobody ever reads what was not written. Which block belongs to whom is kv/'s business.
#pragma once

#include <cstddef>
#include <span>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "kernels/kernel_table.h"

namespace quire::nn {

class KvPool {
 public:
  static Result<KvPool> Create(const kernels::KvLayout& layout, int num_blocks);

  const kernels::KvLayout& layout() const { return layout_; }
  int num_blocks() const { return num_blocks_; }
  std::byte* data() { return memory_.data(); }
  const std::byte* data() const { return memory_.data(); }

  std::span<std::byte> BlockBytes(BlockId block);
  // Block `from` → block `to`, all layers, one copy.
  void CopyBlock(BlockId from, BlockId to);

 private:
  kernels::KvLayout layout_;
  int num_blocks_ = 0;
  AlignedBuffer memory_;
};

}  // namespace quire::nn
