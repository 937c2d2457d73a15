// Shared by the tests of this folder.
#pragma once

#include <initializer_list>
#include <vector>

#include "base/strong_id.h"
#include "kv/block_allocator.h"
#include "kv/block_table.h"

namespace quire::kv {

inline std::vector<TokenId> Tokens(std::initializer_list<int> values) {
  std::vector<TokenId> tokens;
  for (const int value : values) tokens.push_back(TokenId(value));
  return tokens;
}

// A table of fresh blocks for `num_tokens` tokens.
inline BlockTable MakeTable(BlockAllocator* allocator, int block_size, int num_tokens) {
  BlockTable table(allocator, block_size);
  while (table.capacity() < num_tokens) table.Append(allocator->Allocate());
  return table;
}

}  // namespace quire::kv
