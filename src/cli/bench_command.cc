// `quire bench`: what this machine does with a model, in numbers. The engine runs in this process.
#include <cstdio>
#include <iostream>

#include "bench/model_speed.h"
#include "bench/sampling_speed.h"
#include "bench/workload.h"
#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/model_location.h"

namespace quire::cli {
namespace {

struct WorkloadFlags {
  engine::EngineOptions engine;
  bench::WorkloadConfig workload;
  bool json = false;
};

Result<> RunWorkloadBench(WorkloadFlags flags) {
  QUIRE_TRY(const engine::LoadedEngine loaded, LoadInProcess(&flags.engine, /*quiet=*/true));
  if (!flags.json) fmt::print("{}; {}\n", DescribeModel(loaded.info), DescribeCompute(loaded.info));
  QUIRE_TRY(const bench::WorkloadReport report, bench::RunWorkload(loaded.engine.get(), flags.workload, *loaded.clock));
  fmt::print("{}\n", flags.json ? report.ToJson() : report.ToTable());
  return {};
}

void AddWorkloadBench(CLI::App* bench, CommandSlot* slot, const std::string& name, const std::string& description,
                      const bench::WorkloadConfig& defaults) {
  CLI::App* command = bench->add_subcommand(name, description);
  auto flags = std::make_shared<WorkloadFlags>();  // shared by the parser's callback and the flags that fill it
  flags->workload = defaults;
  command->add_flag("--json", flags->json, "one line of JSON instead of the table; times in seconds");
  AddFlags(flags->workload, command, "Workload");
  AddFlags(flags->engine, command, "Engine");
  SetRun(command, slot, "bench", [flags, name] {
    const Result<> run = RunWorkloadBench(*flags);
    return run ? kExitSuccess : ReportError("bench " + name, run.error());
  });
}

struct ModelBenchFlags {
  engine::EngineOptions engine;
  std::vector<std::string> cases = {"prefill 512", "decode 128 1"};
  bool from_stdin = false;
};

Result<> PrintCase(EngineClient* engine, const std::string& text) {
  QUIRE_TRY(const bench::ModelBenchCase bench_case, bench::ParseModelBenchCase(text));
  QUIRE_TRY(const bench::ModelBenchResult result, bench::RunModelBench(engine, bench_case));
  fmt::print("{}\n", result.ToJson());
  std::fflush(stdout);
  return {};
}

Result<> RunModelBenchCases(ModelBenchFlags flags) {
  // Before the model is loaded.
  for (const std::string& text : flags.cases) QUIRE_TRY_VOID(bench::ParseModelBenchCase(text));
  QUIRE_TRY(const engine::LoadedEngine loaded, LoadInProcess(&flags.engine, /*quiet=*/true));
  if (!flags.from_stdin) {
    for (const std::string& text : flags.cases) QUIRE_TRY_VOID(PrintCase(loaded.engine.get(), text));
    return {};
  }
  for (std::string line; std::getline(std::cin, line);) QUIRE_TRY_VOID(PrintCase(loaded.engine.get(), line));
  return {};
}

void AddModelBench(CLI::App* bench, CommandSlot* slot) {
  CLI::App* command =
      bench->add_subcommand("model",
                            "prompt processing and generation alone, one JSON line a case\n\n"
                            "  quire bench model model.gguf --case \"prefill 512\" --case \"decode 128 8\"\n\n"
                            "prefill N: one prompt of N tokens. decode N S: N steps of S sequences at the same time.\n"
                            "decode N 1 C: N steps after a prompt of C tokens, which is not counted.");
  auto flags = std::make_shared<ModelBenchFlags>();  // shared by the parser's callback and the flags that fill it
  command
      ->add_option("--case", flags->cases,
                   "what to measure, again for each case. Default: \"prefill 512\" and \"decode 128 1\"")
      ->type_name("CASE");
  command->add_flag("--stdin", flags->from_stdin, "read cases from standard input, one a line, until it ends");
  AddFlags(flags->engine, command, "Engine");
  SetRun(command, slot, "bench model", [flags] {
    const Result<> run = RunModelBenchCases(*flags);
    return run ? kExitSuccess : ReportError("bench model", run.error());
  });
}

struct SamplingFlags {
  engine::EngineOptions load;
  bench::SamplingSpeedOptions options;
  bool json = false;
};

Result<> RunSamplingBench(SamplingFlags flags) {
  QUIRE_TRY_VOID(flags.options.Validate());
  QUIRE_TRY_VOID(CompleteOptions(&flags.load));
  QUIRE_TRY(const engine::LoadedModel loaded, LoadModelInProcess(flags.load));
  QUIRE_TRY(const bench::SamplingSpeedReport report,
            bench::MeasureSamplingSpeed(*loaded.model, loaded.kernels, loaded.pool.get(), flags.options));
  fmt::print("{}\n", flags.json ? report.ToJson() : report.ToText());
  return {};
}

void AddSamplingBench(CLI::App* bench, CommandSlot* slot) {
  CLI::App* command =
      bench->add_subcommand("sampling",
                            "the share of a step that choosing the tokens takes, greedy and with the usual filters\n\n"
                            "  quire bench sampling Qwen3-0.6B --num-seqs 32");
  auto flags = std::make_shared<SamplingFlags>();  // shared by the parser's callback and the flags that fill it
  command->add_flag("--json", flags->json, "one JSON object instead of the table; times in seconds");
  FlagVisitor measurement(command, "Measurement");
  measurement.Field("num-seqs", flags->options.num_sequences, "sequences that generate together");
  measurement.Field("steps", flags->options.num_steps, "steps of each measurement");
  measurement.Field("repeats", flags->options.repeats, "measurements; medians are reported");
  FlagVisitor engine(command, "Engine");
  engine.Argument("model", flags->load.model, "a Hugging Face folder or a .gguf file (default: the demo model)");
  AddComputeFields(&flags->load, &engine);
  engine.Field("quantization", QuantizationChoice(flags->load.quantization), "quantise the model while it is loaded");
  SetRun(command, slot, "bench sampling", [flags] {
    const Result<> run = RunSamplingBench(*flags);
    return run ? kExitSuccess : ReportError("bench sampling", run.error());
  });
}

}  // namespace

void AddBenchCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* bench = app->add_subcommand("bench", "measure a model on this machine");
  AddWorkloadBench(bench, slot, "latency",
                   "one request after another: time to first token, time per output token\n\n"
                   "  quire bench latency Qwen3-0.6B --input-len 512 --output-len 64 --json",
                   {.num_prompts = 10, .num_warmup = 1, .max_concurrency = 1});
  AddWorkloadBench(bench, slot, "throughput",
                   "many requests at the same time: tokens per second, and what each of them waits\n\n"
                   "  quire bench throughput Qwen3-0.6B --num-prompts 64 --max-concurrency 16\n"
                   "  quire bench throughput Qwen3-0.6B --input-len 1024 --prefix-len 896    a shared prefix",
                   {.num_prompts = 64, .num_warmup = 2, .max_concurrency = 32});
  AddModelBench(bench, slot);
  AddSamplingBench(bench, slot);
  AddMachineBenches(bench, slot);
  AddBenchServe(bench, slot);
  AddBenchSweep(bench, slot);
  AddPapersBench(bench, slot);
}

}  // namespace quire::cli
