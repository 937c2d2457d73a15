// Counts what a test program allocates. Included in one file of the program only: it defines operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace quire {
inline std::atomic<std::int64_t> num_allocations{0};
}  // namespace quire

// Weak, because ThreadSanitizer has its own; there nothing is counted.
[[gnu::weak]] void* operator new(std::size_t size) {
  quire::num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  return memory;
}
[[gnu::weak]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::weak]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
