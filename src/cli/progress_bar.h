// How far a long task is: a bar that redraws itself on a terminal, one line per 10 % elsewhere (logs, pipes).
//
//   loading  ██████████████░░░░░░░░░░  58 %  542 MiB of 934 MiB  1.2 GB/s  0.3 s left
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace quire::cli {

// Where lines for people go, and what that place can do.
struct Terminal {
  std::FILE* file = nullptr;
  bool is_tty = false;
  int columns = 80;  // of a terminal

  static Terminal Of(std::FILE* file);
  // At once. What cannot be written is lost: progress is no reason to fail.
  void Write(std::string_view text) const;
};

// What is counted.
enum class ProgressUnit : std::uint8_t { kBytes, kTokens, kRequests };

class ProgressBar {
 public:
  // `label` stands before the bar. The clock outlives the bar.
  ProgressBar(std::string label, Terminal terminal, const Clock* clock, ProgressUnit unit = ProgressUnit::kBytes);
  // Removes a bar that is still shown.
  ~ProgressBar();

  // Draws at most some 20 times a second. A `done` lower than before starts a new count.
  void Update(std::int64_t done, std::int64_t total);
  // Removes the bar; what follows starts on a clean line.
  void Finish();

 private:
  std::string Line(double fraction, std::int64_t done, std::int64_t total, TimePoint now) const;

  const std::string label_;
  const Terminal terminal_;
  const Clock* const clock_;
  const ProgressUnit unit_;
  TimePoint start_{};
  TimePoint last_drawn_{};
  bool started_ = false;
  bool shown_ = false;
  int next_tenth_ = 0;  // without a terminal: the next tenth to report
  std::int64_t done_ = 0;
};

}  // namespace quire::cli
