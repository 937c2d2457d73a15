// How long the parts of a choice's life took, as vLLM's code defines them: a preemption counts into the part in which
// it happened. From stamps of one monotonic clock, so that none is negative.
#pragma once

#include <algorithm>
#include <optional>

#include "api/events.h"
#include "base/clock.h"

namespace quire {

// In seconds; nothing for a part that a choice did not come to.
struct RequestIntervals {
  std::optional<double> queue;                  // queued → first scheduled
  std::optional<double> prefill;                // first scheduled → first token
  std::optional<double> decode;                 // first token → last token
  std::optional<double> inference;              // first scheduled → last token
  std::optional<double> time_per_output_token;  // decode by the tokens after the first
};

inline RequestIntervals DeriveIntervals(const RequestTimes& times, int num_tokens) {
  const auto between = [](TimePoint begin, TimePoint end) -> std::optional<double> {
    if (begin == TimePoint{} || end == TimePoint{}) return std::nullopt;
    return std::max(0.0, Seconds(end - begin));
  };
  RequestIntervals intervals{.queue = between(times.queued, times.first_scheduled),
                             .prefill = between(times.first_scheduled, times.first_token),
                             .decode = between(times.first_token, times.last_token),
                             .inference = between(times.first_scheduled, times.last_token),
                             .time_per_output_token = std::nullopt};
  if (intervals.decode && num_tokens > 1) intervals.time_per_output_token = *intervals.decode / (num_tokens - 1);
  return intervals;
}

}  // namespace quire
