#include "bench/load/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire::bench::load {
namespace {

constexpr double kWidth = 520, kHeight = 280;  // of the picture without a legend beside it
constexpr double kLegendWidth = 170;
constexpr double kLeft = 62, kRight = 16, kTop = 34, kBottom = 46;  // margins around the plot
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
// Told apart with any kind of colour vision (Okabe and Ito).
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};

struct Scale {
  double x_max, y_min, y_max;
  bool log_y;
  bool Takes(const ChartPoint& point) const { return !log_y || point.y > 0; }
  double X(double x) const { return kLeft + kPlotWidth * std::clamp(x / x_max, 0.0, 1.0); }
  double Y(double y) const {
    const double share = log_y ? std::log(y / y_min) / std::log(y_max / y_min) : y / y_max;
    return kTop + kPlotHeight * (1 - std::clamp(share, 0.0, 1.0));
  }
};

std::string Label(double x, double y, const char* anchor, std::string_view text, std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     EscapeMarkup(text));
}

std::string Axes(const Chart& chart, const Scale& scale, const std::vector<double>& x_ticks,
                 const std::vector<double>& y_ticks) {
  std::string svg;
  const auto line = [&](double x1, double y1, double x2, double y2, const char* color) {
    svg += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
                       y2, color);
  };
  const double bottom = kTop + kPlotHeight;
  for (const double tick : x_ticks) {
    line(scale.X(tick), kTop, scale.X(tick), bottom, "#e4e4e4");
    svg += Label(scale.X(tick), bottom + 16, "middle", fmt::format("{:g}", tick));
  }
  for (const double tick : y_ticks) {
    line(kLeft, scale.Y(tick), kLeft + kPlotWidth, scale.Y(tick), "#e4e4e4");
    svg += Label(kLeft - 6, scale.Y(tick) + 4, "end", fmt::format("{:g}", tick));
  }
  line(kLeft, bottom, kLeft + kPlotWidth, bottom, "#555");
  line(kLeft, kTop, kLeft, bottom, "#555");
  svg += Label(kLeft + kPlotWidth / 2, kHeight - 10, "middle", chart.x_label);
  svg += Label(0, 0, "middle", chart.y_label,
               fmt::format(" transform=\"translate(14 {:.1f}) rotate(-90)\"", kTop + kPlotHeight / 2));
  svg += Label(kLeft, 20, "start", chart.title, " font-weight=\"bold\" font-size=\"14\"");
  return svg;
}

std::string DrawDots(const ChartSeries& series, const Scale& scale, const char* color, double opacity) {
  std::string svg = fmt::format("<g fill=\"{}\" fill-opacity=\"{}\">\n", color, opacity);
  for (const ChartPoint& point : series.points) {
    if (!scale.Takes(point)) continue;
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>\n", scale.X(point.x), scale.Y(point.y));
  }
  return svg + "</g>\n";
}

std::string Draw(const ChartSeries& series, const Scale& scale, const char* color) {
  if (series.is_dots) return DrawDots(series, scale, color, 0.55);
  std::string svg = fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" points=\"", color);
  for (const ChartPoint& point : series.points) {
    if (scale.Takes(point)) svg += fmt::format("{:.1f},{:.1f} ", scale.X(point.x), scale.Y(point.y));
  }
  svg += "\"/>\n";
  return series.marks_points ? svg + DrawDots(series, scale, color, 1) : svg;
}

double WidthOf(const Chart& chart) {
  return kWidth + (chart.legend_beside ? kLegendWidth : 0);
}

// What stands in the picture.
std::string DrawChart(const Chart& chart) {
  double x_max = 0, y_max = chart.y_max, y_min = 0;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      x_max = std::max(x_max, point.x);
      if (chart.y_max == 0) y_max = std::max(y_max, point.y);
      if (point.y > 0) y_min = y_min > 0 ? std::min(y_min, point.y) : point.y;
    }
  }
  const std::vector<double> x_ticks = Ticks(x_max, 6), y_ticks = chart.log_y ? LogTicks(y_min, y_max) : Ticks(y_max, 5);
  const Scale scale{.x_max = x_ticks.back(), .y_min = y_ticks.front(), .y_max = y_ticks.back(), .log_y = chart.log_y};
  std::string svg = Axes(chart, scale, x_ticks, y_ticks);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const char* const color = kColors[i % std::size(kColors)];
    svg += Draw(chart.series[i], scale, color);
    if (chart.series.size() < 2) continue;
    const double y = kTop + 14 + 16 * static_cast<double>(i), right = kLeft + kPlotWidth;
    svg += Label(chart.legend_beside ? right + 12 : right - 8, y, chart.legend_beside ? "start" : "end",
                 chart.series[i].name, fmt::format(" fill=\"{}\" font-weight=\"bold\"", color));
  }
  return svg;
}

// All that is drawn stands between this and "</svg>".
std::string BeginSvg(double width, double height, std::string_view attributes) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\" "
      "fill=\"#222\" {}>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height, attributes);
}

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> Ticks(double max, int count) {
  if (!(max > 0) || !std::isfinite(max)) return {0, 1};
  const double rough = max / count, power = std::pow(10, std::floor(std::log10(rough)));
  const double ratio = rough / power;
  const double step = power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
  std::vector<double> ticks;
  const int last = static_cast<int>(std::ceil(max / step - 1e-9));
  for (int i = 0; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<double> LogTicks(double min, double max) {
  if (!(min > 0) || !std::isfinite(max)) return {1, 10};
  const double first = std::floor(std::log10(min) + 1e-9);
  const double last = std::max(std::ceil(std::log10(max) - 1e-9), first + 1);
  std::vector<double> ticks;
  for (double power = first; power <= last; ++power) ticks.push_back(std::pow(10, power));
  return ticks;
}

ChartSeries CumulativeShare(std::string name, std::vector<double> values, std::size_t points_max) {
  ChartSeries series{.name = std::move(name)};
  if (values.empty()) return series;
  std::ranges::sort(values);
  const std::size_t count = std::min(values.size(), points_max);
  series.points.push_back({values.front(), 0});
  for (std::size_t i = 1; i <= count; ++i) {
    const std::size_t rank = i * values.size() / count;
    series.points.push_back({values[rank - 1], static_cast<double>(rank) / static_cast<double>(values.size())});
  }
  return series;
}

std::string ChartSvg(const Chart& chart) {
  const std::string label = fmt::format("role=\"img\" aria-label=\"{}\"", EscapeMarkup(chart.title));
  return BeginSvg(WidthOf(chart), kHeight, label) + DrawChart(chart) + "</svg>\n";
}

std::string ChartsSvg(std::span<const Chart> charts) {
  double width = kWidth;
  for (const Chart& chart : charts) width = std::max(width, WidthOf(chart));
  const double height = kHeight * static_cast<double>(charts.size());
  std::string svg = BeginSvg(width, height, fmt::format("width=\"{}\" height=\"{}\"", width, height));
  for (std::size_t i = 0; i < charts.size(); ++i) {
    svg += fmt::format("<g transform=\"translate(0,{})\">\n{}</g>\n", kHeight * static_cast<double>(i),
                       DrawChart(charts[i]));
  }
  return svg + "</svg>\n";
}

}  // namespace quire::bench::load
