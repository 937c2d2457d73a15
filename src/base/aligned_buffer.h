// Zeroed memory that starts on a cache line; large buffers ask for huge pages. Move-only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"

namespace quire {

inline constexpr std::size_t kCacheLineBytes = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  // Fails with kOutOfRange when the memory cannot be had; zeroed, at least one cache line.
  static Result<AlignedBuffer> Allocate(std::size_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

  // The whole buffer as an array of T; what is left over at the end is not part of it.
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  struct Unmap {
    std::size_t mapped_bytes;
    void operator()(std::byte* data) const;
  };

  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  std::size_t size_ = 0;
};

}  // namespace quire
