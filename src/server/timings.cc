#include "server/timings.h"

#include <algorithm>
#include <optional>

#include "base/tracer.h"

namespace quire::server {

std::vector<LifeEvent> LifeOf(const ChoiceTimings& timings, const Arrival& arrival) {
  std::vector<LifeEvent> life = {{"arrival", arrival.at}};
  const RequestTimes& times = timings.engine;
  const Duration offset = ClockOffset(timings.submission.begin, times.queued, timings.submission.end);
  const auto insert = [&](std::string_view name, TimePoint at) {
    life.insert(std::ranges::upper_bound(life, at, {}, &LifeEvent::at), {name, at});
  };
  const auto add = [&](std::string_view name, TimePoint at) {
    if (at != TimePoint{}) insert(name, at + offset);
  };
  add("queued", times.queued);
  add("scheduled", times.first_scheduled);
  add("inference_begin", times.inference_begin);
  for (const LifeMark& mark : times.marks) {
    add(mark.change == LifeChange::kPreempted ? "preempted" : "scheduled", mark.at);
  }
  add("first_token", times.first_token);
  add("inference_end", times.inference_end);
  add("finished", times.finished);
  // A stop string ends a choice here, before the engine knows.
  if (times.finished == TimePoint{} && timings.ended != TimePoint{}) insert("finished", timings.ended);
  return life;
}

void WriteTimings(const ChoiceTimings& timings, const Arrival& arrival, JsonWriter* writer) {
  const auto seconds = [&](std::string_view name, std::optional<double> value) {
    writer->Key(name);
    value ? writer->Double(*value) : writer->Null();
  };
  const auto since_arrival = [&](TimePoint at) -> std::optional<double> {
    if (at == TimePoint{}) return std::nullopt;
    return std::max(0.0, Seconds(at - arrival.at));
  };
  const RequestIntervals intervals = DeriveIntervals(timings.engine, timings.num_tokens);
  writer->BeginObject();
  writer->Key("arrival_time").Double(static_cast<double>(arrival.unix_ns) * 1e-9);
  seconds("queue_time_seconds", intervals.queue);
  seconds("prefill_time_seconds", intervals.prefill);
  seconds("decode_time_seconds", intervals.decode);
  seconds("inference_time_seconds", intervals.inference);
  seconds("time_to_first_token_seconds", since_arrival(timings.first_token));
  seconds("time_per_output_token_seconds", intervals.time_per_output_token);
  seconds("inter_token_latency_max_seconds",
          timings.num_tokens > 1 ? std::optional(Seconds(timings.engine.longest_token_gap)) : std::nullopt);
  seconds("e2e_latency_seconds", since_arrival(timings.ended));
  writer->Key("num_steps").Int(timings.engine.num_steps);
  writer->Key("num_preemptions").Int(timings.engine.num_preemptions);
  writer->Key("events").BeginArray();
  for (const LifeEvent& event : LifeOf(timings, arrival)) {
    writer->BeginObject().Key("event").String(event.name);
    seconds("seconds", since_arrival(event.at));
    writer->EndObject();
  }
  writer->EndArray().EndObject();
}

}  // namespace quire::server
