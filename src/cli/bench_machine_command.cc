// `quire bench roofline` and `quire bench kernels`: what the machine can do at best, and how near the kernels come.
#include <cstdio>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_topology.h"
#include "base/thread_pool.h"
#include "bench/kernel_speed.h"
#include "bench/roofline.h"
#include "cli/command.h"
#include "cli/config_visitor.h"
#include "cli/model_location.h"
#include "kernels/kernel_cases.h"
#include "kernels/kernel_table.h"

namespace quire::cli {
namespace {

constexpr int kThreadsMax = 1024;
constexpr int kRepeatsMax = 1000;

struct MachineFlags {
  int num_threads = 0;
  int repeats = 7;
  std::int64_t working_set_bytes = std::int64_t{512} << 20;
  bool json = false;
  bool from_stdin = false;  // of the roofline

  Result<> Validate() const {
    if (num_threads < 0 || num_threads > kThreadsMax) {
      return FailParam("threads", "{} threads; 0 to {} are possible", num_threads, kThreadsMax);
    }
    if (repeats < 1 || repeats > kRepeatsMax) {
      return FailParam("repeats", "{} repeats; 1 to {} are possible", repeats, kRepeatsMax);
    }
    if (working_set_bytes < 0) return FailParam("working-set", "a working set has at least 0 bytes");
    return {};
  }
};

template <typename Visitor>
void VisitFields(MachineFlags& config, Visitor& visitor) {
  visitor.Field("threads", config.num_threads, "threads that compute; 0: one for each core that may be used");
  visitor.Field("repeats", config.repeats, "rounds of measurement; medians are reported");
  visitor.Field("working-set", Bytes(config.working_set_bytes),
                "memory that is read in turn; several times the last-level cache, so that it does not help");
}

std::unique_ptr<ThreadPool> MakePool(int wanted) {
  const CpuTopology topology = DetectCpuTopology();
  const int num_threads = wanted > 0 ? wanted : topology.num_threads;
  return std::make_unique<ThreadPool>(num_threads,
                                      num_threads == topology.num_threads ? topology.thread_cpus : std::vector<int>{});
}

Result<> RunRoofline(const MachineFlags& flags) {
  QUIRE_TRY_VOID(flags.Validate());
  const std::unique_ptr<ThreadPool> pool = MakePool(flags.num_threads);
  QUIRE_TRY(bench::Roofline roofline,
            bench::Roofline::Create(pool.get(), static_cast<std::size_t>(flags.working_set_bytes)));
  const auto measure = [&] { return bench::MeasureRoofline(&roofline, pool->num_threads(), flags.repeats); };
  if (!flags.from_stdin) {
    fmt::print("{}\n", flags.json ? measure().ToJson() : measure().ToText());
    return {};
  }
  for (std::string line; std::getline(std::cin, line);) {
    fmt::print("{}\n", measure().ToJson());
    std::fflush(stdout);
  }
  return {};
}

struct KernelFlags {
  MachineFlags machine;
  bench::KernelSpeedOptions options;
  std::vector<std::string> format_names;
};

// "f32, f16, …"
std::string FormatNames() {
  std::string names;
  for (const kernels::WeightFormat format : kernels::kAllWeightFormats) {
    names += (names.empty() ? "" : ", ") + std::string(kernels::Traits(format).name);
  }
  return names;
}

Result<kernels::WeightFormat> ParseFormat(const std::string& name) {
  for (const kernels::WeightFormat format : kernels::kAllWeightFormats) {
    if (kernels::Traits(format).name == name) return format;
  }
  return FailParam("format", "unknown weight format \"{}\"; known are {}", name, FormatNames());
}

// The names in the table of real shapes: of models, or of projections.
std::set<std::string_view> ShapeNames(std::string_view kernels::ProjectionShape::* name) {
  std::set<std::string_view> names;
  for (const kernels::ProjectionShape& shape : kernels::RealProjections()) names.insert(shape.*name);
  return names;
}

// The shape that the flags ask for is one that is known.
Result<> CheckShape(const bench::KernelSpeedOptions& options) {
  const auto models = ShapeNames(&kernels::ProjectionShape::model);
  const auto projections = ShapeNames(&kernels::ProjectionShape::name);
  if (!options.model.empty() && !models.contains(options.model)) {
    return FailParam("model", "unknown model \"{}\"; known are {}", options.model, fmt::join(models, ", "));
  }
  if (!options.projection.empty() && !projections.contains(options.projection)) {
    return FailParam("projection", "unknown projection \"{}\"; known are {}", options.projection,
                     fmt::join(projections, ", "));
  }
  return {};
}

Result<> RunKernels(KernelFlags flags) {
  QUIRE_TRY_VOID(CheckShape(flags.options));
  QUIRE_TRY_VOID(flags.machine.Validate());
  for (const std::string& name : flags.format_names) {
    QUIRE_TRY(const kernels::WeightFormat format, ParseFormat(name));
    flags.options.formats.push_back(format);
  }
  if (flags.options.isas.empty()) {
    if (const auto tier = EnvironmentVariable("QUIRE_ISA")) flags.options.isas.push_back(*tier);
  }
  if (flags.options.isas == std::vector<std::string>{"all"}) {
    flags.options.isas.clear();
    for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
      // The specification is hundreds of times slower: only when it is named.
      if (table != &kernels::ReferenceKernels()) flags.options.isas.emplace_back(table->isa);
    }
  }
  for (const std::int64_t count : flags.options.row_counts) {
    if (count < 1 || count > 65536) return FailParam("rows", "{} rows; 1 to 65536 are possible", count);
  }
  flags.options.repeats = flags.machine.repeats;
  flags.options.working_set_bytes = static_cast<std::size_t>(flags.machine.working_set_bytes);
  const std::unique_ptr<ThreadPool> pool = MakePool(flags.machine.num_threads);
  QUIRE_TRY(const std::vector<bench::KernelSpeedRow> rows, bench::RunKernelSpeed(pool.get(), flags.options));
  fmt::print("{}\n", flags.machine.json ? bench::KernelSpeedJson(rows) : bench::KernelSpeedText(rows));
  return {};
}

}  // namespace

void AddMachineBenches(CLI::App* bench, CommandSlot* slot) {
  CLI::App* roofline = bench->add_subcommand("roofline",
                                             "the limits of this machine: memory bandwidth, dot products\n\n"
                                             "  quire bench roofline --json");
  auto machine = std::make_shared<MachineFlags>();  // shared by the parser's callback and the flags that fill it
  roofline->add_flag("--json", machine->json, "one JSON object instead of lines");
  roofline->add_flag("--stdin", machine->from_stdin,
                     "measure once for each line of standard input, until it ends, and answer each with JSON");
  AddFlags(*machine, roofline, "Measurement");
  SetRun(roofline, slot, "bench roofline", [machine] {
    const Result<> run = RunRoofline(*machine);
    return run ? kExitSuccess : ReportError("bench roofline", run.error());
  });

  CLI::App* kernels =
      bench->add_subcommand("kernels",
                            "the matrix kernels on the shapes of real models, as a fraction of the machine's limits\n\n"
                            "  quire bench kernels --model qwen2.5-0.5b --format int8g32 --rows 1,512\n"
                            "  quire bench kernels --isa all --projection down_proj --json");
  auto flags = std::make_shared<KernelFlags>();  // likewise
  kernels->add_flag("--json", flags->machine.json, "one JSON array instead of the table");
  kernels
      ->add_option("--isa", flags->options.isas,
                   "tiers, separated by commas, or all that this CPU has; default: QUIRE_ISA, or the best")
      ->delimiter(',')
      ->group("Cases");
  kernels
      ->add_option("--format", flags->format_names,
                   "packed weight formats, separated by commas, of " + FormatNames() + "; default: all")
      ->delimiter(',')
      ->group("Cases");
  kernels->add_option("--rows", flags->options.row_counts, "rows of activations, separated by commas [1,8,32,512]")
      ->delimiter(',')
      ->group("Cases");
  kernels
      ->add_option(
          "--model", flags->options.model,
          fmt::format("whose shapes: {}; default: all", fmt::join(ShapeNames(&kernels::ProjectionShape::model), ", ")))
      ->group("Cases");
  kernels
      ->add_option("--projection", flags->options.projection,
                   fmt::format("one of {}; default: all but the output matrix lm_head, which takes long",
                               fmt::join(ShapeNames(&kernels::ProjectionShape::name), ", ")))
      ->group("Cases");
  AddFlags(flags->machine, kernels, "Measurement");
  SetRun(kernels, slot, "bench kernels", [flags] {
    const Result<> run = RunKernels(*flags);
    return run ? kExitSuccess : ReportError("bench kernels", run.error());
  });
}

}  // namespace quire::cli
