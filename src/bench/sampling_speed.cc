#include "bench/sampling_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "models/model_decorator.h"

namespace quire::bench {
namespace {

constexpr int kBlockSize = kernels::KvLayout::block_size;

// Adds the time from its construction to its end.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds), begin_(clock_.Now()) {}
  ~Stopwatch() { *seconds_ += Seconds(clock_.Now() - begin_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  const SteadyClock clock_;
  double* const seconds_;
  const TimePoint begin_;
};

// A model whose time is taken.
class TimedModel final : public models::ModelDecorator {
 public:
  // Both outlive it.
  TimedModel(const models::Model* model, double* seconds) : ModelDecorator(model), seconds_(seconds) {}

  void ForwardHidden(const nn::ExecContext& context, const models::ForwardBatch& batch, nn::KvPool* kv,
                     float* hidden) const override {
    const Stopwatch stopwatch(seconds_);
    ModelDecorator::ForwardHidden(context, batch, kv, hidden);
  }
  void Logits(const nn::ExecContext& context, const float* hidden, int num_rows, float* logits) const override {
    const Stopwatch stopwatch(seconds_);
    ModelDecorator::Logits(context, hidden, num_rows, logits);
  }

 private:
  double* const seconds_;
};

// A runner whose time is taken: what it needs beyond its model's is the sampler's.
class TimedRunner final : public engine::Runner {
 public:
  TimedRunner(engine::Runner* runner, double* seconds) : runner_(runner), seconds_(seconds) {}

  Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) override {
    const Stopwatch stopwatch(seconds_);
    return runner_->Run(plan, result);
  }

 private:
  engine::Runner* const runner_;
  double* const seconds_;
};

std::string Describe(const SamplingParams& params) {
  if (params.temperature == 0) return "greedy";
  std::string text = fmt::format("temperature {}", params.temperature);
  if (params.top_k > 0) text += fmt::format(", top-k {}", params.top_k);
  if (params.top_p < 1) text += fmt::format(", top-p {}", params.top_p);
  if (params.min_p > 0) text += fmt::format(", min-p {}", params.min_p);
  return text;
}

std::vector<SamplingParams> MeasuredParams() {
  return {{.temperature = 0},
          {.temperature = 1},
          {.temperature = 1, .top_k = 40, .top_p = 0.95},
          {.temperature = 1, .top_p = 0.95},
          {.temperature = 1, .min_p = 0.05}};
}

// Seconds of a step, and of its parts.
struct StepTimes {
  double step = 0, runner = 0, model = 0;
  double sampling() const { return runner - model; }
};

class SamplingBench {
 public:
  static Result<std::unique_ptr<SamplingBench>> Create(const models::Model& model, const kernels::KernelTable* kernels,
                                                       ThreadPool* pool, const SamplingSpeedOptions& options) {
    std::unique_ptr<SamplingBench> bench(new SamplingBench(model, options));
    QUIRE_TRY_VOID(bench->config_.Validate());
    QUIRE_TRY(bench->runner_, engine::ModelRunner::Create(&bench->model_, kernels, pool,
                                                          {.max_num_batched_tokens = options.num_sequences,
                                                           .num_blocks = bench->config_.scheduler.num_blocks}));
    return bench;
  }

  // Means of options.num_steps steps in which all sequences generate.
  Result<StepTimes> Measure(const SamplingParams& params) {
    const SteadyClock clock;
    TimedRunner runner(runner_.get(), &times_.runner);
    engine::Engine engine(config_, &runner, &clock);
    for (int i = 0; i < options_.num_sequences; ++i) QUIRE_TRY_VOID(engine.Add(MakeRequest(i, params), clock.Now()));
    QUIRE_TRY_VOID(Step(&engine));  // the prompts
    times_ = {};
    for (int step = 0; step < options_.num_steps; ++step) QUIRE_TRY_VOID(Step(&engine));
    const double count = options_.num_steps;
    return StepTimes{.step = times_.step / count, .runner = times_.runner / count, .model = times_.model / count};
  }

 private:
  SamplingBench(const models::Model& model, const SamplingSpeedOptions& options)
      : options_(options), model_(&model, &times_.model) {
    const int length = options.num_steps + 3;  // a prompt of one token, and one more output than is measured
    config_.scheduler.max_num_batched_tokens = options.num_sequences;
    config_.scheduler.max_num_seqs = options.num_sequences;
    config_.scheduler.max_model_len = length;
    config_.scheduler.num_blocks = options.num_sequences * (length / kBlockSize + 1);
    config_.scheduler.block_size = kBlockSize;
    config_.scheduler.vocab_size = model.config().vocab_size;
    config_.scheduler.enable_prefix_caching = false;
  }

  GenerateRequest MakeRequest(int index, const SamplingParams& params) const {
    GenerateRequest request;
    request.id = RequestId(static_cast<std::uint64_t>(index) + 1);
    request.prompt = {TokenId(index % model_.config().vocab_size)};
    request.sampling = params;
    request.sampling.seed = request.id.value();
    request.stop = {.max_tokens = options_.num_steps + 2, .ignore_eos = true};
    return request;
  }

  Result<> Step(engine::Engine* engine) {
    std::vector<EngineEvent> events;
    {
      const Stopwatch stopwatch(&times_.step);
      QUIRE_TRY_VOID(engine->Step(&events));
    }
    if (static_cast<int>(events.size()) == options_.num_sequences) return {};
    return Fail(ErrorCode::kInternal, "{} of {} sequences generated in a step", events.size(), options_.num_sequences);
  }

  const SamplingSpeedOptions options_;
  StepTimes times_;  // of the steps so far
  TimedModel model_;
  engine::EngineConfig config_;
  std::unique_ptr<engine::ModelRunner> runner_;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

SamplingSpeedRow MakeRow(const SamplingParams& params, const std::vector<StepTimes>& samples) {
  std::vector<double> steps, sampling, shares;
  for (const StepTimes& times : samples) {
    steps.push_back(times.step);
    sampling.push_back(times.sampling());
    shares.push_back(times.sampling() / times.step);
  }
  const auto [least, most] = std::ranges::minmax(shares);
  return {.params = Describe(params),
          .step_seconds = Median(steps),
          .sampling_seconds = Median(sampling),
          .share = Median(shares),
          .share_min = least,
          .share_max = most};
}

}  // namespace

Result<> SamplingSpeedOptions::Validate() const {
  constexpr int kSequencesMax = 4096, kStepsMax = 4096, kRepeatsMax = 1000;
  const auto within = [](const char* name, int value, int most) -> Result<> {
    if (value >= 1 && value <= most) return {};
    return FailParam(name, "{} is not possible; 1 to {} are", value, most);
  };
  QUIRE_TRY_VOID(within("num-seqs", num_sequences, kSequencesMax));
  QUIRE_TRY_VOID(within("steps", num_steps, kStepsMax));
  return within("repeats", repeats, kRepeatsMax);
}

Result<SamplingSpeedReport> MeasureSamplingSpeed(const models::Model& model, const kernels::KernelTable* kernels,
                                                 ThreadPool* pool, const SamplingSpeedOptions& options) {
  QUIRE_TRY(const std::unique_ptr<SamplingBench> bench, SamplingBench::Create(model, kernels, pool, options));
  const std::vector<SamplingParams> params = MeasuredParams();
  std::vector<std::vector<StepTimes>> samples(params.size());
  QUIRE_TRY_VOID(bench->Measure(params[0]));  // warms up
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (std::size_t i = 0; i < params.size(); ++i) {
      QUIRE_TRY(const StepTimes times, bench->Measure(params[i]));
      samples[i].push_back(times);
    }
  }
  SamplingSpeedReport report{.num_sequences = options.num_sequences,
                             .vocab_size = model.config().vocab_size,
                             .num_threads = pool->num_threads(),
                             .isa = kernels->isa};
  for (std::size_t i = 0; i < params.size(); ++i) report.rows.push_back(MakeRow(params[i], samples[i]));
  return report;
}

std::string SamplingSpeedReport::ToText() const {
  std::string text = fmt::format("{} sequences, {} logits each; {} thread{}, {}\n", num_sequences, vocab_size,
                                 num_threads, num_threads == 1 ? "" : "s", isa);
  text += fmt::format("{:<36} {:>8} {:>12}  {}\n", "sampling", "step ms", "sampling ms", "share of the step (min-max)");
  for (const SamplingSpeedRow& row : rows) {
    text += fmt::format("{:<36} {:>8.2f} {:>12.3f}  {:.2f} % ({:.2f}-{:.2f})\n", row.params, row.step_seconds * 1e3,
                        row.sampling_seconds * 1e3, row.share * 100, row.share_min * 100, row.share_max * 100);
  }
  return text;
}

std::string SamplingSpeedReport::ToJson() const {
  std::string out;
  JsonWriter writer(&out);
  writer.BeginObject().Key("num_sequences").Int(num_sequences).Key("vocab_size").Int(vocab_size);
  writer.Key("num_threads").Int(num_threads).Key("isa").String(isa).Key("rows").BeginArray();
  for (const SamplingSpeedRow& row : rows) {
    writer.BeginObject().Key("sampling").String(row.params).Key("step_seconds").Double(row.step_seconds);
    writer.Key("sampling_seconds").Double(row.sampling_seconds).Key("share").Double(row.share);
    writer.Key("share_min").Double(row.share_min).Key("share_max").Double(row.share_max).EndObject();
  }
  writer.EndArray().EndObject();
  return out;
}

}  // namespace quire::bench
