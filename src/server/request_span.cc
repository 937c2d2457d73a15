#include "server/request_span.h"

#include <algorithm>
#include <cstring>

#include "server/random_bits.h"

namespace quire::server {
namespace {

template <std::size_t N>
std::array<std::uint8_t, N> RandomId() {
  std::array<std::uint8_t, N> id{};
  for (std::size_t i = 0; i < N; i += sizeof(std::uint64_t)) {
    const std::uint64_t bits = RandomBits() | 1;  // all zero is no id
    std::memcpy(id.data() + i, &bits, sizeof bits);
  }
  return id;
}

void AddEvents(const ChoiceTimings& choice, int index, const Arrival& arrival, Span* span) {
  for (const LifeEvent& event : LifeOf(choice, arrival)) {
    if (event.name == "arrival") continue;  // the span's own begin
    if (span->events.size() >= kSpanEventsMax) {
      ++span->num_dropped_events;
      continue;
    }
    span->events.push_back({.name = event.name,
                            .unix_ns = arrival.unix_ns + std::max(Duration{}, event.at - arrival.at).count(),
                            .attributes = {{"choice", std::int64_t{index}}}});
  }
}

}  // namespace

Span MakeRequestSpan(const GenerationSpec& spec, const RequestOrigin& origin, const Usage& usage,
                     std::span<const ChoiceTimings> choices, const std::string& error) {
  Span span;
  span.name = "llm_request";
  span.id = RandomId<8>();
  if (origin.parent) {
    span.trace = origin.parent->trace;
    span.parent = origin.parent->span;
    span.trace_state = origin.parent->state;
  } else {
    span.trace = RandomId<16>();
  }
  span.error = error;

  const ChoiceTimings& first = choices.front();
  TimePoint ended = origin.arrival.at;
  for (const ChoiceTimings& choice : choices) {
    ended = std::max(ended, choice.ended);
  }
  const Duration end_to_end = ended - origin.arrival.at;
  span.begin_unix_ns = origin.arrival.unix_ns;
  span.end_unix_ns = origin.arrival.unix_ns + end_to_end.count();

  const auto add = [&](std::string_view name, auto value) { span.attributes.push_back({name, std::move(value)}); };
  const auto add_seconds = [&](std::string_view name, std::optional<double> seconds) {
    if (seconds) add(name, *seconds);
  };
  add("gen_ai.request.id", spec.id);
  add("gen_ai.response.model", spec.model);
  add("gen_ai.request.temperature", spec.sampling.temperature);
  add("gen_ai.request.top_p", spec.sampling.top_p);
  add("gen_ai.request.max_tokens", std::int64_t{spec.prompts.front().max_tokens});
  add("gen_ai.request.n", std::int64_t{spec.sampling.n});
  add("gen_ai.usage.prompt_tokens", usage.prompt_tokens);
  add("gen_ai.usage.completion_tokens", usage.completion_tokens);
  add("gen_ai.usage.num_sequences", static_cast<std::int64_t>(choices.size()));
  const RequestIntervals intervals = DeriveIntervals(first.engine, first.num_tokens);
  add_seconds("gen_ai.latency.time_in_queue", intervals.queue);
  add_seconds("gen_ai.latency.time_in_model_prefill", intervals.prefill);
  add_seconds("gen_ai.latency.time_in_model_decode", intervals.decode);
  add_seconds("gen_ai.latency.time_in_model_inference", intervals.inference);
  if (first.first_token != TimePoint{}) {
    add("gen_ai.latency.time_to_first_token", Seconds(first.first_token - origin.arrival.at));
  }
  add("gen_ai.latency.e2e", Seconds(end_to_end));
  for (std::size_t i = 0; i < choices.size(); ++i) {
    AddEvents(choices[i], static_cast<int>(i), origin.arrival, &span);
  }
  return span;
}

}  // namespace quire::server
