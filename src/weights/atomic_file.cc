#include "weights/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace quire::weights {
namespace {

constexpr std::size_t kPendingBytes = std::size_t{1} << 20;
constexpr int kAttemptsMax = 100;

std::unexpected<Error> OsError(std::string_view what, const std::filesystem::path& path) {
  return Fail(ErrorCode::kIo, "cannot {} {}: {}", what, path.string(), std::strerror(errno));
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::filesystem::path& path) {
  // In the same folder, so that the rename stays inside one file system. Another process, or one that was killed, may
  // have left a file of this name.
  for (int attempt = 0;; ++attempt) {
    const std::string temporary = fmt::format("{}.part-{}-{}", path.string(), ::getpid(), attempt);
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd.valid()) return AtomicFile(path, temporary, std::move(fd));
    if (errno != EEXIST || attempt == kAttemptsMax) return OsError("create", path);
  }
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::move(other.fd_)),
      pending_(std::move(other.pending_)),
      size_(other.size_) {}

AtomicFile::~AtomicFile() {
  std::error_code error;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, error);
}

Result<> AtomicFile::Write(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  if (bytes.size() >= kPendingBytes) {
    QUIRE_TRY_VOID(Flush());
    return WriteAll(bytes);
  }
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  return pending_.size() >= kPendingBytes ? Flush() : Result<>();
}

Result<> AtomicFile::Flush() {
  const Result<> result = WriteAll(pending_);
  pending_.clear();
  return result;
}

Result<> AtomicFile::WriteAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return OsError("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<> AtomicFile::Commit() {
  QUIRE_TRY_VOID(Flush());
  if (::fsync(fd_.get()) != 0) return OsError("flush", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return OsError("put in place", path_);
  temporary_.clear();
  return {};
}

}  // namespace quire::weights
