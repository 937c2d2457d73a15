// Monotonic time, handed in so that tests and simulations can hold it in their hand.
#pragma once

#include <atomic>
#include <chrono>

namespace quire {

using Duration = std::chrono::nanoseconds;
// Time since an arbitrary start; readings of two processes are never compared.
using TimePoint = std::chrono::time_point<struct QuireClockTag, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override {
    return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
};

// Stands still until it is told to move. Not for use by several threads at once.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(now_.load())); }
  void Advance(Duration step) { now_ += step.count(); }

 private:
  std::atomic<Duration::rep> now_{0};
};

inline double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace quire
