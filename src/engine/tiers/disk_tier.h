// Blocks in files of a folder, as many as fit into a number of bytes; the least recently used goes first.
//
//   FOLDER/<identity, 16 digits>/lock         held by the process that uses it
//                               /<key>.kv     one block (kv_entry.h)
//                               /<key>.new    while it is written; renamed when it is whole
// Nothing is flushed to the disk by force: a crash of the machine may leave damaged entries, which are found out when they
// are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "engine/tiers/back_off.h"
#include "engine/tiers/kv_entry.h"
#include "engine/tiers/kv_tier.h"

namespace quire::engine {

class DiskTier final : public KvTier {
 public:
  struct Config {
    std::filesystem::path folder;  // made when it is not there
    std::string identity;          // names the subfolder
    std::int64_t bytes_max = 0;    // of all entries, at least one
    std::size_t block_bytes = 0;
  };

  // Takes in what is there already. Fails when the folder cannot be used, or is used by another process.
  // `clock` outlives the tier.
  static Result<std::unique_ptr<DiskTier>> Open(const Config& config, const Clock* clock);

  std::string_view name() const override { return "disk"; }
  void Contains(std::span<const kv::ContentKey> keys, std::span<bool> found) override;
  bool Get(const kv::ContentKey& key, std::span<std::byte> block) override;
  void Put(const kv::ContentKey& key, std::span<const std::byte> block) override;

 private:
  using Order = std::list<kv::ContentKey>;

  DiskTier(const Config& config, UniqueFd folder, UniqueFd lock, const Clock* clock);
  Result<> Scan();
  std::int64_t EntryBytes() const { return static_cast<std::int64_t>(kKvEntryHeadBytes + config_.block_bytes); }
  void Insert(const kv::ContentKey& key);
  void Remove(const kv::ContentKey& key);
  void MakeRoom();
  Result<> Write(const std::string& name, const kv::ContentKey& key, std::span<const std::byte> block);
  void CountError(const Error& error);

  const Config config_;
  const UniqueFd folder_, lock_;
  const Clock* const clock_;
  BackOff back_off_;  // of writing
  Order order_;       // least recently used first
  std::unordered_map<kv::ContentKey, Order::iterator, kv::ContentKeyHash> entries_;
};

}  // namespace quire::engine
