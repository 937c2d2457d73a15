// The commands of the program, one file each. A command adds itself and its flags to the parser; when the user chose
// it, it leaves in the slot what is to be run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace quire::cli {

// How the program ends.
inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;  // it failed; standard error says why
inline constexpr int kExitUsage = 2;    // a flag or an argument is wrong

struct CommandSlot {
  std::string_view name;
  std::function<int()> run;
};

void AddServeCommand(CLI::App* app, CommandSlot* slot);
void AddEngineCommand(CLI::App* app, CommandSlot* slot);
void AddChatCommand(CLI::App* app, CommandSlot* slot);
void AddRunCommand(CLI::App* app, CommandSlot* slot);
void AddBenchCommand(CLI::App* app, CommandSlot* slot);
// The benchmarks that need no model; part of AddBenchCommand.
void AddMachineBenches(CLI::App* bench, CommandSlot* slot);
// The load generator and its curves over servers; likewise.
void AddBenchServe(CLI::App* bench, CommandSlot* slot);
void AddBenchSweep(CLI::App* bench, CommandSlot* slot);
// The experiments that papers report; likewise.
void AddPapersBench(CLI::App* bench, CommandSlot* slot);
void AddSimulateCommand(CLI::App* app, CommandSlot* slot);
void AddVerifyCommand(CLI::App* app, CommandSlot* slot);
void AddQuantizeCommand(CLI::App* app, CommandSlot* slot);
void AddPackCommand(CLI::App* app, CommandSlot* slot);
void AddPerplexityCommand(CLI::App* app, CommandSlot* slot);
void AddInspectCommand(CLI::App* app, CommandSlot* slot);

// "quire serve: --max-model-len: …" on standard error. An error that blames a field is the user's (kExitUsage).
int ReportError(std::string_view command, const Error& error);

// Registers what a command does once the whole command line has been read.
template <typename Run>
void SetRun(CLI::App* command, CommandSlot* slot, std::string_view name, Run run) {
  command->callback([slot, name, run] {
    slot->name = name;
    slot->run = run;
  });
}

}  // namespace quire::cli
