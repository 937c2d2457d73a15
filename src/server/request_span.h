// The span of a generation request: one for each HTTP request, with the attributes that vLLM gives its own.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "server/answer_json.h"
#include "server/prepare.h"
#include "server/span.h"
#include "server/timings.h"
#include "server/trace_context.h"

namespace quire::server {

// Where and when a request came from.
struct RequestOrigin {
  Arrival arrival;
  std::optional<TraceParent> parent;
};

// A client that has decided not to record its own part of a trace gets none of ours.
inline bool IsSampled(const RequestOrigin& origin) {
  return !origin.parent || origin.parent->is_sampled;
}

// `choices`: of all prompts, at least one. Times are those of the first, and its longest for the end.
Span MakeRequestSpan(const GenerationSpec& spec, const RequestOrigin& origin, const Usage& usage,
                     std::span<const ChoiceTimings> choices, const std::string& error);

}  // namespace quire::server
