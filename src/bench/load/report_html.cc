#include <fmt/format.h>

#include <cmath>

#include "bench/load/report.h"
#include "bench/load/svg_chart.h"

namespace quire::bench::load {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#f4f4f2;margin:0}"
    "main{max-width:1120px;margin:0 auto;padding:24px}"
    "h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:28px 0 10px}p{margin:0 0 16px;color:#555}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}"
    ".tile,figure,table{background:#fff;border:1px solid #ddd;border-radius:6px}"
    ".tile{padding:10px 14px}.tile b{display:block;font-size:22px;font-weight:600}.tile span{color:#666;font-size:13px}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:12px}"
    "figure{margin:0;padding:6px}svg{display:block;width:100%;height:auto}"
    "table{border-collapse:collapse;width:100%}td,th{padding:5px 12px;text-align:right;border-top:1px solid #eee}"
    "tr:first-child td,tr:first-child th{border-top:0}th{color:#555;font-weight:600}"
    "td:first-child,th:first-child{text-align:left}.plain td{text-align:left}.bad{color:#b00020}";

std::string Tile(const std::string& value, std::string_view words) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", EscapeMarkup(value), words);
}

std::string Tiles(const LoadReport& report) {
  const Metrics& m = report.metrics;
  std::string html = "<div class=\"tiles\">\n";
  html += Tile(fmt::format("{:.1f}", m.output_throughput()), "output tokens a second");
  html += Tile(fmt::format("{:.2f}", m.request_throughput()), "requests a second");
  if (report.config.goodput.is_set()) {
    html += Tile(fmt::format("{:.2f}", m.request_goodput()), "good requests a second");
  }
  html += Tile(fmt::format("{} / {}", m.num_completed, m.num_completed + m.num_failed), "requests completed");
  html += Tile(fmt::format("{} + {}", m.num_input_tokens, m.num_output_tokens), "tokens in + out");
  if (m.num_cached_tokens > 0) {
    html += Tile(fmt::format("{:.0f} %", 100.0 * static_cast<double>(m.num_cached_tokens) /
                                             static_cast<double>(std::max<std::int64_t>(m.num_input_tokens, 1))),
                 "of the prompts from the prefix cache");
  }
  html += Tile(fmt::format("{:.2f} s", m.duration_seconds), "duration");
  html += Tile(fmt::format("{:.1f} %", 100 * report.cpu_share()), "of a core for the generator");
  return html + "</div>\n";
}

std::string Table(const Metrics& metrics) {
  std::string html =
      "<table><tr><th>milliseconds</th><th>mean</th><th>std</th><th>p50</th><th>p90</th><th>p95</th><th>p99</th>"
      "<th>max</th></tr>\n";
  for (const NamedDistribution& named : kDistributions) {
    const Distribution& d = metrics.*named.values;
    html += fmt::format("<tr><td>{} ({})</td>", named.words, named.name);
    for (const double value : {d.mean, d.std, d.p50, d.p90, d.p95, d.p99, d.max}) {
      html += fmt::format("<td>{:.2f}</td>", value);
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

// The single values behind a distribution, in milliseconds.
struct Values {
  std::vector<double> ttft, tpot, itl, e2el;
};

Values Collect(const LoadReport& report) {
  Values values;
  for (const Outcome& outcome : report.run.outcomes) {
    if (!outcome.is_ok()) continue;
    values.ttft.push_back(outcome.ttft_seconds * 1e3);
    values.e2el.push_back(outcome.latency_seconds * 1e3);
    if (outcome.num_output_tokens > 1) values.tpot.push_back(outcome.tpot_seconds() * 1e3);
    for (const double gap : outcome.itl_seconds) values.itl.push_back(gap * 1e3);
  }
  return values;
}

// A value of every request that succeeded; at most some thousand dots, evenly chosen.
template <typename X, typename Y>
ChartSeries Dots(const LoadReport& report, X x_of, Y y_of) {
  constexpr std::size_t kDotsMax = 3000;
  ChartSeries series{.is_dots = true};
  const std::size_t step = report.run.outcomes.size() / kDotsMax + 1;
  for (std::size_t i = 0; i < report.run.outcomes.size(); i += step) {
    const Outcome& outcome = report.run.outcomes[i];
    if (outcome.is_ok()) series.points.push_back({x_of(outcome), y_of(outcome)});
  }
  return series;
}

std::vector<Chart> CourseCharts(const LoadReport& report) {
  ChartSeries tokens, running;
  for (std::size_t s = 0; s < report.metrics.seconds.size(); ++s) {
    for (const auto at : {static_cast<double>(s), static_cast<double>(s + 1)}) {  // a step as wide as its second
      tokens.points.push_back({at, static_cast<double>(report.metrics.seconds[s].num_tokens)});
      running.points.push_back({at, static_cast<double>(report.metrics.seconds[s].num_requests)});
    }
  }
  const auto start = [](const Outcome& outcome) { return outcome.start_seconds; };
  const auto input = [](const Outcome& outcome) { return static_cast<double>(outcome.num_prompt_tokens); };
  const auto ttft = [](const Outcome& outcome) { return outcome.ttft_seconds * 1e3; };
  return {{.title = "Chunks in each second", .x_label = "seconds", .y_label = "chunks", .series = {tokens}},
          {.title = "Requests in each second", .x_label = "seconds", .y_label = "requests", .series = {running}},
          {.title = "TTFT in the course of the run",
           .x_label = "sent at (seconds)",
           .y_label = "milliseconds",
           .series = {Dots(report, start, ttft)}},
          {.title = "TTFT and the length of the prompt",
           .x_label = "prompt tokens",
           .y_label = "milliseconds",
           .series = {Dots(report, input, ttft)}}};
}

std::vector<Chart> ShareCharts(const LoadReport& report) {
  Values values = Collect(report);
  const auto chart = [](const char* title, std::vector<double> of) {
    return Chart{.title = title,
                 .x_label = "milliseconds",
                 .y_label = "share that is at most this",
                 .series = {CumulativeShare("", std::move(of))},
                 .y_max = 1};
  };
  return {chart("Time to first token", std::move(values.ttft)), chart("Time per output token", std::move(values.tpot)),
          chart("Inter-token latency", std::move(values.itl)), chart("End-to-end latency", std::move(values.e2el))};
}

std::string Figures(const std::vector<Chart>& charts) {
  std::string html = "<div class=\"charts\">\n";
  for (const Chart& chart : charts) html += "<figure>" + ChartSvg(chart) + "</figure>\n";
  return html + "</div>\n";
}

std::string Errors(const Metrics& metrics) {
  if (metrics.errors.empty()) return {};
  std::string html = "<h2 class=\"bad\">Failed requests</h2>\n<table class=\"plain\">";
  for (const auto& [error, count] : metrics.errors) {
    html += fmt::format("<tr><td>{} ×</td><td>{}</td></tr>\n", count, EscapeMarkup(error));
  }
  return html + "</table>\n";
}

}  // namespace

std::string ReportHtml(const LoadReport& report) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">"
      "<title>quire bench serve</title>\n<style>";
  html += kStyle;
  html += "</style></head><body><main>\n";
  html += fmt::format("<h1>{}</h1>\n<p>{} from {}</p>\n", EscapeMarkup(DescribeLoad(report)),
                      EscapeMarkup(report.server.style.model), EscapeMarkup(report.config.client.base_url));
  html += Tiles(report);
  html += "<h2>Latencies</h2>\n" + Table(report.metrics) + Errors(report.metrics);
  html += "<h2>How they are distributed</h2>\n" + Figures(ShareCharts(report));
  html += "<h2>In the course of the run</h2>\n" + Figures(CourseCharts(report));
  return html + "</main></body></html>\n";
}

}  // namespace quire::bench::load
