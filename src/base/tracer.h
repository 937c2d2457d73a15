// What each thread did when, for a viewer of traces. Off, which it is until Start, a span costs the look at a flag;
// on, two looks at the clock and a place in a buffer that is taken beforehand. Who is not fast enough to take the
// events out loses some, which are counted.
//
//   TraceLane* lane = tracer.Lane("engine");           // of one thread, at start-up; or null: never traced
//   const TraceSpan span(lane, TraceLabel::kPlan);     // until the end of the block
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/trace_labels.h"

namespace quire {

struct TraceEvent {
  TimePoint begin{};
  Duration duration{};  // of spans
  TraceLabel label = TraceLabel::kStep;
  std::array<std::int32_t, 3> values{};
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

enum class TraceCommand : std::uint8_t {
  kStart,  // forgets what was recorded before
  kTake,
  kStop,
};

// What a process has recorded since it was asked last.
struct TraceBatch {
  struct Lane {
    std::string name;
    std::vector<TraceEvent> events;  // a span stands behind those that are nested in it
    std::uint64_t dropped = 0;       // since Start
  };
  TimePoint now{};  // by the process's clock, to compare it with another's
  bool is_on = false;
  int pid = 0;
  std::vector<Lane> lanes;
};

// The events of one thread, or of several that exclude each other while a span of theirs is open.
class TraceLane {
 public:
  TraceLane(std::string name, const std::atomic<bool>* is_on, const Clock* clock)
      : name_(std::move(name)), is_on_(is_on), clock_(clock) {}

  bool is_on() const { return is_on_->load(std::memory_order_relaxed); }  // a hint; the buffer has its mutex
  TimePoint Now() const { return clock_->Now(); }
  void Add(const TraceEvent& event);
  // The innermost open span of the thread that asks; for work that it hands to others.
  struct Open {
    TraceLabel label = TraceLabel::kStep;
    std::int32_t value = 0;
  };
  Open open() const { return open_; }
  // Counters.
  void Count(TraceLabel label, std::array<std::int32_t, 3> values) {
    if (is_on()) Add({.begin = Now(), .duration = {}, .label = label, .values = values});
  }

 private:
  friend class Tracer;
  friend class TraceSpan;

  const std::string name_;
  const std::atomic<bool>* const is_on_;
  const Clock* const clock_;
  Open open_;         // of the thread
  std::mutex mutex_;  // guards everything below
  std::vector<TraceEvent> events_;
  std::size_t capacity_ = 0;  // 0: off
  std::uint64_t dropped_ = 0;
};

// A span from here to the end of the block. `lane` may be null.
class TraceSpan {
 public:
  TraceSpan(TraceLane* lane, TraceLabel label, std::int32_t value0 = 0, std::int32_t value1 = 0)
      : lane_(lane != nullptr && lane->is_on() ? lane : nullptr) {
    if (lane_ == nullptr) return;
    event_.label = label;
    event_.values = {value0, value1, 0};
    outer_ = std::exchange(lane_->open_, {label, value0});
    event_.begin = lane_->Now();
  }
  ~TraceSpan() {
    if (lane_ == nullptr) return;
    lane_->open_ = outer_;
    event_.duration = lane_->Now() - event_.begin;
    lane_->Add(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  void SetValue(std::size_t index, std::int64_t value) { event_.values[index] = static_cast<std::int32_t>(value); }

 private:
  TraceLane* const lane_;
  TraceLane::Open outer_;
  TraceEvent event_;
};

// Any thread. `clock` is read by all of them and outlives the tracer.
class Tracer {
 public:
  static constexpr std::size_t kLaneEvents = std::size_t{1} << 15;
  static constexpr std::size_t kLanesMax = 256;

  explicit Tracer(const Clock* clock, std::size_t lane_events = kLaneEvents)
      : clock_(clock), lane_events_(lane_events) {}

  // The lane with this name; it lives as long as the tracer. Null when there are too many.
  TraceLane* Lane(std::string_view name);

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  const Clock& clock() const { return *clock_; }

  // What `command` says; the batch has what was recorded, at most about kBatchEvents of it: after kStop, kTake brings
  // what is left until a batch is empty.
  TraceBatch Apply(TraceCommand command);

 private:
  static constexpr std::size_t kBatchEvents = std::size_t{1} << 20;

  const Clock* const clock_;
  const std::size_t lane_events_;
  std::atomic<bool> is_on_{false};
  std::mutex mutex_;  // guards everything below, and orders commands
  std::vector<std::unique_ptr<TraceLane>> lanes_;
  std::size_t first_lane_ = 0;  // of the next batch: none is left out for ever
};

// How far the other clock is behind ours, when it showed `now` at some time between our `before` and `after`. Two
// processes of one machine have the same clock, and then this is exactly nothing.
inline Duration ClockOffset(TimePoint before, TimePoint now, TimePoint after) {
  if (before <= now && now <= after) return Duration{};
  return before + (after - before) / 2 - now;
}

}  // namespace quire
