// When to try something again that failed: after a pause that doubles with each failure in a row.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace quire::engine {

class BackOff {
 public:
  BackOff(Duration first, Duration longest) : first_(first), longest_(longest) {}

  bool IsOpen(TimePoint now) const { return pause_ == Duration::zero() || now >= next_; }
  void Fail(TimePoint now) {
    pause_ = pause_ == Duration::zero() ? first_ : std::min(2 * pause_, longest_);
    next_ = now + pause_;
  }
  void Succeed() { pause_ = Duration::zero(); }
  // The first of a row of failures, which is worth a line in the log.
  bool has_failed() const { return pause_ != Duration::zero(); }

 private:
  const Duration first_, longest_;
  Duration pause_ = Duration::zero();
  TimePoint next_{};
};

}  // namespace quire::engine
