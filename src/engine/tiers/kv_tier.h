// A place below the KV pool where full blocks are kept by what they contain: a disk, a server that others share.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "api/engine_info.h"
#include "kv/content_key.h"

namespace quire::engine {

// Whatever goes wrong costs only the block: a tier reports no errors but counts and logs them, and drops what it cannot
// trust. Every call ends in bounded time, as far as the operating system lets it. One thread, KvTiers'.
class KvTier {
 public:
  virtual ~KvTier() = default;

  virtual std::string_view name() const = 0;  // "disk"
  // Sets found[i] where the tier seems to have keys[i]; leaves the others as they are.
  virtual void Contains(std::span<const kv::ContentKey> keys, std::span<bool> found) = 0;
  // Fills `block` and returns true, or returns false: not there, damaged, or out of reach. `block` is anything then.
  virtual bool Get(const kv::ContentKey& key, std::span<std::byte> block) = 0;
  // Keeps a copy of `block` under its key; or does not.
  virtual void Put(const kv::ContentKey& key, std::span<const std::byte> block) = 0;

  const KvTierStats& stats() const { return stats_; }

 protected:
  KvTierStats stats_;
};

}  // namespace quire::engine
