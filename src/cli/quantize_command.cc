// `quire quantize`: writes a model in another storage type.
#include <cstdio>
#include <system_error>

#include "base/clock.h"
#include "base/cpu_topology.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "cli/units.h"
#include "weights/quantize.h"

namespace quire::cli {
namespace {

constexpr int kThreadsMax = 1024;

struct QuantizeFlags {
  std::filesystem::path input, output;
  std::string type = "Q8_0";
  int num_threads = 0;
  bool force = false;
};

Result<> Quantize(const QuantizeFlags& flags) {
  if (flags.num_threads < 0 || flags.num_threads > kThreadsMax) {
    return FailParam("threads", "{} threads; 0 to {} are possible", flags.num_threads, kThreadsMax);
  }
  std::error_code ignored;
  if (flags.output.extension() != ".gguf") {
    return Fail(ErrorCode::kInvalidArgument, "{} does not end in .gguf, which is what is written",
                flags.output.string());
  }
  if (std::filesystem::exists(flags.output, ignored) && !flags.force) {
    return Fail(ErrorCode::kInvalidArgument, "{} exists; --force replaces it", flags.output.string());
  }
  if (std::filesystem::equivalent(flags.input, flags.output, ignored)) {
    return Fail(ErrorCode::kInvalidArgument, "{} is the input and the output", flags.output.string());
  }
  CpuTopology topology = DetectCpuTopology();
  const int num_threads = flags.num_threads > 0 ? flags.num_threads : topology.num_threads;
  ThreadPool pool(num_threads, num_threads == topology.num_threads ? topology.thread_cpus : std::vector<int>{});
  const SteadyClock clock;
  const TimePoint start = clock.Now();
  ProgressBar bar("quantizing", Terminal::Of(stderr), &clock);
  weights::QuantizeOptions options{.type = flags.type};
  options.progress = [&](std::int64_t done, std::int64_t total, std::string_view) { bar.Update(done, total); };
  QUIRE_TRY(const weights::QuantizeSummary summary, weights::QuantizeModel(flags.input, flags.output, options, &pool));
  bar.Finish();
  for (const std::string& note : summary.notes) fmt::print("note: {}\n", note);
  fmt::print(
      "{}: {} instead of {} ({:.2f} of it), in {}\n", flags.output.string(), FormatBytes(summary.output_bytes),
      FormatBytes(summary.source_bytes),
      static_cast<double>(summary.output_bytes) / static_cast<double>(std::max<std::int64_t>(summary.source_bytes, 1)),
      FormatSeconds(std::chrono::duration<double>(clock.Now() - start).count()));
  return {};
}

}  // namespace

void AddQuantizeCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "quantize",
      "write a model in another storage type, as one GGUF file\n\n"
      "  quire quantize Qwen3-0.6B qwen3-0.6b-q4_k_m.gguf --type Q4_K_M\n"
      "  quire quantize model-f16.gguf model-q8_0.gguf\n\n"
      "The file holds the tokenizer and the chat template too; quire and llama.cpp load it. Bits per weight:\n"
      "F32 32; F16, BF16 16; Q8_0 8.5; Q6_K 6.6; Q5_1 6; Q5_K_M about 5.7; Q5_0 5.5; Q4_1 5; Q4_K_M about 4.9; Q4_0, "
      "IQ4_NL\n"
      "4.5; Q3_K_M about 3.9; Q2_K about 3.2 (norms F32, the output matrix Q6_K).\n"
      "Rows that a type's blocks do not divide are stored in another one, which a note says.");
  auto flags = std::make_shared<QuantizeFlags>();  // shared by the parser's callback and the flags that fill it
  command
      ->add_option_function<std::string>(
          "input", [flags](const std::string& text) { flags->input = text; }, "a Hugging Face folder or a .gguf file")
      ->required();
  command
      ->add_option_function<std::string>(
          "output", [flags](const std::string& text) { flags->output = text; }, "the .gguf file to write")
      ->required();
  command
      ->add_option("--type", flags->type, "one of " + weights::GgufFileTypeNames() + "; int8 is Q8_0, int4 is Q4_K_M")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--threads", flags->num_threads, "threads that compute; 0: one for each core that may be used")
      ->capture_default_str();
  command->add_flag("--force", flags->force, "replace an output that exists");
  SetRun(command, slot, "quantize", [flags] {
    const Result<> quantized = Quantize(*flags);
    return quantized ? kExitSuccess : ReportError("quantize", quantized.error());
  });
}

}  // namespace quire::cli
