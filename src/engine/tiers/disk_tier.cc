#include "engine/tiers/disk_tier.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/tiers/kv_entry.h"

namespace quire::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntrySuffix = ".kv", kNewSuffix = ".new";
constexpr Duration kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::minutes(1);

std::optional<kv::ContentKey> ParseKey(std::string_view hex) {
  kv::ContentKey key;
  if (hex.size() != 2 * key.bytes.size()) return std::nullopt;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  return key;
}

std::unexpected<Error> FailErrno(const char* what, const std::string& name) {
  return Fail(ErrorCode::kIo, "cannot {} {}: {}", what, name, std::strerror(errno));
}

std::string EntryName(const kv::ContentKey& key) {
  return key.ToHex().append(kEntrySuffix);
}

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::Open(const Config& config, const Clock* clock) {
  const fs::path folder = config.folder / config.identity;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return FailParam("kv_disk", "cannot make the folder {}: {}", folder.string(), error.message());
  UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return FailParam("kv_disk", "cannot open {}: {}", folder.string(), std::strerror(errno));
  UniqueFd lock(::openat(directory.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return FailParam("kv_disk", "cannot write into {}: {}", folder.string(), std::strerror(errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return FailParam("kv_disk",
                     "{} is in use by another process; give each server a folder of its own, and share with kv_redis",
                     folder.string());
  }
  std::unique_ptr<DiskTier> tier(new DiskTier(config, std::move(directory), std::move(lock), clock));
  if (config.bytes_max < tier->EntryBytes()) {
    return FailParam("kv_disk_bytes", "kv_disk_bytes is {}, but a block of keys and values takes {}", config.bytes_max,
                     tier->EntryBytes());
  }
  QUIRE_TRY_VOID(tier->Scan());
  return tier;
}

DiskTier::DiskTier(const Config& config, UniqueFd folder, UniqueFd lock, const Clock* clock)
    : config_(config),
      folder_(std::move(folder)),
      lock_(std::move(lock)),
      clock_(clock),
      back_off_(kFirstPause, kLongestPause) {
  stats_.kind = KvTierKind::kDisk;
}

// What is whole, by its size, is taken over in the order of its last use; a clock that jumped only spoils that order.
Result<> DiskTier::Scan() {
  struct Found {
    kv::ContentKey key;
    std::int64_t used_s, used_ns;
  };
  const auto close = [](DIR* stream) { ::closedir(stream); };
  const std::unique_ptr<DIR, decltype(close)> stream(::opendir((config_.folder / config_.identity).c_str()), close);
  if (!stream) return FailErrno("list", config_.folder.string());
  std::vector<Found> found;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    const bool is_new = name.ends_with(kNewSuffix);
    if (!is_new && !name.ends_with(kEntrySuffix)) continue;
    const auto key = ParseKey(name.substr(0, name.size() - (is_new ? kNewSuffix : kEntrySuffix).size()));
    if (!key) continue;  // not ours
    struct stat status{};
    const bool is_whole = !is_new && ::fstatat(folder_.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                          S_ISREG(status.st_mode) && status.st_size == EntryBytes();
    if (is_whole) {
      found.push_back({*key, status.st_mtim.tv_sec, status.st_mtim.tv_nsec});
    } else {
      ::unlinkat(folder_.get(), entry->d_name, 0);
      if (!is_new) ++stats_.damaged;
    }
  }
  std::ranges::sort(found, [](const Found& a, const Found& b) {
    return std::pair(a.used_s, a.used_ns) < std::pair(b.used_s, b.used_ns);
  });
  for (const Found& entry : found) Insert(entry.key);
  while (stats_.num_bytes > config_.bytes_max) MakeRoom();
  return {};
}

void DiskTier::Insert(const kv::ContentKey& key) {
  entries_.emplace(key, order_.insert(order_.end(), key));
  ++stats_.num_blocks;
  stats_.num_bytes += EntryBytes();
}

void DiskTier::Remove(const kv::ContentKey& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  ::unlinkat(folder_.get(), EntryName(key).c_str(), 0);
  order_.erase(entry->second);
  entries_.erase(entry);
  --stats_.num_blocks;
  stats_.num_bytes -= EntryBytes();
}

void DiskTier::MakeRoom() {
  Remove(kv::ContentKey(order_.front()));
  ++stats_.evictions;
}

void DiskTier::CountError(const Error& error) {
  ++stats_.errors;
  if (!back_off_.has_failed()) spdlog::warn("the KV disk tier pauses: {}", error.message);
  back_off_.Fail(clock_->Now());
}

void DiskTier::Contains(std::span<const kv::ContentKey> keys, std::span<bool> found) {
  for (std::size_t i = 0; i < keys.size(); ++i) found[i] = found[i] || entries_.contains(keys[i]);
}

bool DiskTier::Get(const kv::ContentKey& key, std::span<std::byte> block) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) {
    ++stats_.misses;
    return false;
  }
  const std::string name = EntryName(key);
  const UniqueFd file(::openat(folder_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  KvEntryHead head;
  std::array<iovec, 2> parts{iovec{head.data(), head.size()}, iovec{block.data(), block.size()}};
  struct stat status{};
  ssize_t got = -1;
  if (file.valid() && ::fstat(file.get(), &status) == 0 && status.st_size == EntryBytes()) {
    got = ::preadv(file.get(), parts.data(), parts.size(), 0);
  }
  if (got != EntryBytes() || !IsIntactKvEntry(key, head, block)) {
    ++(file.valid() ? stats_.damaged : stats_.misses);
    Remove(key);
    return false;
  }
  // For the order after a restart; where the file cannot be touched, it keeps the time at which it was written.
  (void)::futimens(file.get(), nullptr);
  order_.splice(order_.end(), order_, entry->second);
  ++stats_.hits;
  stats_.read_bytes += block.size();
  return true;
}

void DiskTier::Put(const kv::ContentKey& key, std::span<const std::byte> block) {
  if (entries_.contains(key) || !back_off_.IsOpen(clock_->Now())) return;
  while (stats_.num_bytes + EntryBytes() > config_.bytes_max) MakeRoom();
  const std::string name = key.ToHex().append(kNewSuffix);
  if (const Result<> written = Write(name, key, block); !written) {
    ::unlinkat(folder_.get(), name.c_str(), 0);
    return CountError(written.error());
  }
  back_off_.Succeed();
  Insert(key);
  ++stats_.stored;
  stats_.written_bytes += block.size();
}

Result<> DiskTier::Write(const std::string& name, const kv::ContentKey& key, std::span<const std::byte> block) {
  UniqueFd file(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return FailErrno("create", name);
  KvEntryHead head = MakeKvEntryHead(key, block);
  const std::array<iovec, 2> parts{iovec{head.data(), head.size()},
                                   iovec{const_cast<std::byte*>(block.data()), block.size()}};
  errno = 0;
  const ssize_t written = ::pwritev(file.get(), parts.data(), parts.size(), 0);
  if (written != EntryBytes()) {
    if (errno == 0) errno = ENOSPC;  // a part was written: there is no room for more
    return FailErrno("write", name);
  }
  // Some file systems say only now that the disk is full.
  if (::close(file.Release()) != 0) return FailErrno("write", name);
  if (::renameat(folder_.get(), name.c_str(), folder_.get(), EntryName(key).c_str()) != 0) {
    return FailErrno("rename", name);
  }
  return {};
}

}  // namespace quire::engine
