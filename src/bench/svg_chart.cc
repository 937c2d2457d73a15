#include "bench/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace quire::bench {
namespace {

constexpr double kWidth = 720, kHeight = 360;  // of one chart
constexpr double kLeft = 80, kRight = 190, kTop = 40, kBottom = 50;
constexpr int kTicks = 5;
constexpr std::string_view kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                         "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"};

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// One axis: values to a place between 0 and 1.
class Axis {
 public:
  Axis(bool is_log, bool begins_at_zero) : is_log_(is_log), begins_at_zero_(begins_at_zero && !is_log) {}

  bool Takes(double value) const { return std::isfinite(value) && (!is_log_ || value > 0); }
  void Include(double value) {
    low_ = is_empty_ ? value : std::min(low_, value);
    high_ = is_empty_ ? value : std::max(high_, value);
    is_empty_ = false;
  }
  // Values where a line is drawn: 1, 2 or 5 times a power of ten apart; powers of ten on a logarithmic axis. Widens the axis to
  // the outermost ones.
  std::vector<double> Ticks() {
    if (is_empty_) Include(1);
    std::vector<double> ticks;
    if (is_log_) {
      const double first = std::floor(std::log10(low_)), last = std::ceil(std::log10(high_) - 1e-9);
      for (double power = first; power <= std::max(last, first + 1); ++power) ticks.push_back(std::pow(10, power));
    } else {
      const double from = begins_at_zero_ ? std::min(0.0, low_) : low_;
      const double span = high_ > from ? high_ - from : 1;
      const double power = std::pow(10, std::floor(std::log10(span / kTicks)));
      const double rest = span / kTicks / power;
      const double step = power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
      for (double i = std::floor(from / step); i * step < from + span + step * 0.999; ++i) ticks.push_back(i * step);
    }
    low_ = ticks.front();
    high_ = ticks.back();
    return ticks;
  }
  double Place(double value) const {
    if (is_log_) return std::log(value / low_) / std::log(high_ / low_);
    return (value - low_) / (high_ - low_);
  }

 private:
  const bool is_log_, begins_at_zero_;
  bool is_empty_ = true;
  double low_ = 0, high_ = 0;
};

std::string Text(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view colour) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                     colour);
}

std::string RenderSeries(const ChartSeries& series, const Axis& x_axis, const Axis& y_axis, std::string_view colour) {
  std::string line, dots;
  for (const auto& [x, y] : series.points) {
    if (!x_axis.Takes(x) || !y_axis.Takes(y)) continue;
    const double left = kLeft + x_axis.Place(x) * (kWidth - kLeft - kRight);
    const double top = kHeight - kBottom - y_axis.Place(y) * (kHeight - kTop - kBottom);
    line += fmt::format("{:.1f},{:.1f} ", left, top);
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", left, top, colour);
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n{}", line, colour,
                     dots);
}

std::string RenderChart(const Chart& chart) {
  Axis x_axis(chart.log_x, false), y_axis(chart.log_y, true);
  for (const ChartSeries& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      if (!x_axis.Takes(x) || !y_axis.Takes(y)) continue;
      x_axis.Include(x);
      y_axis.Include(y);
    }
  }
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  std::string svg = Text((kLeft + right) / 2, kTop - 16, "middle", chart.title);
  for (const double tick : x_axis.Ticks()) {
    const double x = kLeft + x_axis.Place(tick) * (right - kLeft);
    svg += Line(x, kTop, x, bottom, "#dddddd") + Text(x, bottom + 18, "middle", fmt::format("{:g}", tick));
  }
  for (const double tick : y_axis.Ticks()) {
    const double y = bottom - y_axis.Place(tick) * (bottom - kTop);
    svg += Line(kLeft, y, right, y, "#dddddd") + Text(kLeft - 8, y + 4, "end", fmt::format("{:g}", tick));
  }
  svg += Text((kLeft + right) / 2, kHeight - 12, "middle", chart.x_label);
  svg += fmt::format("<text transform=\"translate(18,{:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (kTop + bottom) / 2, Escaped(chart.y_label));
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::string_view colour = kColours[i % std::size(kColours)];
    const double y = kTop + 18 * static_cast<double>(i) + 8;
    svg += RenderSeries(chart.series[i], x_axis, y_axis, colour);
    svg += Line(right + 12, y, right + 32, y, colour) + Text(right + 38, y + 4, "start", chart.series[i].name);
  }
  return svg;
}

}  // namespace

std::string RenderSvg(std::span<const Chart> charts) {
  const double height = kHeight * static_cast<double>(charts.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, height);
  for (std::size_t i = 0; i < charts.size(); ++i) {
    svg += fmt::format("<g transform=\"translate(0,{:.0f})\">\n{}</g>\n", kHeight * static_cast<double>(i),
                       RenderChart(charts[i]));
  }
  return svg + "</svg>\n";
}

}  // namespace quire::bench
