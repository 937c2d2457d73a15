// `quire bench papers`: claims of papers, tried on this machine with this engine.
#include <cstdio>
#include <memory>

#include "bench/papers/paper.h"
#include "bench/papers/real_rig.h"
#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/model_location.h"
#include "weights/atomic_file.h"

namespace quire::cli {
namespace {

struct PapersFlags {
  std::string name;
  std::filesystem::path json;
  engine::EngineOptions load;
};

Result<> RunPapers(PapersFlags flags) {
  QUIRE_TRY_VOID(CompleteOptions(&flags.load));
  QUIRE_TRY(const engine::LoadedModel loaded, LoadModelInProcess(flags.load));
  const Terminal terminal = Terminal::Of(stderr);
  bench::RealRig rig(&loaded, [&](int num_before) {
    if (terminal.is_tty) fmt::print(stderr, "\r\x1b[K{}: run {}", flags.name, num_before + 1);
  });
  const Result<bench::PaperReport> report = bench::RunPaperExperiment(flags.name, &rig);
  if (terminal.is_tty) fmt::print(stderr, "\r\x1b[K");
  if (!report) return std::unexpected(report.error());
  fmt::print("{}, {} weights; {}\n{}", flags.load.model.string(), loaded.model->weight_formats(), loaded.description,
             report->ToTable());
  if (flags.json.empty()) return {};
  QUIRE_TRY(weights::AtomicFile file, weights::AtomicFile::Create(flags.json));
  QUIRE_TRY_VOID(file.Write(report->ToJson() + "\n"));
  return file.Commit();
}

}  // namespace

void AddPapersBench(CLI::App* bench, CommandSlot* slot) {
  std::string names;
  for (const bench::PaperExperiment& experiment : bench::PaperExperiments()) {
    names += (names.empty() ? "" : ", ") + std::string(experiment.name);
  }
  CLI::App* command = bench->add_subcommand("papers",
                                            "a claim of a paper, tried on this machine with this engine\n\n"
                                            "  quire bench papers radix --json radix.json\n"
                                            "  ./run bench papers radix       makes the plot, too\n\n"
                                            "NAME is one of " +
                                                names + ". Nothing else should run meanwhile.");
  auto flags = std::make_shared<PapersFlags>();  // shared by the parser's callback and the flags that fill it
  const auto take_name = [flags](const std::string& name) {
    const auto found = bench::FindPaperExperiment(name);
    if (!found) throw CLI::ValidationError(found.error().message);  // CLI11's way; Main catches it
    flags->name = name;
  };
  command->add_option_function<std::string>("name", take_name, "of the experiment")->type_name("NAME")->required();
  command
      ->add_option_function<std::string>(
          "--json", [flags](const std::string& text) { flags->json = text; }, "write the figures to a file")
      ->type_name("FILE");
  FlagVisitor engine(command, "Engine");
  command
      ->add_option_function<std::string>(
          "--model", [flags](const std::string& text) { flags->load.model = text; },
          "a Hugging Face folder or a .gguf file (default: the demo model)")
      ->type_name("PATH")
      ->group("Engine");
  AddComputeFields(&flags->load, &engine);
  SetRun(command, slot, "bench papers", [flags] {
    const Result<> run = RunPapers(*flags);
    return run ? kExitSuccess : ReportError("bench papers", run.error());
  });
}

}  // namespace quire::cli
