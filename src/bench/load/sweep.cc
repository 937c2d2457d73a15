#include "bench/load/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace quire::bench::load {
namespace {

struct Column {
  std::string_view key;
  double SweepPoint::* value;
};
constexpr Column kColumns[] = {
    {"request_rate", &SweepPoint::request_rate},
    {"max_concurrency", &SweepPoint::max_concurrency},
    {"completed", &SweepPoint::completed},
    {"failed", &SweepPoint::failed},
    {"request_throughput", &SweepPoint::request_throughput},
    {"request_goodput", &SweepPoint::request_goodput},
    {"output_throughput", &SweepPoint::output_throughput},
    {"p50_ttft_ms", &SweepPoint::ttft_ms_p50},
    {"p99_ttft_ms", &SweepPoint::ttft_ms_p99},
    {"p50_tpot_ms", &SweepPoint::tpot_ms_p50},
    {"p99_tpot_ms", &SweepPoint::tpot_ms_p99},
    {"p99_itl_ms", &SweepPoint::itl_ms_p99},
    {"p50_e2el_ms", &SweepPoint::e2el_ms_p50},
    {"p99_e2el_ms", &SweepPoint::e2el_ms_p99},
};

std::vector<std::string> SeriesOf(std::span<const SweepPoint> points) {
  std::vector<std::string> names;
  for (const SweepPoint& point : points) {
    if (std::ranges::find(names, point.series) == names.end()) names.push_back(point.series);
  }
  return names;
}

// "4/s", "8 at a time"
std::string LoadOf(const SweepPoint& point) {
  return point.request_rate > 0 ? fmt::format("{:g}/s", point.request_rate)
                                : fmt::format("{:g} at a time", point.max_concurrency);
}

// In gnuplot's single quotes, on one line.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c == '\n' || c == '\r' ? ' ' : c);
  return out + "'";
}

struct Panel {
  const char* title;
  double SweepPoint::* value;
  double SweepPoint::* middle;  // dashed
};
constexpr Panel kPanels[] = {
    {"Time to first token: p99, and dashed the median", &SweepPoint::ttft_ms_p99, &SweepPoint::ttft_ms_p50},
    {"Time per output token: p99, and dashed the median", &SweepPoint::tpot_ms_p99, &SweepPoint::tpot_ms_p50},
};

// The data of the series: output tokens a second, then both values of each panel, and the load as a label.
std::string DataBlocks(std::span<const SweepPoint> points, const std::vector<std::string>& names) {
  std::string script;
  for (std::size_t i = 0; i < names.size(); ++i) {
    script += fmt::format("$series{} << END\n", i);
    for (const SweepPoint& point : points) {
      if (point.series != names[i] || point.completed == 0) continue;
      script += fmt::format("{}", point.output_throughput);
      for (const Panel& panel : kPanels) script += fmt::format(" {} {}", point.*panel.value, point.*panel.middle);
      script += "\n";
    }
    script += "END\n";
  }
  return script;
}

}  // namespace

SweepPoint MakePoint(std::string series, const LoadReport& report) {
  const Metrics& m = report.metrics;
  const TrafficConfig& traffic = report.config.traffic;
  return {.series = std::move(series),
          .request_rate = std::isinf(traffic.request_rate) ? 0 : traffic.request_rate,
          .max_concurrency = static_cast<double>(traffic.max_concurrency),
          .completed = static_cast<double>(m.num_completed),
          .failed = static_cast<double>(m.num_failed),
          .request_throughput = m.request_throughput(),
          .request_goodput = m.request_goodput(),
          .output_throughput = m.output_throughput(),
          .ttft_ms_p50 = m.ttft_ms.p50,
          .ttft_ms_p99 = m.ttft_ms.p99,
          .tpot_ms_p50 = m.tpot_ms.p50,
          .tpot_ms_p99 = m.tpot_ms.p99,
          .itl_ms_p99 = m.itl_ms.p99,
          .e2el_ms_p50 = m.e2el_ms.p50,
          .e2el_ms_p99 = m.e2el_ms.p99};
}

std::string SweepText(std::span<const SweepPoint> points) {
  std::string text =
      fmt::format("{:<24}{:>14}{:>12}{:>12}{:>10}{:>12}{:>12}{:>12}{:>12}{:>8}\n", "server", "load", "requests/s",
                  "out tok/s", "good/s", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "failed");
  for (const SweepPoint& p : points) {
    text += fmt::format("{:<24}{:>14}{:>12.2f}{:>12.1f}{:>10.2f}{:>12.1f}{:>12.1f}{:>12.2f}{:>12.2f}{:>8}\n", p.series,
                        LoadOf(p), p.request_throughput, p.output_throughput, p.request_goodput, p.ttft_ms_p50,
                        p.ttft_ms_p99, p.tpot_ms_p50, p.tpot_ms_p99, p.failed);
  }
  return text;
}

std::string SweepCsv(std::span<const SweepPoint> points) {
  std::string text = "series";
  for (const Column& column : kColumns) text += fmt::format(",{}", column.key);
  text += "\n";
  for (const SweepPoint& point : points) {
    std::string name = point.series;
    std::ranges::replace(name, '"', '\'');
    text += fmt::format("\"{}\"", name);
    for (const Column& column : kColumns) text += fmt::format(",{:.6g}", point.*column.value);
    text += "\n";
  }
  return text;
}

std::string SweepJson(std::span<const SweepPoint> points) {
  std::string text;
  JsonWriter writer(&text);
  writer.BeginArray();
  for (const SweepPoint& point : points) {
    writer.BeginObject().Key("series").String(point.series);
    for (const Column& column : kColumns) writer.Key(column.key).Double(point.*column.value);
    writer.EndObject();
  }
  writer.EndArray();
  return text;
}

Result<std::vector<SweepPoint>> ParseSweep(std::string_view json_text) {
  QUIRE_TRY(const json::value value, ParseJson(json_text, "sweep"));
  if (!value.is_array()) return Fail(ErrorCode::kCorrupt, "it is no JSON array of points");
  std::vector<SweepPoint> points;
  for (const json::value& item : value.get_array()) {
    if (!item.is_object()) return Fail(ErrorCode::kCorrupt, "point {} is no JSON object", points.size());
    const json::object& object = item.get_object();
    SweepPoint point;
    const json::value* series = object.if_contains("series");
    if (series == nullptr || !series->is_string()) {
      return Fail(ErrorCode::kCorrupt, "point {} has no text \"series\"", points.size());
    }
    point.series.assign(series->get_string().data(), series->get_string().size());
    for (const Column& column : kColumns) {
      const json::value* number = object.if_contains(column.key);
      if (number == nullptr || !number->is_number()) {
        return Fail(ErrorCode::kCorrupt, "point {} has no number \"{}\"", points.size(), column.key);
      }
      point.*column.value = number->to_number<double>();
    }
    points.push_back(std::move(point));
  }
  return points;
}

Result<std::string> SweepPlotScript(std::span<const SweepPoint> points, const std::string& path) {
  if (std::ranges::none_of(points, [](const SweepPoint& point) { return point.completed > 0; })) {
    return Fail(ErrorCode::kInvalidArgument, "there is nothing to draw: no request was answered");
  }
  std::string terminal;
  if (path.ends_with(".svg")) terminal = "svg size 1100,460 font 'sans-serif,12' background '#ffffff'";
  if (path.ends_with(".png")) terminal = "pngcairo size 1100,460 font 'sans-serif,10' background '#ffffff'";
  if (terminal.empty()) return FailParam("plot", "{} is no .svg or .png", path);
  const std::vector<std::string> names = SeriesOf(points);
  std::string script = fmt::format("set terminal {} noenhanced\nset output {}\n", terminal, Quoted(path));
  script += DataBlocks(points, names);
  script += "set multiplot layout 1,2\nset grid\nset key top left\nset logscale y\n";
  script += "set xlabel 'output tokens a second'\nset ylabel 'milliseconds'\nset xrange [0:*]\n";
  for (std::size_t p = 0; p < std::size(kPanels); ++p) {
    script += fmt::format("set title {}\nplot ", Quoted(kPanels[p].title));
    for (std::size_t i = 0; i < names.size(); ++i) {
      script += fmt::format(
          "{}$series{} using 1:{} with linespoints linewidth 2 pointtype 7 linecolor {} title {}, "
          "$series{} using 1:{} with lines dashtype 2 linecolor {} notitle",
          i == 0 ? "" : ", ", i, 2 + 2 * p, i + 1, Quoted(names[i]), i, 3 + 2 * p, i + 1);
    }
    script += "\n";
  }
  return script + "unset multiplot\n";
}

}  // namespace quire::bench::load
