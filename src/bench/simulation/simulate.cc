#include "bench/simulation/simulate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/json.h"
#include "bench/load/svg_chart.h"
#include "bench/simulation/simulated_runner.h"
#include "bench/simulation/step_cost.h"

namespace quire::bench {
namespace {

constexpr double kGigabyte = 1e9;

std::unique_ptr<StepCost> CostOf(const ReplicaConfig& replica) {
  if (replica.measured) return std::make_unique<MeasuredCost>(*replica.measured);
  return std::make_unique<RooflineCost>(replica.device, replica.model);
}

double BlockBytes(const ReplicaConfig& replica) {
  return replica.model.kv_bytes_per_token() * replica.scheduler.block_size;
}

// The requests of each replica, in the order of arrival.
std::vector<std::vector<TraceRequest>> Distribute(const RequestTrace& trace, const ClusterConfig& cluster) {
  std::vector<std::vector<TraceRequest>> parts(static_cast<std::size_t>(cluster.num_replicas));
  const std::unique_ptr<Router> router = Router::Create(cluster.router, cluster.num_replicas);
  for (const TraceRequest& request : trace.requests) {
    parts[static_cast<std::size_t>(router->Route(request))].push_back(request);
  }
  return parts;
}

void WriteSummary(std::string_view name, const Summary& summary, JsonWriter* writer) {
  writer->Key(fmt::format("{}_seconds", name)).BeginObject();
  writer->Key("mean").Double(summary.mean).Key("p50").Double(summary.p50).Key("p90").Double(summary.p90);
  writer->Key("p99").Double(summary.p99).Key("max").Double(summary.max).EndObject();
}

// Means over the time in which an engine was at work, of one replica.
double MeanSequences(const ReplaySamples& samples) {
  return samples.steps.seconds > 0 ? samples.steps.sequences / samples.steps.seconds : 0;
}
double MeanPoolUsed(const ReplaySamples& samples) {
  return samples.steps.seconds > 0 ? samples.pool_seconds / samples.steps.seconds : 0;
}

void WriteRow(const SimulationRow& row, const ReplicaConfig& replica, JsonWriter* writer) {
  const ReplaySamples& samples = row.samples;
  writer->BeginObject();
  writer->Key("replicas").Int(row.cluster.num_replicas).Key("router").String(RouterName(row.cluster.router));
  writer->Key("request_rate").Double(row.request_rate).Key("max_concurrency").Int(row.cluster.max_concurrency);
  writer->Key("requests").Int(samples.num_requests).Key("finished").Int(samples.num_finished);
  writer->Key("too_long").Int(samples.num_too_long).Key("refused").Int(samples.num_refused);
  writer->Key("duration_seconds").Double(samples.duration_seconds);
  writer->Key("input_tokens").Int(samples.num_input_tokens).Key("output_tokens").Int(samples.num_output_tokens);
  writer->Key("requests_per_second")
      .Double(samples.duration_seconds > 0 ? samples.num_finished / samples.duration_seconds : 0);
  writer->Key("output_tokens_per_second").Double(samples.output_tokens_per_second());
  WriteSummary("ttft", row.ttft, writer);
  WriteSummary("tpot", row.tpot, writer);
  WriteSummary("itl", row.itl, writer);
  WriteSummary("latency", row.latency, writer);
  writer->Key("prefix_cache_hit_rate").Double(samples.hit_rate());
  writer->Key("preemptions").Uint(samples.num_preemptions).Key("evicted_blocks").Uint(samples.num_evicted_blocks);
  writer->Key("num_blocks")
      .Int(row.num_blocks)
      .Key("kv_memory_gb")
      .Double(row.num_blocks * BlockBytes(replica) / kGigabyte);
  writer->Key("kv_used_mean").Double(MeanPoolUsed(samples)).Key("kv_used_max").Double(samples.pool_used_max);
  writer->Key("running_mean").Double(MeanSequences(samples)).Key("running_max").Int(samples.steps.max_sequences);
  writer->Key("steps").Int(samples.steps.num_steps).Key("busy_seconds").Double(samples.steps.seconds);
  writer->Key("wall_seconds").Double(row.wall_seconds);
  writer->EndObject();
}

}  // namespace

Result<engine::EngineConfig> ReplicaConfig::Complete() const {
  if (!(memory_fraction > 0 && memory_fraction <= 1)) {
    return FailParam("memory-fraction", "memory-fraction is {}; it must lie above 0 and at most at 1", memory_fraction);
  }
  const double room = device.memory_gb * kGigabyte * memory_fraction - model.weight_bytes();
  const double bytes = kv_memory_bytes > 0 ? static_cast<double>(kv_memory_bytes) : room;
  if (room <= 0 || bytes > room) {
    return FailParam("kv-memory",
                     "{} has {:.1f} GB, of which {:.0f} % may be used; the weights of {} take {:.1f} GB and "
                     "leave {:.1f} GB for keys and values",
                     device.name, device.memory_gb, 100 * memory_fraction, model.name, model.weight_bytes() / kGigabyte,
                     std::max(0.0, room / kGigabyte));
  }
  engine::EngineConfig config{.scheduler = scheduler, .eos_token_ids = {}};
  config.scheduler.vocab_size = model.vocab_size;
  if (config.scheduler.max_model_len > model.max_model_len) {
    return FailParam("max-model-len", "max-model-len is {}, but {} was made for {} tokens",
                     config.scheduler.max_model_len, model.name, model.max_model_len);
  }
  const double positions_max = static_cast<double>(INT32_MAX / scheduler.block_size);
  config.scheduler.num_blocks = static_cast<int>(std::min(std::floor(bytes / BlockBytes(*this)), positions_max));
  const std::int64_t slots = std::int64_t{config.scheduler.num_blocks} * scheduler.block_size;
  if (config.scheduler.max_model_len == 0) {
    config.scheduler.max_model_len = static_cast<int>(std::min<std::int64_t>(model.max_model_len, slots));
  }
  if (config.scheduler.max_model_len < 2 || config.scheduler.max_model_len > slots) {
    return FailParam("max-model-len", "{:.3f} GB for keys and values hold {} tokens; a sequence of {} does not fit",
                     bytes / kGigabyte, slots, std::max(2, config.scheduler.max_model_len));
  }
  QUIRE_TRY_VOID(config.Validate());
  return config;
}

Result<SimulationRow> Simulate(const ReplicaConfig& replica, const ClusterConfig& cluster, const RequestTrace& trace) {
  if (cluster.num_replicas < 1) {
    return FailParam("replicas", "{} replicas; at least 1 is needed", cluster.num_replicas);
  }
  if (cluster.max_concurrency < 0) {
    return FailParam("max-concurrency", "max-concurrency is {}; it must be at least 0", cluster.max_concurrency);
  }
  QUIRE_TRY(const engine::EngineConfig config, replica.Complete());
  const SteadyClock wall;
  const TimePoint start = wall.Now();
  SimulationRow row{.cluster = cluster, .request_rate = trace.rate(), .num_blocks = config.scheduler.num_blocks};
  const std::unique_ptr<StepCost> cost = CostOf(replica);
  for (const std::vector<TraceRequest>& part : Distribute(trace, cluster)) {
    if (part.empty()) continue;
    SimulatedTimeline timeline;
    SimulatedRunner runner(cost.get(), config.scheduler.vocab_size, &timeline);
    QUIRE_TRY(const ReplaySamples samples,
              Replay(config, &runner, &timeline, part, {.max_concurrency = cluster.max_concurrency}));
    row.samples.Add(samples);
  }
  row.ttft = Summary::Of(row.samples.ttft);
  row.tpot = Summary::Of(row.samples.tpot);
  row.itl = Summary::Of(row.samples.itl);
  row.latency = Summary::Of(row.samples.latency);
  row.wall_seconds = Seconds(wall.Now() - start);
  return row;
}

std::string SimulationReport::ToTable() const {
  const ReplicaConfig& r = replica;
  std::string text =
      fmt::format("{} on {}: {:.2f} GB of weights, {}", r.model.name, r.device.name, r.model.weight_bytes() / kGigabyte,
                  r.measured ? "steps as measured (" + r.measured->how + ")" : "steps by the roofline");
  if (!rows.empty()) {
    const double blocks = rows.front().num_blocks;
    text += fmt::format("; {:.2f} GB for {:.0f} tokens\n{}\n\n", blocks * BlockBytes(r) / kGigabyte,
                        blocks * r.scheduler.block_size, workload);
  }
  text += fmt::format("{:>8}{:>9}{:>10}{:>11}{:>21}{:>21}{:>8}{:>8}{:>9}{:>9}\n", "replicas", "asked/s", "done/s",
                      "output t/s", "TTFT ms p50 / p99", "TPOT ms p50 / p99", "hits %", "KV %", "preempt.", "left out");
  for (const SimulationRow& row : rows) {
    const ReplaySamples& s = row.samples;
    const auto times = [](const Summary& summary) {
      return fmt::format("{:.1f} / {:.1f}", 1e3 * summary.p50, 1e3 * summary.p99);
    };
    text += fmt::format(
        "{:>8}{:>9}{:>10.2f}{:>11.1f}{:>21}{:>21}{:>8.1f}{:>8.1f}{:>9}{:>9}\n", row.cluster.num_replicas,
        row.request_rate > 0 ? fmt::format("{:.2f}", row.request_rate) : "at once",
        s.duration_seconds > 0 ? s.num_finished / s.duration_seconds : 0, s.output_tokens_per_second(), times(row.ttft),
        times(row.tpot), 100 * s.hit_rate(), 100 * MeanPoolUsed(s), s.num_preemptions, s.num_too_long + s.num_refused);
  }
  return text;
}

std::string SimulationReport::ToJson() const {
  std::string text;
  JsonWriter writer(&text);
  writer.BeginObject();
  writer.Key("device").String(replica.device.name).Key("model").String(replica.model.name);
  writer.Key("step_cost").String(replica.measured ? "measured" : "roofline").Key("workload").String(workload);
  writer.Key("weights_gb").Double(replica.model.weight_bytes() / kGigabyte);
  writer.Key("scheduling_policy").String(sched::PolicyName(replica.scheduler.policy)).Key("ablations").BeginArray();
  for (const sched::AblationName& ablation : sched::kAblationNames) {
    if (replica.scheduler.ablations.*ablation.field) writer.String(ablation.name);
  }
  writer.EndArray().Key("rows").BeginArray();
  for (const SimulationRow& row : rows) WriteRow(row, replica, &writer);
  writer.EndArray().EndObject();
  return text;
}

std::string SimulationReport::ToSvg() const {
  load::Chart throughput{.title = fmt::format("{} on {}: {}", replica.model.name, replica.device.name, workload),
                         .x_label = "requests a second",
                         .y_label = "output tokens a second",
                         .series = {},
                         .legend_beside = true};
  load::Chart times{.title = "what a request waits",
                    .x_label = "requests a second",
                    .y_label = "milliseconds",
                    .series = {},
                    .log_y = true,
                    .legend_beside = true};
  const auto curve = [](std::string name) {
    return load::ChartSeries{.name = std::move(name), .points = {}, .marks_points = true};
  };
  for (const SimulationRow& row : rows) {
    const std::string name =
        fmt::format("{} replica{}", row.cluster.num_replicas, row.cluster.num_replicas == 1 ? "" : "s");
    if (throughput.series.empty() || throughput.series.back().name != name) {
      throughput.series.push_back(curve(name));
      for (const char* const what : {"TTFT p50", "TTFT p99", "TPOT p50"}) {
        const bool has_one_curve = rows.front().cluster.num_replicas == rows.back().cluster.num_replicas;
        times.series.push_back(curve(has_one_curve ? what : fmt::format("{}, {}", what, name)));
      }
    }
    throughput.series.back().points.push_back({row.request_rate, row.samples.output_tokens_per_second()});
    const std::size_t first = times.series.size() - 3;
    times.series[first].points.push_back({row.request_rate, 1e3 * row.ttft.p50});
    times.series[first + 1].points.push_back({row.request_rate, 1e3 * row.ttft.p99});
    times.series[first + 2].points.push_back({row.request_rate, 1e3 * row.tpot.p50});
  }
  const load::Chart charts[] = {std::move(throughput), std::move(times)};
  return load::ChartsSvg(charts);
}

}  // namespace quire::bench
