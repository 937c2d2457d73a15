#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quire {
namespace {
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
}  // namespace

void AlignedBuffer::Unmap::operator()(std::byte* data) const {
  ::munmap(data, mapped_bytes);
}

Result<AlignedBuffer> AlignedBuffer::Allocate(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 46)) {
    return Fail(ErrorCode::kOutOfRange, "cannot allocate {} bytes: more than the address space holds", bytes);
  }
  const std::size_t mapped = (std::max(bytes, kCacheLineBytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Fail(ErrorCode::kOutOfRange, "cannot allocate {} bytes: {}", bytes, std::strerror(errno));
  }
  if (mapped >= kHugePageBytes) ::madvise(memory, mapped, MADV_HUGEPAGE);  // a hint: failure costs speed only
  AlignedBuffer buffer;
  buffer.data_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(memory), Unmap{mapped});
  buffer.size_ = bytes;
  return buffer;
}

}  // namespace quire
