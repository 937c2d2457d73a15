// The content of block `from` has to be copied to block `to` before the step that follows runs.
#pragma once

#include "base/strong_id.h"

namespace quire::kv {

struct BlockCopy {
  BlockId from, to;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

}  // namespace quire::kv
