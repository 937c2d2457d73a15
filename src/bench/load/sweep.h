// The throughput–latency curve: what a server does under several loads, and several servers in one picture.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/load/serve_load.h"

namespace quire::bench::load {

// One run of one server.
struct SweepPoint {
  std::string series;       // whose
  double request_rate = 0;  // as asked for; 0: as many at a time as max_concurrency
  double max_concurrency = 0;
  double completed = 0, failed = 0;
  double request_throughput = 0, request_goodput = 0, output_throughput = 0;
  double ttft_ms_p50 = 0, ttft_ms_p99 = 0, tpot_ms_p50 = 0, tpot_ms_p99 = 0, itl_ms_p99 = 0, e2el_ms_p50 = 0,
         e2el_ms_p99 = 0;
};

SweepPoint MakePoint(std::string series, const LoadReport& report);

std::string SweepText(std::span<const SweepPoint> points);
std::string SweepCsv(std::span<const SweepPoint> points);
// An array of objects, and what it was made of.
std::string SweepJson(std::span<const SweepPoint> points);
Result<std::vector<SweepPoint>> ParseSweep(std::string_view json_text);

// What gnuplot is told to draw `path`, an .svg or a .png: latencies against output tokens a second, a line for each
// series in the order of its loads.
Result<std::string> SweepPlotScript(std::span<const SweepPoint> points, const std::string& path);

}  // namespace quire::bench::load
