#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/unique_fd.h"

namespace quire {

void MappedFile::Unmap::operator()(const std::byte* data) const {
  ::munmap(const_cast<std::byte*>(data), size);
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  // Not blocking: a FIFO would be waited for, and is refused below.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) return Fail(ErrorCode::kIo, "cannot open {}: {}", path.string(), std::strerror(errno));
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) {
    return Fail(ErrorCode::kIo, "cannot read the size of {}: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return Fail(ErrorCode::kIo, "{} is not a regular file", path.string());
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<std::size_t>(status.st_size);
  if (file.size_ == 0) return file;
  void* memory = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (memory == MAP_FAILED) return Fail(ErrorCode::kIo, "cannot map {}: {}", path.string(), std::strerror(errno));
  file.data_ = std::unique_ptr<const std::byte, Unmap>(static_cast<const std::byte*>(memory), Unmap{file.size_});
  return file;
}

void MappedFile::ReadAhead() const {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(data_.get()), size_, MADV_WILLNEED);  // a hint: may fail
}

void MappedFile::Release(std::span<const std::byte> part) const {
  if (part.empty()) return;
  DCHECK(part.data() >= data_.get() && part.data() + part.size() <= data_.get() + size_);
  // Whole pages inside the part only: its first and last page may hold a neighbour that is still to be read.
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + kPage - 1) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / kPage * kPage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<std::string> ReadFile(const std::filesystem::path& path, std::size_t bytes_max) {
  QUIRE_TRY(const MappedFile file, MappedFile::Open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > bytes_max) {
    return Fail(ErrorCode::kOutOfRange, "{} has {} bytes; at most {} are allowed", path.string(), bytes.size(),
                bytes_max);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace quire
