#include "bench/simulation/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "bench/median.h"
#include "bench/simulation/simulated_runner.h"
#include "engine/engine.h"
#include "engine/model_runner.h"

namespace quire::bench {
namespace {

constexpr int kBlockSize = kernels::KvLayout::block_size;
constexpr int kShortContext = 16;  // of sequences that generate, where attention should not count
constexpr int kLongContext = 1024;
constexpr int kContextSequences = 4;
constexpr int kPromptSteps = kShortContext + 2;  // in which all prompts of these sequences are computed
constexpr int kFarChunk = 256;

// 1, 2, 4 … and `most`.
std::vector<int> Doublings(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

// Steps of an engine without cache, timed from outside: what the scheduler takes is part of them.
class StepProbe {
 public:
  static Result<StepProbe> Create(const engine::LoadedModel& loaded, const CalibrationOptions& options) {
    StepProbe probe;
    probe.options_ = options;
    sched::SchedulerConfig& config = probe.config_.scheduler;
    config.max_num_seqs = options.max_num_seqs;
    config.max_model_len = engine::ModelLengthDefault(loaded.model->config());
    config.vocab_size = loaded.model->config().vocab_size;
    config.block_size = kBlockSize;
    config.enable_prefix_caching = false;
    // For every sequence at a short context, for a few at a long one, and for a prompt with chunks behind each other.
    const int tokens = std::max({options.max_num_seqs * (kShortContext + 2 * options.repeats + 2 * kBlockSize),
                                 kContextSequences * (kLongContext + 2 * options.repeats + 2 * kBlockSize),
                                 5 * std::max(kFarChunk, options.max_num_batched_tokens)});
    config.num_blocks = tokens / kBlockSize + 1;
    config.max_model_len = std::min(config.max_model_len, tokens);
    // Prompts get on beside all that generate: those that came first must not end before the last one generates, too.
    config.max_num_batched_tokens = std::max({options.max_num_batched_tokens, 2 * options.max_num_seqs, kLongContext});
    QUIRE_TRY(probe.runner_, engine::ModelRunner::Create(loaded.model.get(), loaded.kernels, loaded.pool.get(),
                                                         {.max_num_batched_tokens = config.max_num_batched_tokens,
                                                          .num_blocks = config.num_blocks}));
    return probe;
  }

  int max_model_len() const { return config_.scheduler.max_model_len; }

  // Microseconds of a step of `num_tokens` of a prompt that stand at `position`, a multiple of them, and are not its last.
  Result<double> Chunk(int num_tokens, int position) {
    std::vector<double> samples;
    for (int i = 0; i <= options_.repeats; ++i) {
      engine::EngineConfig config = config_;
      config.scheduler.max_num_batched_tokens = num_tokens;
      engine::Engine engine(config, runner_.get(), &clock_);
      QUIRE_TRY_VOID(Add(1, position + num_tokens + 1, 1, &engine));
      double last = 0;
      for (int step = 0; step <= position / num_tokens; ++step) {
        QUIRE_TRY(last, TimeStep(&engine));
      }
      if (i > 0) samples.push_back(last);  // the first one warms up
    }
    return Median(std::move(samples));
  }

  // Microseconds of a step in which `num_sequences` generate, each with about `context` tokens.
  Result<double> Decode(int num_sequences, int context) {
    engine::Engine engine(config_, runner_.get(), &clock_);
    const int num_steps = 2 * options_.repeats;
    const int num_tokens = num_steps + kPromptSteps + 1;
    for (int i = 0; i < num_sequences; ++i) QUIRE_TRY_VOID(Add(i + 1, context, num_tokens, &engine));
    // Until all prompts are done; those that came first have generated meanwhile.
    EngineStats stats;
    const auto prompts = static_cast<std::uint64_t>(num_sequences) * static_cast<std::uint64_t>(context);
    for (engine.scheduler().ReadStats(&stats); stats.prompt_tokens < prompts; engine.scheduler().ReadStats(&stats)) {
      QUIRE_TRY_VOID(TimeStep(&engine));
    }
    CHECK(engine.scheduler().num_running_sequences() == num_sequences);
    std::vector<double> samples;
    for (int i = 0; i < num_steps; ++i) {
      QUIRE_TRY(const double microseconds, TimeStep(&engine));
      samples.push_back(microseconds);
    }
    engine.AbortAll(&events_);
    events_.clear();
    return Median(std::move(samples));
  }

 private:
  StepProbe() = default;

  Result<> Add(int id, int num_prompt_tokens, int num_output_tokens, engine::Engine* engine) {
    const auto own = static_cast<std::uint64_t>(id);
    const TraceRequest request{.segments = {{own, num_prompt_tokens}}, .num_output_tokens = num_output_tokens};
    return engine->Add(MakeRequest(request, own, config_.scheduler.vocab_size), clock_.Now());
  }

  Result<double> TimeStep(engine::Engine* engine) {
    const TimePoint start = clock_.Now();
    QUIRE_TRY_VOID(engine->Step(&events_));
    const double microseconds = 1e6 * Seconds(clock_.Now() - start);
    events_.clear();
    return microseconds;
  }

  CalibrationOptions options_;
  engine::EngineConfig config_;
  std::unique_ptr<engine::ModelRunner> runner_;
  SteadyClock clock_;
  std::vector<EngineEvent> events_;
};

// ---- Real against simulated -----------------------------------------------------------------------------------------

struct CheckCase {
  std::string name;
  RequestTrace trace;
  int max_concurrency = 0;
};

CheckCase ClosedLoop(int concurrency, SyntheticTraceConfig config) {
  CheckCase check{.name = {}, .trace = MakeTrace(config), .max_concurrency = concurrency};
  check.trace.SetRate(0);
  check.name = fmt::format("{}, {} at a time", check.trace.description, concurrency);
  return check;
}

class Checker {
 public:
  Checker(const engine::LoadedModel& loaded, const MeasuredSteps& steps) : loaded_(loaded), cost_(steps) {}

  Result<> Create(const CalibrationOptions& options) {
    sched::SchedulerConfig& config = config_.scheduler;
    config.max_num_seqs = options.max_num_seqs;
    config.max_num_batched_tokens = options.max_num_batched_tokens;
    config.max_model_len = engine::ModelLengthDefault(loaded_.model->config());
    config.vocab_size = loaded_.model->config().vocab_size;
    config.block_size = kBlockSize;
    config.num_blocks = std::max(options.max_num_seqs * 1024, config.max_model_len) / kBlockSize;
    config.max_model_len = std::min(config.max_model_len, config.num_blocks * kBlockSize);
    QUIRE_TRY_VOID(config_.Validate());
    QUIRE_TRY(runner_, engine::ModelRunner::Create(
                           loaded_.model.get(), loaded_.kernels, loaded_.pool.get(),
                           {.max_num_batched_tokens = config.max_num_batched_tokens, .num_blocks = config.num_blocks}));
    return {};
  }

  Result<CheckRow> Run(const CheckCase& check) {
    CheckRow row{.workload = check.name, .real = {}, .simulated = {}};
    const ReplayOptions options{.max_concurrency = check.max_concurrency};
    SteadyTimeline real;
    QUIRE_TRY(row.real, Replay(config_, runner_.get(), &real, check.trace.requests, options));
    SimulatedTimeline simulated;
    SimulatedRunner runner(&cost_, config_.scheduler.vocab_size, &simulated);
    QUIRE_TRY(row.simulated, Replay(config_, &runner, &simulated, check.trace.requests, options));
    return row;
  }

 private:
  const engine::LoadedModel& loaded_;
  const MeasuredCost cost_;
  engine::EngineConfig config_;
  std::unique_ptr<engine::ModelRunner> runner_;
};

double ErrorOf(double simulated, double real) {
  return real > 0 ? simulated / real - 1 : 0;
}

}  // namespace

Result<> CalibrationOptions::Validate() const {
  const auto in_range = [](const char* field, int value, int least, int most) -> Result<> {
    if (value >= least && value <= most) return {};
    return FailParam(field, "{} is {}; it must be at least {} and at most {}", field, value, least, most);
  };
  QUIRE_TRY_VOID(in_range("max-num-seqs", max_num_seqs, 1, 4096));
  QUIRE_TRY_VOID(in_range("max-num-batched-tokens", max_num_batched_tokens, 2, 1 << 16));
  return in_range("repeats", repeats, 1, 1000);
}

Result<MeasuredSteps> MeasureSteps(const engine::LoadedModel& loaded, const CalibrationOptions& options) {
  QUIRE_TRY_VOID(options.Validate());
  QUIRE_TRY(StepProbe probe, StepProbe::Create(loaded, options));
  MeasuredSteps steps;
  steps.how = fmt::format("{}, {} weights, {} sequences and {} tokens at most", loaded.description,
                          loaded.model->weight_formats(), options.max_num_seqs, options.max_num_batched_tokens);
  // Attention of chunks: the same tokens far behind and at the beginning.
  const int chunk = std::clamp(probe.max_model_len() / 5, 1, kFarChunk);
  QUIRE_TRY(const double near, probe.Chunk(chunk, 0));
  QUIRE_TRY(const double far, probe.Chunk(chunk, 3 * chunk));
  steps.chunk_pair_us = std::max(0.0, far - near) / (3.0 * chunk * chunk);
  // Tokens, without what they attend to.
  for (const int count : Doublings(std::min(options.max_num_batched_tokens, probe.max_model_len() - 2))) {
    QUIRE_TRY(const double microseconds, probe.Chunk(count, 0));
    const double pairs = 0.5 * count * (count + 1);
    steps.token_us.emplace_back(count, std::max(0.0, microseconds - steps.chunk_pair_us * pairs));
  }
  // Attention of generated tokens: the same sequences with a long and a short past.
  const int sequences = std::min(kContextSequences, options.max_num_seqs);
  const int context = std::min(kLongContext, probe.max_model_len() / 2);
  QUIRE_TRY(const double long_past, probe.Decode(sequences, context));
  QUIRE_TRY(const double short_past, probe.Decode(sequences, kShortContext));
  steps.decode_context_us = std::max(0.0, long_past - short_past) / (sequences * std::max(1, context - kShortContext));
  // What is left of steps that generate is the sampling.
  for (const int count : Doublings(options.max_num_seqs)) {
    QUIRE_TRY(const double microseconds, probe.Decode(count, kShortContext));
    const double mean_context = kShortContext + options.repeats;
    const double others = Interpolate(steps.token_us, count) + steps.decode_context_us * count * mean_context;
    steps.sample_us.emplace_back(count, std::max(0.0, microseconds - others));
  }
  return steps;
}

ModelShape ShapeOf(const engine::LoadedModel& loaded, std::string name) {
  ModelShape shape = ModelShape::Of(loaded.model->config(), std::move(name));
  const double numbers = shape.kv_bytes_per_token() / (shape.kv_bits / 8);
  shape.kv_bits = 8.0 * static_cast<double>(loaded.model->kv_layout().block_bytes()) / kBlockSize / numbers;
  shape.weight_bits =
      8.0 * static_cast<double>(loaded.model->weight_bytes()) / (shape.layer_weights() + shape.head_weights());
  return shape;
}

Result<CheckReport> CheckSimulation(const engine::LoadedModel& loaded, const MeasuredSteps& steps,
                                    const CalibrationOptions& options) {
  Checker checker(loaded, steps);
  QUIRE_TRY_VOID(checker.Create(options));
  CheckReport report;
  const auto run = [&](const CheckCase& check) -> Result<> {
    QUIRE_TRY(CheckRow row, checker.Run(check));
    report.rows.push_back(std::move(row));
    return {};
  };
  const int many = std::min(16, options.max_num_seqs);
  QUIRE_TRY_VOID(run(ClosedLoop(1, {.num_prompts = 8, .input_len = 256, .output_len = 64})));
  QUIRE_TRY_VOID(run(ClosedLoop(many, {.num_prompts = 64, .input_len = 128, .output_len = 64, .length_cv = 0.5})));
  const ReplaySamples& most = report.rows.back().real;
  QUIRE_TRY_VOID(
      run(ClosedLoop(std::min(8, many),
                     {.num_prompts = 32, .input_len = 320, .output_len = 32, .length_cv = 0.3, .prefix_len = 256})));
  CheckCase open{
      .name = {},
      .trace = MakeTrace({.num_prompts = 64, .input_len = 128, .output_len = 64, .length_cv = 0.5, .seed = 2}),
      .max_concurrency = 0};
  const double rate = 0.6 * most.num_finished / most.duration_seconds;
  open.trace.SetRate(rate);
  open.name = fmt::format("{}, {:.2f} a second", open.trace.description, rate);
  QUIRE_TRY_VOID(run(open));
  return report;
}

double CheckRow::throughput_error() const {
  return ErrorOf(simulated.output_tokens_per_second(), real.output_tokens_per_second());
}
double CheckRow::ttft_error() const {
  return ErrorOf(Summary::Of(simulated.ttft).p50, Summary::Of(real.ttft).p50);
}
double CheckRow::tpot_error() const {
  return ErrorOf(Summary::Of(simulated.tpot).p50, Summary::Of(real.tpot).p50);
}

bool CheckReport::ok() const {
  return !rows.empty() && std::ranges::all_of(rows, [](const CheckRow& row) {
    return std::abs(row.throughput_error()) <= kTolerance && std::abs(row.ttft_error()) <= kTolerance;
  });
}

std::string CheckReport::ToTable() const {
  std::size_t width = 8;
  for (const CheckRow& row : rows) width = std::max(width, row.workload.size());
  std::string text = fmt::format("{:{}}  {:>28}  {:>28}  {:>28}\n{:{}}", "", width, "output tokens/s",
                                 "TTFT ms (median)", "TPOT ms (median)", "workload", width);
  for (int i = 0; i < 3; ++i) text += fmt::format("  {:>10}{:>10}{:>8}", "real", "simulated", "error");
  for (const CheckRow& row : rows) {
    const auto cells = [](double real, double simulated) {
      return fmt::format("  {:>10.2f}{:>10.2f}{:>7.1f}%", real, simulated, 100 * ErrorOf(simulated, real));
    };
    text += fmt::format("\n{:{}}", row.workload, width);
    text += cells(row.real.output_tokens_per_second(), row.simulated.output_tokens_per_second());
    text += cells(1e3 * Summary::Of(row.real.ttft).p50, 1e3 * Summary::Of(row.simulated.ttft).p50);
    text += cells(1e3 * Summary::Of(row.real.tpot).p50, 1e3 * Summary::Of(row.simulated.tpot).p50);
  }
  return text;
}

std::string CheckReport::ToJson() const {
  std::string text;
  JsonWriter writer(&text);
  writer.BeginObject().Key("ok").Bool(ok()).Key("tolerance").Double(kTolerance).Key("rows").BeginArray();
  for (const CheckRow& row : rows) {
    writer.BeginObject().Key("workload").String(row.workload);
    const auto write = [&](std::string_view key, const ReplaySamples& samples) {
      writer.Key(key).BeginObject();
      writer.Key("output_tokens_per_second").Double(samples.output_tokens_per_second());
      writer.Key("ttft_p50_seconds").Double(Summary::Of(samples.ttft).p50);
      writer.Key("tpot_p50_seconds").Double(Summary::Of(samples.tpot).p50);
      writer.Key("hit_rate").Double(samples.hit_rate()).Key("steps").Int(samples.steps.num_steps).EndObject();
    };
    write("real", row.real);
    write("simulated", row.simulated);
    writer.Key("throughput_error").Double(row.throughput_error()).Key("ttft_error").Double(row.ttft_error());
    writer.Key("tpot_error").Double(row.tpot_error()).EndObject();
  }
  writer.EndArray().EndObject();
  return text;
}

}  // namespace quire::bench
