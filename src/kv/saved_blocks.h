// Keys and values of a sequence that lie outside the pool's own blocks, for the sequence to take back instead of
// computing them: what was swapped out when it was preempted, or what a lower tier had of its prompt.
#pragma once

#include <vector>

#include "kv/block_allocator.h"

namespace quire::kv {

//   index in the table   0 … first_block-1 | first_block … first_block + blocks.size() - 1
//   blocks                                 | [0] …                     the last may be filled in part
// Whoever takes them copies them into blocks of its own in the next step, and keeps them until that step has run.
struct SavedBlocks {
  int first_block = 0;
  int num_tokens = 0;  // from the start of the sequence to the end of the last block's content
  std::vector<BlockRef> blocks;

  bool empty() const { return blocks.empty(); }
  void Clear() { *this = SavedBlocks(); }
};

}  // namespace quire::kv
