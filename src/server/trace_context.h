// Whom a request's span belongs to: W3C Trace Context, level 1.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quire::server {

using TraceId = std::array<std::uint8_t, 16>;
using SpanId = std::array<std::uint8_t, 8>;

struct TraceParent {
  TraceId trace{};
  SpanId span{};
  bool is_sampled = false;
  std::string state;  // tracestate, handed on as it came
};

// From the headers traceparent and tracestate; nothing when the first is not well-formed, as if it were not there. A
// tracestate that is too long or not plain is left out.
std::optional<TraceParent> ParseTraceParent(std::string_view traceparent, std::string_view tracestate);

std::string ToHex(std::span<const std::uint8_t> bytes);

}  // namespace quire::server
