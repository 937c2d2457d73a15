// Which cached blocks are given up first when blocks run out. Whatever is chosen, only the time that requests take
// depends on it, never what they get.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace quire::kv {

enum class EvictionPolicy : std::uint8_t {
  kLru,        // least recently used
  kLfu,        // least frequently used, with dynamic aging
  kSizeAware,  // fewest uses for its size: a long prefix that is rarely used makes room for many short ones
};
inline constexpr EvictionPolicy kEvictionPolicies[] = {EvictionPolicy::kLru, EvictionPolicy::kLfu,
                                                       EvictionPolicy::kSizeAware};

std::string_view EvictionPolicyName(EvictionPolicy policy);
// "lru", "lfu" or "size-aware".
Result<EvictionPolicy> ParseEvictionPolicy(std::string_view name);

// Of two runs of blocks the one with the lower priority goes first; of equal ones, the one that was used less recently.
//
// `age` is that of the cache when the run was used last, and the cache's age is the highest priority that it evicted so
// far. So what was popular once does not stay forever: all that came or was used since has the higher age. This is
// LFU with dynamic aging and, with sizes, GreedyDual-Size-Frequency (Arlitt et al., "Evaluating Content Management
// Techniques for Web Proxy Caches", 1999).
constexpr std::uint64_t EvictionPriority(EvictionPolicy policy, std::uint64_t age, std::uint64_t num_uses,
                                         std::size_t num_blocks) {
  // Fractions of a use: sizes of up to a million blocks are told apart.
  constexpr std::uint64_t kOneUse = 1 << 20;
  switch (policy) {
    case EvictionPolicy::kLru:
      return 0;
    case EvictionPolicy::kLfu:
      return age + num_uses;
    case EvictionPolicy::kSizeAware:
      return age + num_uses * kOneUse / num_blocks;
  }
  return 0;
}

}  // namespace quire::kv
