#include "bench/load/report.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"

namespace quire::bench::load {
namespace {

std::string DistributionRow(const NamedDistribution& named, const Metrics& metrics) {
  const Distribution& d = metrics.*named.values;
  return fmt::format("{:<30}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n",
                     fmt::format("{} ({})", named.words, named.name), d.mean, d.p50, d.p90, d.p95, d.p99, d.max);
}

std::string GoodputText(const GoodputConfig& goodput) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<double>& limit) {
    if (limit) text += fmt::format("{}{} ≤ {} ms", text.empty() ? "" : ", ", name, *limit);
  };
  add("TTFT", goodput.ttft_ms);
  add("TPOT", goodput.tpot_ms);
  add("E2EL", goodput.e2el_ms);
  return text;
}

void WriteRate(JsonWriter* writer, std::string_view key, double value) {
  writer->Key(key);
  std::isinf(value) ? writer->String("inf") : writer->Double(value);
}

void WriteConfig(const LoadReport& report, JsonWriter* writer) {
  const LoadConfig& config = report.config;
  writer->Key("base_url").String(config.client.base_url).Key("model_id").String(report.server.style.model);
  writer->Key("endpoint").String(RouteOf(report.server.style));
  writer->Key("dataset_name").String(DatasetName(config.dataset.kind));
  writer->Key("dataset_path").String(config.dataset.path.native());
  writer->Key("seed").Int(config.dataset.seed);
  writer->Key("num_prompts").Int(static_cast<std::int64_t>(report.requests.size()));
  writer->Key("num_left_out").Int(report.num_left_out);
  if (report.is_replay) {
    writer->Key("request_rate").String("trace").Key("trace_speed").Double(config.dataset.trace_speed);
  } else {
    WriteRate(writer, "request_rate", config.traffic.request_rate);
    WriteRate(writer, "burstiness", config.traffic.burstiness);
  }
  writer->Key("max_concurrency");
  config.traffic.max_concurrency > 0 ? writer->Int(config.traffic.max_concurrency) : writer->Null();
  writer->Key("ignore_eos").Bool(config.client.ignore_eos);
}

void WriteDistributions(const Metrics& metrics, JsonWriter* writer) {
  for (const NamedDistribution& named : kDistributions) {
    const Distribution& d = metrics.*named.values;
    const auto add = [&](std::string_view statistic, double value) {
      writer->Key(fmt::format("{}_{}_ms", statistic, named.key)).Double(value);
    };
    add("mean", d.mean);
    add("median", d.p50);
    add("std", d.std);
    add("p50", d.p50);
    add("p90", d.p90);
    add("p95", d.p95);
    add("p99", d.p99);
    add("max", d.max);
  }
}

template <typename Write>
void WriteOutcomes(const LoadReport& report, std::string_view key, JsonWriter* writer, Write write) {
  writer->Key(key).BeginArray();
  for (const Outcome& outcome : report.run.outcomes) write(outcome);
  writer->EndArray();
}

std::string CsvQuoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string DescribeLoad(const LoadReport& report) {
  const TrafficConfig& traffic = report.config.traffic;
  std::string text = fmt::format("{} requests ({})", report.requests.size(), DatasetName(report.config.dataset.kind));
  if (report.is_replay) {
    text += ", as they came";
    if (report.config.dataset.trace_speed != 1)
      text += fmt::format(", {} × as fast", report.config.dataset.trace_speed);
  } else if (std::isinf(traffic.request_rate)) {
    text += traffic.max_concurrency > 0 ? "" : ", all at once";
  } else {
    text += fmt::format(", {} a second ({})", traffic.request_rate,
                        traffic.burstiness == 1          ? "Poisson"
                        : std::isinf(traffic.burstiness) ? "even"
                                                         : fmt::format("gamma, burstiness {}", traffic.burstiness));
  }
  if (traffic.max_concurrency > 0) text += fmt::format(", {} at a time", traffic.max_concurrency);
  return text;
}

std::string ReportText(const LoadReport& report) {
  const Metrics& m = report.metrics;
  std::string text = fmt::format("{} to {} in {:.2f} s: {} completed, {} failed\n", DescribeLoad(report),
                                 report.server.style.model, m.duration_seconds, m.num_completed, m.num_failed);
  if (report.num_left_out > 0) text += fmt::format("  left out of the dataset: {}\n", report.num_left_out);
  text += fmt::format("  requests/s {:.2f}   output tokens/s {:.1f}   total tokens/s {:.1f}\n", m.request_throughput(),
                      m.output_throughput(), m.total_token_throughput());
  text += fmt::format("  tokens in {}   out {}   peak second: {} out, {} requests\n", m.num_input_tokens,
                      m.num_output_tokens, m.max_output_tokens_per_second(), m.max_concurrent_requests());
  if (m.num_cached_tokens > 0) {
    text += fmt::format("  prefix cache: {} of {} prompt tokens ({:.0f} %)\n", m.num_cached_tokens, m.num_input_tokens,
                        100.0 * static_cast<double>(m.num_cached_tokens) / static_cast<double>(m.num_input_tokens));
  }
  if (m.num_uncounted > 0) {
    text +=
        fmt::format("  the server did not count the tokens of {} answers: chunks stand for them\n", m.num_uncounted);
  }
  if (report.config.goodput.is_set()) {
    text += fmt::format("  goodput {:.2f} requests/s ({} of {} with {})\n", m.request_goodput(), m.num_good,
                        m.num_completed + m.num_failed, GoodputText(report.config.goodput));
  }
  text += fmt::format("\n{:<30}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "mean", "p50", "p90", "p95",
                      "p99", "max");
  for (const NamedDistribution& named : kDistributions) text += DistributionRow(named, m);
  text += fmt::format("\nthe generator took {:.1f} % of a core and sent at most {:.2f} ms late (p99 {:.2f} ms)\n",
                      100 * report.cpu_share(), m.late_ms_max, m.late_ms_p99);
  for (const auto& [error, count] : m.errors) text += fmt::format("{} × {}\n", count, error);
  return text;
}

std::string ReportJson(const LoadReport& report) {
  const Metrics& m = report.metrics;
  std::string text;
  JsonWriter w(&text);
  w.BeginObject();
  WriteConfig(report, &w);
  w.Key("duration").Double(m.duration_seconds).Key("completed").Int(m.num_completed).Key("failed").Int(m.num_failed);
  w.Key("total_input_tokens").Int(m.num_input_tokens).Key("total_output_tokens").Int(m.num_output_tokens);
  w.Key("total_cached_tokens").Int(m.num_cached_tokens).Key("uncounted_answers").Int(m.num_uncounted);
  w.Key("request_throughput").Double(m.request_throughput());
  w.Key("request_goodput");
  report.config.goodput.is_set() ? w.Double(m.request_goodput()) : w.Null();
  w.Key("output_throughput").Double(m.output_throughput());
  w.Key("total_token_throughput").Double(m.total_token_throughput());
  w.Key("max_output_tokens_per_s").Int(m.max_output_tokens_per_second());
  w.Key("max_concurrent_requests").Int(m.max_concurrent_requests());
  WriteDistributions(m, &w);
  w.Key("client_cpu_seconds").Double(report.run.cpu_seconds).Key("client_cpu_share").Double(report.cpu_share());
  w.Key("client_late_p99_ms").Double(m.late_ms_p99).Key("client_late_max_ms").Double(m.late_ms_max);
  w.Key("client_connections").Int(report.run.num_connections);
  const auto array = [&](std::string_view key, auto write) { WriteOutcomes(report, key, &w, write); };
  array("start_times", [&](const Outcome& o) { w.Double(o.start_seconds); });
  array("input_lens", [&](const Outcome& o) { w.Int(o.num_prompt_tokens); });
  array("output_lens", [&](const Outcome& o) { w.Int(o.is_ok() ? o.num_output_tokens : 0); });
  array("ttfts", [&](const Outcome& o) { w.Double(o.ttft_seconds); });
  array("e2els", [&](const Outcome& o) { w.Double(o.latency_seconds); });
  array("itls", [&](const Outcome& o) {
    w.BeginArray();
    for (const double gap : o.itl_seconds) w.Double(gap);
    w.EndArray();
  });
  array("errors", [&](const Outcome& o) { w.String(o.error); });
  w.EndObject();
  return text;
}

std::string ReportCsv(const LoadReport& report) {
  std::string text =
      "request,due_s,start_s,late_ms,input_tokens,cached_tokens,output_tokens,ttft_ms,tpot_ms,e2el_ms,itl_max_ms,good,"
      "error\n";
  for (std::size_t i = 0; i < report.run.outcomes.size(); ++i) {
    const Outcome& o = report.run.outcomes[i];
    const double longest = o.itl_seconds.empty() ? 0 : std::ranges::max(o.itl_seconds);
    text += fmt::format("{},{:.6f},{:.6f},{:.3f},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{},{}\n", i,
                        report.requests[i].arrival_seconds, o.start_seconds, o.late_seconds * 1e3, o.num_prompt_tokens,
                        o.num_cached_tokens, o.is_ok() ? o.num_output_tokens : 0, o.ttft_seconds * 1e3,
                        o.is_ok() ? o.tpot_seconds() * 1e3 : 0, o.latency_seconds * 1e3, longest * 1e3,
                        IsGood(o, report.config.goodput) ? 1 : 0, CsvQuoted(o.error));
  }
  return text;
}

}  // namespace quire::bench::load
