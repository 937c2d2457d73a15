// Curves as SVG: what `--plot` writes. Nothing but text; a browser and an editor can open it.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace quire::bench {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // by x
};

struct Chart {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;  // then only points above 0 are drawn
  std::vector<ChartSeries> series;
};

// The charts below each other, with one legend each.
std::string RenderSvg(std::span<const Chart> charts);

}  // namespace quire::bench
