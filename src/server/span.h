// A span of OpenTelemetry, and the JSON of OTLP that carries some of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/trace_context.h"

namespace quire::server {

// Names are string literals.
struct SpanAttribute {
  std::string_view name;
  std::variant<std::int64_t, double, std::string> value;
};

struct SpanEvent {
  std::string_view name;
  std::int64_t unix_ns = 0;
  std::vector<SpanAttribute> attributes;
};

inline constexpr std::size_t kSpanEventsMax = 128;  // OpenTelemetry's own limit

struct Span {
  TraceId trace{};
  SpanId id{};
  std::optional<SpanId> parent;
  std::string trace_state;
  std::string_view name;
  std::int64_t begin_unix_ns = 0, end_unix_ns = 0;
  std::vector<SpanAttribute> attributes;
  std::vector<SpanEvent> events;  // kSpanEventsMax at most
  int num_dropped_events = 0;
  std::string error;  // "": it ended well
};

// The body of a request to a collector: ExportTraceServiceRequest in the JSON mapping of Protocol Buffers (64-bit
// integers are strings, ids are hexadecimal).
std::string OtlpJson(std::span<const Span> spans);

}  // namespace quire::server
