// For ids and default seeds.
#pragma once

#include <sys/random.h>

#include <chrono>
#include <cstdint>

namespace quire::server {

inline std::uint64_t RandomBits() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    bits = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return bits;
}

}  // namespace quire::server
