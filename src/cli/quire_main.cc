// The program `quire`. Each command is in a file of its own, see command.h.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/help_formatter.h"
#include "cli/units.h"

namespace quire::cli {
namespace {

constexpr const char* kDescription =
    "quire: language models on CPUs, for many users at once.\n\n"
    "  quire serve                         the demo model behind an OpenAI-compatible API\n"
    "  quire chat models/Qwen3-0.6B        talk to a model in the terminal\n"
    "  quire run model.gguf -p \"Once\"      complete a text";

constexpr const char* kFooter =
    "A MODEL is a Hugging Face folder (config.json, *.safetensors, tokenizer.json) or a .gguf file.\n"
    "A SIZE is 4GiB, 512MiB, 4GB or bytes; a TIME is 250ms, 30s, 5m, 1h or seconds. Defaults stand in [].\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage. `quire COMMAND --help` explains a command.";

// The innermost command that the user named.
const CLI::App* ChosenCommand(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string FullName(const CLI::App* command) {
  const CLI::App* parent = command->get_parent();
  return (parent == nullptr ? "" : FullName(parent) + " ") + command->get_name();
}

int ReportUsage(const CLI::App& app, std::string_view message) {
  const std::string command = FullName(ChosenCommand(&app));
  fmt::print(stderr, "{}: {}\n`{} --help` lists what it takes.\n", command, message, command);
  return kExitUsage;
}

// Model files are read through memory maps: one that is cut short meanwhile ends in this signal, and there is nothing to
// go on with.
void ExplainBusError() {
  struct sigaction action = {};
  action.sa_handler = [](int) {
    constexpr std::string_view kWords = "quire: a model file became shorter while it was read, or the memory failed\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWords.data(), kWords.size());
    ::_exit(kExitFailure);
  };
  ::sigaction(SIGBUS, &action, nullptr);
}

int Main(int argc, char** argv) {
  ExplainBusError();
  CLI::App app(kDescription, "quire");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kFooter);
  app.set_version_flag("--version", "quire " QUIRE_VERSION, "print the version");
  app.set_help_flag("-h,--help", "print this help");

  CommandSlot slot;
  AddServeCommand(&app, &slot);
  AddChatCommand(&app, &slot);
  AddRunCommand(&app, &slot);
  AddBenchCommand(&app, &slot);
  AddSimulateCommand(&app, &slot);
  AddInspectCommand(&app, &slot);
  AddQuantizeCommand(&app, &slot);
  AddPackCommand(&app, &slot);
  AddPerplexityCommand(&app, &slot);
  AddVerifyCommand(&app, &slot);
  AddEngineCommand(&app, &slot);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ExtrasError&) {
    // CLI11's own message lists them backwards.
    return ReportUsage(app, fmt::format("unexpected: {}", fmt::join(app.remaining(true), " ")));
  } catch (const CLI::ParseError& error) {
    return ReportUsage(app, error.what());
  }
  if (!slot.run) {
    fmt::print(stderr, "{}", ChosenCommand(&app)->help());
    return kExitUsage;
  }
  const int status = slot.run();
  // A full disk shows only when the buffers are emptied.
  if (status == kExitSuccess && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    fmt::print(stderr, "quire {}: cannot write to standard output\n", slot.name);
    return kExitFailure;
  }
  return status;
}

}  // namespace

int ReportError(std::string_view command, const Error& error) {
  const std::string flag = error.param.empty() ? "" : FlagOfField(error.param) + ": ";
  fmt::print(stderr, "quire {}: {}{}\n", command, flag, Printable(error.message));
  return error.param.empty() ? kExitFailure : kExitUsage;
}

}  // namespace quire::cli

int main(int argc, char** argv) {
  try {
    return quire::cli::Main(argc, argv);
  } catch (const std::exception& error) {  // of a library, where it was not expected
    fmt::print(stderr, "quire: {}\n", error.what());
    return quire::cli::kExitFailure;
  }
}
