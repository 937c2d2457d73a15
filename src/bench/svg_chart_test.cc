#include "bench/svg_chart.h"

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

int Count(std::string_view text, std::string_view what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(SvgChart, HasALineForEachSeriesAndADotForEachPoint) {
  const Chart chart{
      .title = "a < b & c", .x_label = "x", .y_label = "y", .series = {{"one", {{1, 2}, {2, 4}}}, {"two", {{1, 1}}}}};
  const Chart charts[] = {chart, chart};
  const std::string svg = RenderSvg(charts);
  EXPECT_EQ(Count(svg, "<polyline"), 4);
  EXPECT_EQ(Count(svg, "<circle"), 6);
  EXPECT_EQ(Count(svg, "a &lt; b &amp; c"), 2);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

// x from 1 to 2 in five parts of 0.2, y from 0 to 4: the second point is in the corner.
TEST(SvgChart, PointsStandWhereTheAxesSay) {
  const Chart chart{.series = {{"one", {{1, 0}, {2, 4}}}}};
  const std::string svg = RenderSvg({&chart, 1});
  EXPECT_NE(svg.find("points=\"80.0,310.0 530.0,40.0 \""), std::string::npos) << svg;
}

TEST(SvgChart, ALogarithmicAxisLeavesOutWhatItCannotShow) {
  const Chart chart{.log_x = true, .log_y = true, .series = {{"one", {{0, 5}, {1, 1}, {10, 100}, {100, 0}}}}};
  const std::string svg = RenderSvg({&chart, 1});
  EXPECT_EQ(Count(svg, "<circle"), 2);
  EXPECT_NE(svg.find("points=\"80.0,310.0 530.0,40.0 \""), std::string::npos) << svg;
}

TEST(SvgChart, NothingToDrawIsNoFault) {
  const Chart charts[] = {{}, {.log_x = true, .log_y = true, .series = {{"none", {}}}}};
  const std::string svg = RenderSvg(charts);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace quire::bench
