// A chart as SVG text: lines or dots over linear axes that begin at zero.
#pragma once

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
  bool is_dots = false;  // else a line
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;
  double y_max = 0;  // 0: the largest value
};

std::string ChartSvg(const Chart& chart);

// Round numbers from 0 up to at least `max`, about `count` of them.
std::vector<double> Ticks(double max, int count);

// Text between the tags of HTML or SVG.
std::string EscapeMarkup(std::string_view text);

// The share of values that are at most x, as a curve of at most so many points.
ChartSeries CumulativeShare(std::string name, std::vector<double> values, std::size_t points_max = 400);

}  // namespace quire::bench::load
