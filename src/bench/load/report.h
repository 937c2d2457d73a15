// The report of a run: for people, as JSON with vLLM's names, as a table of requests, as a page.
#pragma once

#include <string>

#include "bench/load/serve_load.h"

namespace quire::bench::load {

std::string ReportText(const LoadReport& report);
// One object; times of single requests in seconds, summaries in milliseconds, as vLLM writes them.
std::string ReportJson(const LoadReport& report);
// A header and a line for each request.
std::string ReportCsv(const LoadReport& report);
// One HTML file that needs nothing else.
std::string ReportHtml(const LoadReport& report);

// "40 requests (random), 8 at a time", "… 4 a second (Poisson)"
std::string DescribeLoad(const LoadReport& report);

// The figures that the reports list, in their order.
struct NamedDistribution {
  const char* key;    // "ttft"
  const char* name;   // "TTFT"
  const char* words;  // "time to first token"
  Distribution Metrics::* values;
};
inline constexpr NamedDistribution kDistributions[] = {
    {"ttft", "TTFT", "time to first token", &Metrics::ttft_ms},
    {"tpot", "TPOT", "time per output token", &Metrics::tpot_ms},
    {"itl", "ITL", "inter-token latency", &Metrics::itl_ms},
    {"e2el", "E2EL", "end-to-end latency", &Metrics::e2el_ms},
};

}  // namespace quire::bench::load
