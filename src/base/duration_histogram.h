// How durations are spread, from milliseconds to half an hour; cheap enough for the step loop.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/clock.h"

namespace quire {

// Bucket i counts durations of at most kSecondsMax[i] and more than the one before; the last one counts the rest.
struct DurationHistogram {
  // vLLM's buckets for the residency of KV blocks.
  static constexpr double kSecondsMax[] = {.001, .002, .005, .01, .02, .05, .1,  .2,  .5,   1,   2,
                                           5,    10,   20,   30,  60,  120, 300, 600, 1200, 1800};
  static constexpr std::size_t kNumBuckets = std::size(kSecondsMax) + 1;

  // `count` durations that are alike.
  void Add(Duration duration, std::uint64_t count = 1) {
    const double seconds = Seconds(duration);
    const auto bucket = std::ranges::lower_bound(kSecondsMax, seconds) - std::begin(kSecondsMax);
    counts[static_cast<std::size_t>(bucket)] += count;
    sum_s += seconds * static_cast<double>(count);
  }

  std::array<std::uint64_t, kNumBuckets> counts{};
  double sum_s = 0;

  friend bool operator==(const DurationHistogram&, const DurationHistogram&) = default;
};

}  // namespace quire
