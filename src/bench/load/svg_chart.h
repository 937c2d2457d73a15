// A chart as SVG text: lines or dots over axes that begin at zero, or over a logarithmic one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::bench::load {

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartSeries {
  std::string name;  // in the legend, when there are several
  std::vector<ChartPoint> points;
  bool is_dots = false;       // else a line
  bool marks_points = false;  // of a line
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;
  double y_max = 0;            // 0: the largest value
  bool log_y = false;          // points at 0 and below are not drawn
  bool legend_beside = false;  // on the right of the plot; else in its upper right corner
};

// For a page, as wide as that lets it be.
std::string ChartSvg(const Chart& chart);
// A file of its own: the charts one below the other.
std::string ChartsSvg(std::span<const Chart> charts);

// Round numbers from 0 up to at least `max`, about `count` of them.
std::vector<double> Ticks(double max, int count);
// Powers of ten around [min, max], at least two.
std::vector<double> LogTicks(double min, double max);

// Text between the tags of HTML or SVG.
std::string EscapeMarkup(std::string_view text);

// The share of values that are at most x, as a curve of at most so many points.
ChartSeries CumulativeShare(std::string name, std::vector<double> values, std::size_t points_max = 400);

}  // namespace quire::bench::load
