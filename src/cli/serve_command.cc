// `quire serve`: the front end, with an engine process that it supervises.
#include <signal.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <ranges>

#include "base/log.h"
#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/model_location.h"
#include "cli/progress_bar.h"
#include "cli/units.h"
#include "engine/loader.h"
#include "engine/text_side.h"
#include "server/server.h"
#include "wire/supervised_engine.h"

namespace quire::cli {
namespace {

struct ServeFlags {
  engine::EngineOptions engine;
  server::ServerConfig server;
  wire::SupervisorConfig supervisor;
  std::vector<std::string> served_model_names;
  std::string log_level = "info";
};

// Tells the user how far things are: the model loads in another process while this one listens already, so that
// `ready` is printed by whichever of the two comes last. Its methods are called from several threads.
class Narrator {
 public:
  Narrator(std::string model_name, std::string model_path, bool needs_key, const Clock* clock)
      : model_name_(std::move(model_name)),
        needs_key_(needs_key),
        bar_("loading " + model_path, Terminal::Of(stderr), clock) {}

  void OnListening(const std::string& url) {
    const std::lock_guard lock(mutex_);
    url_ = url;
    output_.Write(fmt::format("listening on {}\n", url));
    if (info_) PrintReady();
  }
  void OnProgress(const wire::LoadProgress& progress) {
    const std::lock_guard lock(mutex_);
    bar_.Update(progress.done_bytes, progress.total_bytes);
  }
  void OnReady(const EngineInfo& info) {
    const std::lock_guard lock(mutex_);
    bar_.Finish();
    if (info_) {
      spdlog::info("the engine is ready again after {}", FormatSeconds(info.load_seconds));
      return;
    }
    info_ = info;
    if (!url_.empty()) PrintReady();
  }
  void OnDeath(const wire::EngineDeath& death) {
    const std::lock_guard lock(mutex_);
    bar_.Finish();
    if (!death.restart_in) return;  // the command ends, and says why
    if (death.is_orderly) {
      spdlog::info("the engine process has drained and ended; starting a new one in {}",
                   ExactDuration(*death.restart_in));
    } else {
      spdlog::error("the engine process {}; its requests have failed; starting it again in {}", death.what,
                    ExactDuration(*death.restart_in));
    }
  }

 private:
  void PrintReady() {
    std::string text = fmt::format("\n  model     {}: {}, loaded in {}\n", model_name_, DescribeModel(*info_),
                                   FormatSeconds(info_->load_seconds));
    text += fmt::format("  compute   {}\n", DescribeCompute(*info_));
    text += fmt::format("  sequences {}\n", DescribeContext(*info_));
    text += fmt::format("  address   {}\n\nTry:\n\n", url_);
    text += fmt::format("  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n", url_);
    if (needs_key_) text += "    -H \"Authorization: Bearer $QUIRE_API_KEY\" \\\n";
    text += fmt::format(
        "    -d '{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello!\"}}]}}'\n\n",
        model_name_);
    text += "Ctrl-C ends the server when the running requests have finished; a second one at once.\n";
    output_.Write(text);
  }

  const std::string model_name_;
  const bool needs_key_;
  const Terminal output_ = Terminal::Of(stdout);
  std::mutex mutex_;  // guards everything below
  ProgressBar bar_;
  std::string url_;
  std::optional<EngineInfo> info_;
};

wire::SupervisorConfig EngineProcess(const ServeFlags& flags) {
  wire::SupervisorConfig config = flags.supervisor;
  config.program = "/proc/self/exe";
  config.arguments = {"quire",       "engine",
                      "--fd",        std::to_string(wire::ChildProcess::kSocketFd),
                      "--config",    ConfigToJson(flags.engine),
                      "--log-level", flags.log_level};
  return config;
}

server::ServedModel MakeServedModel(const ServeFlags& flags, engine::TextSide text) {
  server::ServedModel model;
  model.names = flags.served_model_names;
  if (model.names.empty()) model.names = {text.name};
  // Shared by this function's caller and the server's worker threads.
  model.tokenizer = std::shared_ptr<const text::Tokenizer>(std::move(text.tokenizer));
  model.chat_template = std::make_shared<const text::ChatTemplate>(std::move(text.chat_template));
  model.defaults = {.temperature = text.generation_config.temperature,
                    .top_p = text.generation_config.top_p,
                    .min_p = text.generation_config.min_p,
                    .repetition_penalty = text.generation_config.repetition_penalty,
                    .top_k = text.generation_config.top_k};
  return model;
}

Result<> Serve(ServeFlags flags) {
  QUIRE_TRY_VOID(InitLog(flags.log_level, "server"));
  ::signal(SIGPIPE, SIG_IGN);  // who reads our output may end before us
  if (flags.server.api_keys.empty()) {
    if (const auto keys = EnvironmentVariable("QUIRE_API_KEY")) {  // several, separated by commas, as in the flag
      for (const auto key : std::views::split(*keys, ',')) flags.server.api_keys.emplace_back(key.begin(), key.end());
    }
  }
  QUIRE_TRY_VOID(CompleteOptions(&flags.engine));
  QUIRE_TRY_VOID(flags.server.Validate());
  spdlog::debug("engine: {}", ConfigToLog(flags.engine));
  spdlog::debug("server: {}", ConfigToLog(flags.server));
  QUIRE_TRY(engine::TextSide text, engine::LoadTextSide(flags.engine.model));
  if (!text.has_own_template) spdlog::warn("the model has no chat template; ChatML stands in");
  server::ServedModel model = MakeServedModel(flags, std::move(text));

  const SteadyClock clock;
  Narrator narrator(model.names.front(), flags.engine.model.string(), !flags.server.api_keys.empty(), &clock);
  wire::SupervisedEngine::Observer observer;
  observer.on_start = [](pid_t pid) { spdlog::info("engine process {} started", pid); };
  observer.on_progress = [&](const wire::LoadProgress& progress) { narrator.OnProgress(progress); };
  observer.on_ready = [&](const EngineInfo& info) { narrator.OnReady(info); };
  observer.on_death = [&](const wire::EngineDeath& death) { narrator.OnDeath(death); };
  wire::SupervisedEngine engine(EngineProcess(flags), std::move(observer));
  model.engine = &engine;
  // The engine starts when all that the front end can refuse is in order, and the address is had.
  const Result<> served = server::Run(flags.server, std::move(model), [&](const std::string& url) {
    narrator.OnListening(url);
    engine.Start();
  });
  // PROC-02: an engine that is gone for good makes the whole program fail, and says why.
  if (auto failure = engine.failure()) return std::unexpected(*std::move(failure));
  return served;
}

}  // namespace

void AddServeCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "serve",
      "serve a model over an OpenAI-compatible HTTP API\n\n"
      "  quire serve                                         the demo model on http://127.0.0.1:8000\n"
      "  quire serve Qwen3-0.6B --port 9000                  a Hugging Face folder\n"
      "  quire serve llama-3.2-1b-q4_k_m.gguf --kv-memory 2GiB --max-model-len 8192\n"
      "  QUIRE_API_KEY=secret quire serve --host 0.0.0.0     for others too, with a key\n\n"
      "The engine runs in a process of its own; when it dies, its requests fail, /health turns 503, and it is\n"
      "started again. SIGTERM or Ctrl-C ends the server after the running requests, with status 0. Status 1: the\n"
      "address cannot be had, the model cannot be loaded, or the engine died more than 5 times in 10 minutes.");
  auto flags = std::make_shared<ServeFlags>();  // shared by the parser's callback and the flags that fill it
  AddFlags(flags->engine, command, "Engine");
  command
      ->add_option("--served-model-name", flags->served_model_names,
                   "names that clients may use, the first in responses; default: the model's file name")
      ->delimiter(',')
      ->group("Server");
  AddFlags(flags->server, command, "Server");
  AddFlags(flags->supervisor, command, "Server");
  command->add_option("--log-level", flags->log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str()
      ->group("Server");
  SetRun(command, slot, "serve", [flags] {
    const Result<> served = Serve(*flags);
    return served ? kExitSuccess : ReportError("serve", served.error());
  });
}

}  // namespace quire::cli
