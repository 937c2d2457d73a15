// `quire bench roofline` and `quire bench kernels`: what the machine can do at best, and how near the kernels come.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <span>
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
#include "engine/engine_options.h"
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

// A flag that says what is measured of some kernels only.
struct CaseFlag {
  const CLI::Option* option = nullptr;
  std::vector<std::string_view> kernels;
};

struct KernelFlags {
  MachineFlags machine;
  bench::KernelSpeedOptions options;
  std::vector<std::string> kernel_names, format_names, kv_dtype_names;
  std::vector<CaseFlag> case_flags;
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

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Which kernels are measured: those that are named, or all to which every other flag belongs.
Result<std::vector<std::string>> WantedKernels(const KernelFlags& flags) {
  const auto known = bench::MeasuredKernels();
  const bool is_named = !flags.kernel_names.empty() && flags.kernel_names != std::vector<std::string>{"all"};
  std::vector<std::string> wanted = flags.kernel_names;
  if (!is_named) wanted.assign(known.begin(), known.end());
  for (const std::string& name : wanted) {
    if (Contains(known, name)) continue;
    return FailParam("kernel", "unknown kernel \"{}\"; known are {}, and all", name, fmt::join(known, ", "));
  }
  for (const CaseFlag& flag : flags.case_flags) {
    if (flag.option->count() == 0) continue;
    const auto belongs = [&](const std::string& kernel) { return Contains(flag.kernels, kernel); };
    if (flags.kernel_names.empty()) std::erase_if(wanted, std::not_fn(belongs));
    if (std::ranges::none_of(wanted, belongs)) {
      return FailParam(flag.option->get_lnames().front(), "it is of {}, which the other flags leave out",
                       fmt::join(flag.kernels, ", "));
    }
  }
  return wanted;
}

// Numbers that a flag lists.
Result<> CheckNumbers(std::string_view flag, const std::vector<std::int64_t>& numbers, std::int64_t least,
                      std::int64_t most) {
  for (const std::int64_t number : numbers) {
    if (number < least || number > most) {
      return FailParam(std::string(flag), "{} is not possible; {} to {} are", number, least, most);
    }
  }
  return {};
}

// The sequences that attention is measured on.
Result<> CheckSequences(const bench::KernelSpeedOptions& options) {
  constexpr std::int64_t kTokensMax = 1 << 20, kSequencesMax = 4096;
  QUIRE_TRY_VOID(CheckNumbers("context", options.contexts, 1, kTokensMax));
  QUIRE_TRY_VOID(CheckNumbers("sequences", options.sequence_counts, 1, kSequencesMax));
  const auto [shortest, longest] = std::ranges::minmax(options.contexts);
  QUIRE_TRY_VOID(CheckNumbers("queries", options.query_counts, 1, shortest));
  if (options.prefixes == bench::KernelSpeedOptions{}.prefixes) return {};  // those that fit are measured
  QUIRE_TRY_VOID(CheckNumbers("prefix", options.prefixes, 0, longest - 1));
  if (std::ranges::max(options.prefixes) > 0 && std::ranges::max(options.sequence_counts) == 1) {
    return FailParam("prefix", "one sequence has nobody to share {} tokens with; --sequences says how many there are",
                     std::ranges::max(options.prefixes));
  }
  return {};
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
  QUIRE_TRY(flags.options.kernel_names, WantedKernels(flags));
  for (const std::string& name : flags.format_names) {
    QUIRE_TRY(const kernels::WeightFormat format, ParseFormat(name));
    flags.options.formats.push_back(format);
  }
  for (const std::string& name : flags.kv_dtype_names) {
    QUIRE_TRY(const kernels::KvDtype dtype, engine::ParseKvDtype(name));
    flags.options.kv_dtypes.push_back(dtype);
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
  QUIRE_TRY_VOID(CheckNumbers("rows", flags.options.row_counts, 1, 65536));
  QUIRE_TRY_VOID(CheckSequences(flags.options));
  flags.options.repeats = flags.machine.repeats;
  flags.options.working_set_bytes = static_cast<std::size_t>(flags.machine.working_set_bytes);
  const std::unique_ptr<ThreadPool> pool = MakePool(flags.machine.num_threads);
  QUIRE_TRY(const std::vector<bench::KernelSpeedRow> rows, bench::RunKernelSpeed(pool.get(), flags.options));
  fmt::print("{}\n", flags.machine.json ? bench::KernelSpeedJson(rows) : bench::KernelSpeedText(rows));
  return {};
}

// The flags that say which cases are measured.
void AddCaseFlags(CLI::App* command, KernelFlags* flags) {
  bench::KernelSpeedOptions& options = flags->options;
  const auto add = [&](const std::string& name, auto& field, const std::string& help) {
    return command->add_option(name, field, help)->delimiter(',')->group("Cases");
  };
  const auto add_for = [&](std::vector<std::string_view> kernels, const std::string& name, auto& field,
                           const std::string& help) {
    flags->case_flags.push_back({add(name, field, fmt::format("{}: {}", fmt::join(kernels, ", "), help)), kernels});
  };
  add("--kernel", flags->kernel_names,
      fmt::format("kernels, separated by commas, of {}, or all. Default: all, or those that the other flags belong to",
                  fmt::join(bench::MeasuredKernels(), ", ")));
  add("--isa", options.isas, "tiers, separated by commas, or all that this CPU has; default: QUIRE_ISA, or the best");
  add("--model", options.model,
      fmt::format("whose sizes: {}; default: all", fmt::join(ShapeNames(&kernels::ProjectionShape::model), ", ")));
  CLI::Option* rows =
      add("--rows", options.row_counts, "all but attention: rows or tokens, separated by commas [1,8,32,512]");
  std::vector<std::string_view> with_rows(bench::MeasuredKernels().begin(), bench::MeasuredKernels().end());
  std::erase(with_rows, "attention");
  flags->case_flags.push_back({rows, std::move(with_rows)});
  add_for({"gemm"}, "--format", flags->format_names,
          "packed weight formats, separated by commas, of " + FormatNames() + "; default: all");
  add_for({"gemm"}, "--projection", options.projection,
          fmt::format("one of {}; default: all but the output matrix lm_head, which takes long",
                      fmt::join(ShapeNames(&kernels::ProjectionShape::name), ", ")));
  add_for({"attention", "store_kv"}, "--kv-cache-dtype", flags->kv_dtype_names,
          "types of keys and values, separated by commas, of bf16, f32, fp8 (fp8_e4m3), int8, int4; default: all");
  add_for({"attention"}, "--sequences", options.sequence_counts, "numbers of sequences [1,32]");
  add_for({"attention"}, "--context", options.contexts, "tokens of each sequence, those of --prefix among them [1088]");
  add_for({"attention"}, "--queries", options.query_counts,
          "last tokens of each that attend: 1 generates, more are a chunk of a prompt [1]");
  add_for({"attention"}, "--prefix", options.prefixes,
          "tokens that all sequences begin with and have in common; such a batch is measured as a step computes it, "
          "and with each sequence computed alone [0,1024]");
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
                            "the kernels on the sizes of real models, as a fraction of the machine's limits\n\n"
                            "  quire bench kernels --model qwen2.5-0.5b --format int8g32 --rows 1,512\n"
                            "  quire bench kernels --isa all --projection down_proj --json\n"
                            "  quire bench kernels --kernel attention --sequences 32 --context 1088 --prefix 1024");
  auto flags = std::make_shared<KernelFlags>();  // likewise
  kernels->add_flag("--json", flags->machine.json, "one JSON array instead of the table");
  AddCaseFlags(kernels, flags.get());
  AddFlags(flags->machine, kernels, "Measurement");
  SetRun(kernels, slot, "bench kernels", [flags] {
    const Result<> run = RunKernels(*flags);
    return run ? kExitSuccess : ReportError("bench kernels", run.error());
  });
}

}  // namespace quire::cli
