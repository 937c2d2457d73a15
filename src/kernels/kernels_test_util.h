// What the tests of several modules need to run once on every tier of this machine, and memory that tells a kernel that
// reads too far.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>

#include "base/check.h"
#include "kernels/kernel_table.h"

namespace quire::kernels {

// Found by GoogleTest, which would print addresses and bytes instead: CTest's names would change from run to run.
inline void PrintTo(const KernelTable* table, std::ostream* out) {
  *out << table->isa;
}
inline void PrintTo(WeightFormat format, std::ostream* out) {
  *out << Traits(format).name;
}

class TierTest : public testing::TestWithParam<const KernelTable*> {};

inline auto EveryTier() {
  return testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end());
}
inline std::string TierName(const testing::TestParamInfo<const KernelTable*>& info) {
  return std::string(info.param->isa);
}

// Zeroed bytes behind which reading and writing are faults. They begin on a cache line when `size` is a multiple of 64.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t size) {
    const std::size_t before_guard = (size + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
    const std::size_t mapped = before_guard + kGuardBytes;
    void* memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory_ = {static_cast<std::byte*>(memory), Unmap{mapped}};
    CHECK(::mprotect(memory_.get() + before_guard, kGuardBytes, PROT_NONE) == 0);
    data_ = memory_.get() + before_guard - size;
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kGuardBytes = 4096;  // a page
  struct Unmap {
    std::size_t mapped;
    void operator()(std::byte* memory) const { ::munmap(memory, mapped); }
  };

  std::unique_ptr<std::byte, Unmap> memory_{nullptr, Unmap{0}};
  std::byte* data_ = nullptr;
};

}  // namespace quire::kernels
