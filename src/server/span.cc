#include "server/span.h"

#include "base/json.h"

namespace quire::server {
namespace {

constexpr int kKindServer = 2;
constexpr int kStatusError = 2;

void WriteAttribute(const SpanAttribute& attribute, JsonWriter* writer) {
  writer->BeginObject().Key("key").String(attribute.name).Key("value").BeginObject();
  if (const auto* integer = std::get_if<std::int64_t>(&attribute.value)) {
    writer->Key("intValue").String(std::to_string(*integer));
  } else if (const auto* number = std::get_if<double>(&attribute.value)) {
    writer->Key("doubleValue").Double(*number);
  } else {
    writer->Key("stringValue").String(std::get<std::string>(attribute.value));
  }
  writer->EndObject().EndObject();
}

void WriteAttributes(std::span<const SpanAttribute> attributes, JsonWriter* writer) {
  writer->Key("attributes").BeginArray();
  for (const SpanAttribute& attribute : attributes) WriteAttribute(attribute, writer);
  writer->EndArray();
}

void WriteSpan(const Span& span, JsonWriter* writer) {
  writer->BeginObject();
  writer->Key("traceId").String(ToHex(span.trace));
  writer->Key("spanId").String(ToHex(span.id));
  if (span.parent) writer->Key("parentSpanId").String(ToHex(*span.parent));
  if (!span.trace_state.empty()) writer->Key("traceState").String(span.trace_state);
  writer->Key("name").String(span.name);
  writer->Key("kind").Int(kKindServer);
  writer->Key("startTimeUnixNano").String(std::to_string(span.begin_unix_ns));
  writer->Key("endTimeUnixNano").String(std::to_string(span.end_unix_ns));
  WriteAttributes(span.attributes, writer);
  writer->Key("events").BeginArray();
  for (const SpanEvent& event : span.events) {
    writer->BeginObject();
    writer->Key("timeUnixNano").String(std::to_string(event.unix_ns));
    writer->Key("name").String(event.name);
    WriteAttributes(event.attributes, writer);
    writer->EndObject();
  }
  writer->EndArray();
  if (span.num_dropped_events > 0) writer->Key("droppedEventsCount").Int(span.num_dropped_events);
  writer->Key("status").BeginObject();
  if (!span.error.empty()) writer->Key("code").Int(kStatusError).Key("message").String(span.error);
  writer->EndObject();
  writer->EndObject();
}

}  // namespace

std::string OtlpJson(std::span<const Span> spans) {
  const SpanAttribute service[] = {{"service.name", "quire"}, {"service.version", QUIRE_VERSION}};
  std::string text;
  JsonWriter writer(&text);
  writer.BeginObject().Key("resourceSpans").BeginArray().BeginObject();
  writer.Key("resource").BeginObject();
  WriteAttributes(service, &writer);
  writer.EndObject();
  writer.Key("scopeSpans").BeginArray().BeginObject();
  writer.Key("scope").BeginObject().Key("name").String("quire").Key("version").String(QUIRE_VERSION).EndObject();
  writer.Key("spans").BeginArray();
  for (const Span& span : spans) WriteSpan(span, &writer);
  writer.EndArray().EndObject().EndArray().EndObject().EndArray().EndObject();
  return text;
}

}  // namespace quire::server
