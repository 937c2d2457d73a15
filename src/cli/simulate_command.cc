// `quire simulate`: how many requests a device would serve, without the device. `calibrate` measures this one, `check` holds
// simulations against real runs.
#include <cstdio>
#include <memory>

#include "bench/roofline.h"
#include "bench/simulation/calibrate.h"
#include "bench/simulation/simulate.h"
#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/model_location.h"
#include "engine/memory_budget.h"
#include "weights/atomic_file.h"

namespace quire::cli {
namespace {

constexpr int kReplicasMax = 100'000;
constexpr int kPointsMax = 1000;  // of a curve
constexpr const char* kThisMachine = "this-machine";

struct SimulateFlags {
  std::filesystem::path devices;
  bool prints_devices = false;
  std::string device = "h100", model = "llama-3.1-8b";
  std::optional<double> weight_bits, kv_bits;
  bench::ReplicaConfig replica;
  std::vector<std::string> ablations;

  std::filesystem::path trace;
  bench::SyntheticTraceConfig synthetic;
  std::optional<int> num_prompts;
  std::vector<double> rates;
  std::vector<int> replicas = {1};
  bench::ClusterConfig cluster;

  bool json = false;
  std::filesystem::path plot;
};

// ---- What is simulated ---------------------------------------------------------------------------------------------

Result<bench::DeviceFile> ReadDevices(const std::filesystem::path& path) {
  return path.empty() ? bench::DeviceFile::BuiltIn() : bench::DeviceFile::Read(path);
}

Result<> SetAblations(const std::vector<std::string>& names, sched::Ablations* ablations) {
  for (const std::string& name : names) {
    const auto* const found = std::ranges::find(sched::kAblationNames, name, &sched::AblationName::name);
    if (found == std::end(sched::kAblationNames)) {
      return FailParam("ablation",
                       "unknown ablation \"{}\"; known are static-batching, whole-prompts and "
                       "reserve-max-model-len",
                       name);
    }
    ablations->*found->field = true;
  }
  return {};
}

Result<bench::ReplicaConfig> MakeReplica(const SimulateFlags& flags, const bench::DeviceFile& file) {
  bench::ReplicaConfig replica = flags.replica;
  QUIRE_TRY(const bench::Device* const device, file.FindDevice(flags.device));
  QUIRE_TRY(const bench::ModelShape* const model, file.FindModel(flags.model));
  replica.device = *device;
  replica.model = *model;
  for (const auto& [name, bits, field] : {std::tuple("weight-bits", flags.weight_bits, &replica.model.weight_bits),
                                          std::tuple("kv-bits", flags.kv_bits, &replica.model.kv_bits)}) {
    if (!bits) continue;
    if (!(*bits > 0 && *bits <= 64)) return FailParam(name, "{} bits; above 0 and at most 64 are possible", *bits);
    *field = *bits;
  }
  // What was measured is of the model as it stood in memory then.
  const bool is_changed = flags.weight_bits || flags.kv_bits;
  if (const auto* const steps = file.FindMeasured(device->name, model->name); steps != nullptr && !is_changed) {
    replica.measured = *steps;
  }
  QUIRE_TRY_VOID(SetAblations(flags.ablations, &replica.scheduler.ablations));
  return replica;
}

Result<bench::RequestTrace> MakeWorkload(const SimulateFlags& flags) {
  if (flags.num_prompts && (*flags.num_prompts < 1 || *flags.num_prompts > 10'000'000)) {
    return FailParam("num-prompts", "num-prompts is {}; it must be at least 1 and at most 10000000",
                     *flags.num_prompts);
  }
  if (!flags.trace.empty()) {
    QUIRE_TRY(bench::RequestTrace trace, bench::ReadTrace(flags.trace));
    if (flags.num_prompts) trace.SetCount(*flags.num_prompts);
    trace.description = fmt::format("{} requests of {}", trace.requests.size(), trace.description);
    return trace;
  }
  bench::SyntheticTraceConfig config = flags.synthetic;
  config.num_prompts = flags.num_prompts.value_or(config.num_prompts);
  QUIRE_TRY_VOID(config.Validate());
  return bench::MakeTrace(config);
}

Result<> CheckCurve(const SimulateFlags& flags) {
  if (flags.replicas.size() * std::max<std::size_t>(flags.rates.size(), 1) > kPointsMax) {
    return FailParam("replicas", "{} numbers of replicas and {} rates make more than {} points", flags.replicas.size(),
                     flags.rates.size(), kPointsMax);
  }
  for (const int count : flags.replicas) {
    if (count < 1 || count > kReplicasMax) {
      return FailParam("replicas", "{} replicas; 1 to {} are possible", count, kReplicasMax);
    }
  }
  for (const double rate : flags.rates) {
    if (!(rate >= 0 && rate <= 1e9))
      return FailParam("request-rate", "{} requests a second; 0 to 1e9 are possible", rate);
  }
  return {};
}

Result<> RunSimulate(const SimulateFlags& flags) {
  QUIRE_TRY(const bench::DeviceFile file, ReadDevices(flags.devices));
  if (flags.prints_devices) {
    fmt::print("{}", file.ToJson());
    return {};
  }
  QUIRE_TRY_VOID(CheckCurve(flags));
  bench::SimulationReport report;
  QUIRE_TRY(report.replica, MakeReplica(flags, file));
  QUIRE_TRY_VOID(report.replica.Complete());
  QUIRE_TRY(bench::RequestTrace trace, MakeWorkload(flags));
  report.workload = trace.description;
  // Without rates, a trace comes as it came, and made-up requests come at once.
  std::vector<double> rates = flags.rates;
  if (rates.empty()) rates.push_back(flags.trace.empty() ? 0 : trace.rate());
  for (const int count : flags.replicas) {
    for (const double rate : rates) {
      bench::RequestTrace at_rate = trace;
      at_rate.SetRate(rate);
      bench::ClusterConfig cluster = flags.cluster;
      cluster.num_replicas = count;
      QUIRE_TRY(bench::SimulationRow row, bench::Simulate(report.replica, cluster, at_rate));
      report.rows.push_back(std::move(row));
    }
  }
  if (!flags.plot.empty()) {
    QUIRE_TRY(weights::AtomicFile plot, weights::AtomicFile::Create(flags.plot));
    QUIRE_TRY_VOID(plot.Write(report.ToSvg()));
    QUIRE_TRY_VOID(plot.Commit());
  }
  fmt::print("{}\n", flags.json ? report.ToJson() : report.ToTable());
  return {};
}

void AddReplicaFlags(CLI::App* command, SimulateFlags* flags) {
  FlagVisitor device(command, "Device and model");
  device.Field("device", flags->device, "one of the file's devices");
  device.Field("model", flags->model, "one of the file's models");
  command
      ->add_option_function<std::string>(
          "--devices", [flags](const std::string& text) { flags->devices = text; },
          "JSON file of devices and models, see --print-devices; default: built in")
      ->type_name("FILE")
      ->group("Device and model");
  command->add_flag("--print-devices", flags->prints_devices, "print that file, to be edited, and nothing else")
      ->group("Device and model");
  device.Field("weight-bits", flags->weight_bits, "of a weight in memory, scales among them; default: the model's");
  device.Field("kv-bits", flags->kv_bits, "of a number in the KV cache; default: the model's");
  device.Field("memory-fraction", flags->replica.memory_fraction, "of the device's memory that may be used");
  device.Field("kv-memory", Bytes(flags->replica.kv_memory_bytes), "memory for keys and values; 0: what is left");

  sched::SchedulerConfig& scheduler = flags->replica.scheduler;
  FlagVisitor engine(command, "Engine");
  engine.Field("max-model-len", scheduler.max_model_len, "longest sequence in tokens; 0: the model's, or what fits");
  engine.Field("max-num-seqs", scheduler.max_num_seqs, "sequences that are generated at the same time");
  engine.Field("max-num-batched-tokens", scheduler.max_num_batched_tokens, "tokens computed in one step, at most");
  engine.Field("max-chunk-tokens", scheduler.max_chunk_tokens, "of one prompt in one step; 0: as many as the step has");
  engine.Field("max-queued-requests", scheduler.max_num_queued_requests,
               "that may wait for their first step; more are refused");
  engine.Field("max-queued-tokens", scheduler.max_num_queued_tokens, "tokens of their prompts, at most");
  engine.Field("enable-prefix-caching", scheduler.enable_prefix_caching,
               "keep prompts for later ones that begin alike");
  engine.Field(
      "scheduling-policy",
      Choice(scheduler.policy, sched::PolicyName, sched::ParsePolicy, "lpm, fcfs, dfs-weight, random, sjf or slo"),
      "which waiting request goes first: docs/scheduling.md");
  engine.Field("default-ttft-ms", scheduler.default_ttft_ms,
               "policy slo: milliseconds to the first token; 0: no target");
  engine.Field("default-tpot-ms", scheduler.default_tpot_ms, "policy slo: milliseconds between tokens; 0: no target");
  engine.Field("shed-unmeetable", scheduler.shed_unmeetable,
               "policy slo: requests whose first token would come too late are refused");

  FlagVisitor experiments(command, "Experiments (what an engine would be without; not for planning)");
  experiments.Field("ablation", flags->ablations,
                    "static-batching, whole-prompts, reserve-max-model-len; several, separated by commas");
}

void AddWorkloadFlags(CLI::App* command, SimulateFlags* flags) {
  const std::string group = "Workload";
  FlagVisitor workload(command, group);
  command
      ->add_option_function<std::string>(
          "--trace", [flags](const std::string& text) { flags->trace = text; },
          "requests of a real service: CSV of Azure's traces or JSON lines of Mooncake's")
      ->type_name("FILE")
      ->group(group);
  workload.Field("num-prompts", flags->num_prompts,
                 "requests; a trace that has fewer comes again. Default: 1000, or all of the trace");
  workload.Field("input-len", flags->synthetic.input_len, "without a trace: tokens of a prompt on average");
  workload.Field("output-len", flags->synthetic.output_len, "… generated for it on average");
  workload.Field("length-cv", flags->synthetic.length_cv,
                 "… standard deviation over mean of both, log-normal; 0: all are alike");
  workload.Field("prefix-len", flags->synthetic.prefix_len, "… tokens of a prompt that others begin with, too");
  workload.Field("num-prefixes", flags->synthetic.num_prefixes, "… how many such beginnings there are");
  workload.Field("burstiness", flags->synthetic.burstiness, "… shape of the gamma distribution of gaps; 1: Poisson");
  workload.Field("seed", flags->synthetic.seed, "… of what is drawn");
  command
      ->add_option(
          "--request-rate", flags->rates,
          "requests a second to all replicas together, 0 for all at once; several, separated by commas, make a "
          "curve. Default: the trace's own, or 0")
      ->delimiter(',')
      ->group(group);
  workload.Field("max-concurrency", flags->cluster.max_concurrency,
                 "requests in a replica at a time, asked one after the other; 0: no limit");
  command->add_option("--replicas", flags->replicas, "engines behind the router; several numbers make several curves")
      ->delimiter(',')
      ->default_str("1")
      ->group(group);
  workload.Field("router",
                 Choice(flags->cluster.router, bench::RouterName, bench::ParseRouter, "round-robin or prefix-affinity"),
                 "which replica gets a request");
}

// ---- This machine --------------------------------------------------------------------------------------------------

struct CalibrateFlags {
  engine::EngineOptions load;
  bench::CalibrationOptions options;
  std::string name;  // of the model's entry
  std::filesystem::path output;
  bool json = false;
  std::filesystem::path devices;
};

// The weights' products take integer dot products only where weights are integers.
Result<bench::Device> MeasureDevice(const engine::LoadedModel& loaded) {
  constexpr std::size_t kWorkingSet = std::size_t{512} << 20;
  constexpr int kRepeats = 5;
  QUIRE_TRY(bench::Roofline roofline, bench::Roofline::Create(loaded.pool.get(), kWorkingSet));
  const bench::RooflineResult limits = bench::MeasureRoofline(&roofline, loaded.pool->num_threads(), kRepeats);
  const double float_gflops =
      std::max({limits.fma_gflop_per_second, limits.bf16_gflop_per_second, limits.bf16_tiles_gflop_per_second});
  bench::Device device{.name = kThisMachine};
  device.memory_gb = static_cast<double>(engine::AvailableMemoryBytes().value_or(std::int64_t{8} << 30)) / 1e9;
  device.bandwidth_gb_per_second = limits.read_gb_per_second;
  device.tflops = float_gflops / 1e3;
  return device;
}

std::string NameOf(const CalibrateFlags& flags) {
  if (!flags.name.empty()) return flags.name;
  const std::filesystem::path path =
      flags.load.model.has_filename() ? flags.load.model : flags.load.model.parent_path();
  return (path.extension() == ".gguf" ? path.stem() : path.filename()).string();
}

Result<> RunCalibrate(CalibrateFlags flags) {
  QUIRE_TRY_VOID(flags.options.Validate());
  bench::DeviceFile file = bench::DeviceFile::BuiltIn();
  if (std::filesystem::exists(flags.output)) {
    QUIRE_TRY(file, bench::DeviceFile::Read(flags.output));
  }
  QUIRE_TRY_VOID(CompleteOptions(&flags.load));
  QUIRE_TRY(const engine::LoadedModel loaded, LoadModelInProcess(flags.load));
  QUIRE_TRY(bench::Device device, MeasureDevice(loaded));
  QUIRE_TRY(bench::MeasuredSteps steps, bench::MeasureSteps(loaded, flags.options));
  steps.device = kThisMachine;
  steps.model = NameOf(flags);
  fmt::print("{}: {}\n", steps.model, steps.how);
  for (const auto& [count, microseconds] : steps.token_us)
    fmt::print("{:>6.0f} tokens  {:>12.1f} us\n", count, microseconds);
  for (const auto& [count, microseconds] : steps.sample_us)
    fmt::print("{:>6.0f} samples {:>12.1f} us\n", count, microseconds);
  fmt::print(
      "attention: {:.5f} us for each token of context of one that is generated, {:.5f} us for each pair of a chunk\n",
      steps.decode_context_us, steps.chunk_pair_us);
  file.Put(std::move(device));
  file.Put(bench::ShapeOf(loaded, NameOf(flags)));
  file.Put(std::move(steps));
  QUIRE_TRY_VOID(file.Write(flags.output));
  fmt::print("written to {}: quire simulate --devices {} --device {} --model {}\n", flags.output.string(),
             flags.output.string(), kThisMachine, NameOf(flags));
  return {};
}

Result<bool> RunCheck(CalibrateFlags flags) {
  QUIRE_TRY_VOID(flags.options.Validate());
  QUIRE_TRY_VOID(CompleteOptions(&flags.load));
  bench::MeasuredSteps steps;
  if (!flags.devices.empty()) {
    QUIRE_TRY(const bench::DeviceFile file, bench::DeviceFile::Read(flags.devices));
    const auto* const found = file.FindMeasured(kThisMachine, NameOf(flags));
    if (found == nullptr) {
      return FailParam("devices", "{} has no measurement of \"{}\" on this machine", flags.devices.string(),
                       NameOf(flags));
    }
    steps = *found;
  }
  QUIRE_TRY(const engine::LoadedModel loaded, LoadModelInProcess(flags.load));
  if (flags.devices.empty()) {
    QUIRE_TRY(steps, bench::MeasureSteps(loaded, flags.options));
  }
  QUIRE_TRY(const bench::CheckReport report, bench::CheckSimulation(loaded, steps, flags.options));
  if (flags.json) {
    fmt::print("{}\n", report.ToJson());
  } else {
    fmt::print("{}\n\n{}\n", report.ToTable(),
               report.ok()
                   ? fmt::format("Throughput and median TTFT are within {:.0f} % of the real runs.",
                                 100 * bench::CheckReport::kTolerance)
                   : fmt::format("NOT within {:.0f} %: was the machine quiet?", 100 * bench::CheckReport::kTolerance));
  }
  return report.ok();
}

void AddCalibrationFlags(CLI::App* command, CalibrateFlags* flags) {
  FlagVisitor measurement(command, "Measurement");
  measurement.Field("name", flags->name, "of the model in the file; default: its file's");
  measurement.Field("max-num-seqs", flags->options.max_num_seqs, "sequences of a step, up to which is measured");
  measurement.Field("max-num-batched-tokens", flags->options.max_num_batched_tokens, "tokens of a step, likewise");
  measurement.Field("repeats", flags->options.repeats, "of each step; medians count");
  FlagVisitor engine(command, "Engine");
  engine.Argument("model", flags->load.model, "a Hugging Face folder or a .gguf file (default: the demo model)");
  AddComputeFields(&flags->load, &engine);
  engine.Field("quantization", QuantizationChoice(flags->load.quantization), "quantise the model while it is loaded");
}

void AddCalibrate(CLI::App* simulate, CommandSlot* slot) {
  CLI::App* command = simulate->add_subcommand(
      "calibrate",
      "measure what steps cost on this machine, with the real engine, and write it to a device file\n\n"
      "  quire simulate calibrate Qwen3-0.6B --output devices.json\n"
      "  quire simulate --devices devices.json --device this-machine --model Qwen3-0.6B\n\n"
      "A file that is there is kept but for the entries of this machine and model. Nothing else should run meanwhile.");
  auto flags = std::make_shared<CalibrateFlags>();  // shared by the parser's callback and the flags that fill it
  command
      ->add_option_function<std::string>(
          "--output", [flags](const std::string& text) { flags->output = text; }, "the device file")
      ->type_name("FILE")
      ->required();
  AddCalibrationFlags(command, flags.get());
  SetRun(command, slot, "simulate calibrate", [flags] {
    const Result<> run = RunCalibrate(*flags);
    return run ? kExitSuccess : ReportError("simulate calibrate", run.error());
  });
}

void AddCheck(CLI::App* simulate, CommandSlot* slot) {
  CLI::App* command = simulate->add_subcommand(
      "check",
      "run workloads for real and simulated, and compare\n\n"
      "  quire simulate check\n\n"
      "It measures the steps first, or takes those of --devices. Exits with 1 when throughput or median time to first\n"
      "token of a workload are off by more than 15 %. Nothing else should run meanwhile.");
  auto flags = std::make_shared<CalibrateFlags>();  // likewise
  command
      ->add_option_function<std::string>(
          "--devices", [flags](const std::string& text) { flags->devices = text; },
          "device file with a measurement of this machine")
      ->type_name("FILE");
  command->add_flag("--json", flags->json, "one JSON object instead of the table");
  AddCalibrationFlags(command, flags.get());
  SetRun(command, slot, "simulate check", [flags] {
    const Result<bool> run = RunCheck(*flags);
    if (!run) return ReportError("simulate check", run.error());
    return *run ? kExitSuccess : kExitFailure;
  });
}

}  // namespace

void AddSimulateCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "simulate",
      "how many requests a device would serve: the real scheduler and memory manager in simulated time\n\n"
      "  quire simulate --device h100 --model llama-3.1-8b --request-rate 2,4,8,16 --plot curve.svg\n"
      "  quire simulate --trace conversations.jsonl --replicas 1,10,100 --router prefix-affinity\n"
      "  quire simulate calibrate --output devices.json      this machine\n"
      "  quire simulate check                                simulated against real\n\n"
      "Steps take what the device's bandwidth and arithmetic allow (a roofline), or what was measured.");
  auto flags = std::make_shared<SimulateFlags>();  // shared by the parser's callback and the flags that fill it
  AddReplicaFlags(command, flags.get());
  AddWorkloadFlags(command, flags.get());
  command->add_flag("--json", flags->json, "one JSON object instead of the table; times in seconds");
  command
      ->add_option_function<std::string>(
          "--plot", [flags](const std::string& text) { flags->plot = text; }, "write the curves to an SVG file")
      ->type_name("FILE");
  AddCalibrate(command, slot);
  AddCheck(command, slot);
  // The callback of a command runs after those of its own commands: theirs count.
  command->callback([slot, flags, command] {
    if (!command->get_subcommands().empty()) return;
    slot->name = "simulate";
    slot->run = [flags] {
      const Result<> run = RunSimulate(*flags);
      return run ? kExitSuccess : ReportError("simulate", run.error());
    };
  });
}

}  // namespace quire::cli
