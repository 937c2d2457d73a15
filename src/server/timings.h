// The life of a choice as its client sees it: the engine's stamps brought to the front end's clock, and the times that
// follow from them. For answers (return_timings), metrics and spans.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "api/events.h"
#include "api/intervals.h"
#include "base/clock.h"
#include "base/json.h"

namespace quire::server {

// When a request came, by both clocks. Only the monotonic one is ever subtracted from; the wall clock may jump.
struct Arrival {
  TimePoint at{};            // its head had been read
  std::int64_t unix_ns = 0;  // the same moment
};

// When the engine was asked, and when the call returned: by the front end's clock, between which it has the request.
struct Submission {
  TimePoint begin{}, end{};
};

struct ChoiceTimings {
  Submission submission;
  RequestTimes engine;      // by the engine's clock
  TimePoint first_token{};  // when the front end had it
  TimePoint ended{};        // likewise the end
  int num_tokens = 0;
};

struct LifeEvent {
  std::string_view name;
  TimePoint at{};  // by the front end's clock
};

// What happened to a choice, in order, beginning with its arrival; only what did happen.
std::vector<LifeEvent> LifeOf(const ChoiceTimings& timings, const Arrival& arrival);

// The object that return_timings asks for.
void WriteTimings(const ChoiceTimings& timings, const Arrival& arrival, JsonWriter* writer);

}  // namespace quire::server
