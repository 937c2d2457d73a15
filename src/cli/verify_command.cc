// `quire verify`: whether this model on this machine gives every request the same bits under every schedule.
#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/model_location.h"
#include "cli/progress_bar.h"
#include "engine/loader.h"
#include "engine/verify.h"

namespace quire::cli {
namespace {

struct VerifyFlags {
  std::filesystem::path model;
  std::vector<std::string> tiers;
  kernels::KvDtype kv_dtype = kernels::KvDtype::kBf16;
  weights::Quantization quantization = weights::Quantization::kNone;
  engine::VerifyOptions options;
  int seed = 1;
};

Result<bool> Verify(VerifyFlags flags) {
  engine::EngineOptions load{.model = flags.model, .kv_dtype = flags.kv_dtype, .quantization = flags.quantization};
  if (flags.tiers.empty()) {
    if (const auto tier = EnvironmentVariable("QUIRE_ISA")) flags.tiers.push_back(*tier);
  }
  QUIRE_TRY_VOID(CompleteOptions(&load));
  for (const std::string& tier : flags.tiers) {
    auto kernels = kernels::SelectKernels(tier);
    if (!kernels) return FailParam("isa", "{}", kernels.error().message);
    flags.options.tiers.push_back(*kernels);
  }
  flags.options.seed = static_cast<std::uint64_t>(flags.seed);
  QUIRE_TRY_VOID(flags.options.Validate());

  QUIRE_TRY(const engine::LoadedModel loaded, LoadModelInProcess(load));
  const Terminal terminal = Terminal::Of(stderr);
  int num_rows = 0;
  flags.options.on_row = [&](const engine::VerifyRow& row) {
    if (terminal.is_tty)
      fmt::print(stderr, "\r\x1b[K{} schedules, the last: {}, {}", ++num_rows, row.isa, row.schedule);
  };
  const engine::VerifyReport report = engine::RunVerify(*loaded.model, flags.options);
  if (terminal.is_tty) fmt::print(stderr, "\r\x1b[K");
  fmt::print("{}\n", report.ToTable());
  const bool is_equal = std::ranges::all_of(report.rows, [](const auto& row) { return row.difference.empty(); });
  if (!is_equal) {
    fmt::print("NOT EQUAL: the output of a request depends on its schedule.\n");
  } else if (!report.ok()) {
    fmt::print("Equal, but this proves too little: a schedule did not do what it is for.\n");
  } else {
    fmt::print("Every request had the same ids and logprobs, to the bit, under all {} schedules.\n",
               report.rows.size());
  }
  return report.ok();
}

}  // namespace

void AddVerifyCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "verify",
      "check that outputs never depend on batching, caching, preemption or threads\n\n"
      "  quire verify Qwen3-0.6B\n"
      "  quire verify model.gguf --isa avx2 --kv-cache-dtype int8 --num-requests 64\n\n"
      "A mixed set of requests runs under many schedules: alone and in batches, whole prompts and chunks, cold and\n"
      "warm cache, too little memory, several threads. Ids and logprobs are compared bit for bit with the plainest\n"
      "of them. It prints a table, and exits with 1 when there is a difference.");
  auto flags = std::make_shared<VerifyFlags>();  // shared by the parser's callback and the flags that fill it
  command
      ->add_option_function<std::string>(
          "model,--model", [flags](const std::string& text) { flags->model = text; },
          "a Hugging Face folder or a .gguf file (default: the demo model)")
      ->type_name("PATH");
  command
      ->add_option("--isa", flags->tiers,
                   "kernel tiers, separated by commas; each is compared within itself. Default: QUIRE_ISA, or all that "
                   "this CPU has")
      ->delimiter(',');
  command
      ->add_option_function<std::string>(
          "--kv-cache-dtype",
          [flags](const std::string& text) {
            const auto dtype = engine::ParseKvDtype(text);
            if (!dtype) throw CLI::ValidationError("--kv-cache-dtype", dtype.error().message);
            flags->kv_dtype = *dtype;
          },
          "type of cached keys and values: auto (bf16), bf16, f32, fp8 (fp8_e4m3), int8 or int4")
      ->type_name("NAME")
      ->default_str("bf16");
  FlagVisitor visitor(command, command->option_defaults()->get_group());  // among the others
  visitor.Field("quantization", QuantizationChoice(flags->quantization), "quantise the model while it is loaded");
  command->add_option("--num-requests", flags->options.num_requests, "requests of a schedule")->capture_default_str();
  command->add_option("--max-tokens", flags->options.max_tokens, "tokens generated for each")->capture_default_str();
  command->add_option("--max-threads", flags->options.max_threads, "threads of the schedules with several")
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "of the requests")->capture_default_str();
  SetRun(command, slot, "verify", [flags] {
    const Result<bool> verified = Verify(*flags);
    if (!verified) return ReportError("verify", verified.error());
    return *verified ? kExitSuccess : kExitFailure;
  });
}

}  // namespace quire::cli
