// A random number is a function of (key, counter), with no state between draws: Philox 4x32 with ten rounds
// (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// The sampler keys it by (request seed, position), so a draw never depends on who else is in the batch.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

constexpr std::array<std::uint32_t, 4> Philox4x32(std::uint64_t key, std::array<std::uint32_t, 4> counter) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t p1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits, the `draw`-th of the stream (seed, position).
constexpr double UniformDouble(std::uint64_t seed, std::uint64_t position, std::uint32_t draw = 0) {
  const auto bits =
      Philox4x32(seed, {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), draw, 0});
  return static_cast<double>(((std::uint64_t{bits[0]} << 32) | bits[1]) >> 11) * 0x1p-53;
}

}  // namespace quire
