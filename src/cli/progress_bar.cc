#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cli/units.h"

namespace quire::cli {
namespace {

constexpr Duration kDrawInterval = std::chrono::milliseconds(50);
constexpr int kBarColumnsMax = 30;
// The label is short; the figures behind the bar take at most this much.
constexpr int kFigureColumns = 60;
constexpr double kSecondsBeforeEstimate = 0.3;

std::string Amounts(ProgressUnit unit, std::int64_t done, std::int64_t total) {
  if (unit == ProgressUnit::kTokens) return fmt::format("{} of {} tokens", done, total);
  if (unit == ProgressUnit::kRequests) return fmt::format("{} of {}", done, total);
  return fmt::format("{} of {}", FormatBytes(done), FormatBytes(total));
}

std::string Rate(ProgressUnit unit, double per_second) {
  if (unit == ProgressUnit::kTokens) return fmt::format("{:.0f} tokens/s", per_second);
  if (unit == ProgressUnit::kRequests) return fmt::format("{:.1f} a second", per_second);
  if (per_second >= 1e8) return fmt::format("{:.1f} GB/s", per_second / 1e9);
  return fmt::format("{:.0f} MB/s", per_second / 1e6);
}

}  // namespace

Terminal Terminal::Of(std::FILE* file) {
  Terminal terminal{.file = file, .is_tty = ::isatty(::fileno(file)) == 1};
  winsize size{};
  if (terminal.is_tty && ::ioctl(::fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
    terminal.columns = size.ws_col;
  }
  return terminal;
}

void Terminal::Write(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

ProgressBar::ProgressBar(std::string label, Terminal terminal, const Clock* clock, ProgressUnit unit)
    : label_(std::move(label)), terminal_(terminal), clock_(clock), unit_(unit) {}

ProgressBar::~ProgressBar() {
  Finish();
}

void ProgressBar::Update(std::int64_t done, std::int64_t total) {
  const TimePoint now = clock_->Now();
  if (!started_ || done < done_) {
    start_ = now;
    started_ = true;
    next_tenth_ = 0;
    last_drawn_ = TimePoint{};
  }
  done_ = done;
  const double fraction =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0.0;
  if (!terminal_.is_tty) {
    if (fraction * 10 < next_tenth_ || total <= 0) return;
    next_tenth_ = static_cast<int>(fraction * 10) + 1;
    terminal_.Write(Line(fraction, done, total, now) + "\n");
    return;
  }
  if (shown_ && now - last_drawn_ < kDrawInterval && done < total) return;
  last_drawn_ = now;
  shown_ = true;
  // To the start of the line, the text, and away with what is longer from before.
  terminal_.Write("\r" + Line(fraction, done, total, now) + "\x1b[K");
}

void ProgressBar::Finish() {
  if (!shown_) return;
  terminal_.Write("\r\x1b[K");
  shown_ = false;
}

std::string ProgressBar::Line(double fraction, std::int64_t done, std::int64_t total, TimePoint now) const {
  std::string line = label_ + "  ";
  const int columns = std::min(kBarColumnsMax, terminal_.columns - static_cast<int>(label_.size()) - kFigureColumns);
  const bool has_bar = terminal_.is_tty && columns >= 5;
  if (has_bar) {
    const int filled = static_cast<int>(fraction * columns);
    for (int i = 0; i < columns; ++i) line += i < filled ? "█" : "░";
    line += "  ";
  }
  line += fmt::format("{:3} %  {}", static_cast<int>(fraction * 100), Amounts(unit_, done, total));
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (seconds > 0.02 && done > 0) line += "  " + Rate(unit_, static_cast<double>(done) / seconds);
  if (seconds > kSecondsBeforeEstimate && fraction > 0 && fraction < 1) {
    line += fmt::format("  {} left", FormatSeconds(seconds * (1 - fraction) / fraction));
  }
  // A line that is too long would wrap, and stay.
  if (terminal_.is_tty && !has_bar) line.resize(std::min(line.size(), static_cast<std::size_t>(terminal_.columns - 1)));
  return line;
}

}  // namespace quire::cli
