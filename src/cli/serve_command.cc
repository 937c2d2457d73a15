// `quire serve`: the front end, with an engine process that it supervises, or with one for each of several models.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <ranges>

#include "base/log.h"
#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/model_location.h"
#include "cli/progress_bar.h"
#include "cli/served_models.h"
#include "cli/units.h"
#include "engine/loader.h"
#include "engine/text_side.h"
#include "server/server.h"
#include "wire/supervised_engine.h"

namespace quire::cli {
namespace {

struct ServeFlags {
  engine::EngineOptions engine;  // its model: see below
  server::ServerConfig server;
  server::ModelsConfig models_config;
  wire::SupervisorConfig supervisor;
  std::vector<std::string> models;  // NAME=PATH or PATH
  std::filesystem::path models_dir;
  bool manages_models = false;  // a flag was given that is about several models
  std::vector<std::string> served_model_names;
  std::string log_level = "info";
};

std::string CurlExample(const std::string& url, const std::string& model_name, bool needs_key) {
  std::string text =
      fmt::format("\nTry:\n\n  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n", url);
  if (needs_key) text += "    -H \"Authorization: Bearer $QUIRE_API_KEY\" \\\n";
  text +=
      fmt::format("    -d '{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello!\"}}]}}'\n\n",
                  model_name);
  return text + "Ctrl-C ends the server when the running requests have finished; a second one at once.\n";
}

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
    text += fmt::format("  address   {}\n", url_);
    output_.Write(text + CurlExample(url_, model_name_, needs_key_));
  }

  const std::string model_name_;
  const bool needs_key_;
  const Terminal output_ = Terminal::Of(stdout);
  std::mutex mutex_;  // guards everything below
  ProgressBar bar_;
  std::string url_;
  std::optional<EngineInfo> info_;
};

Result<> ServeOne(ServeFlags flags) {
  QUIRE_TRY_VOID(CompleteOptions(&flags.engine));
  spdlog::debug("engine: {}", ConfigToLog(flags.engine));
  QUIRE_TRY(engine::TextSide text, engine::LoadTextSide(flags.engine.model));
  if (!text.has_own_template) spdlog::warn("the model has no chat template; ChatML stands in");
  std::vector<std::string> names = flags.served_model_names;
  if (names.empty()) names = {text.name};
  server::ServedModel model = MakeServedModel(std::move(text), std::move(names));

  const SteadyClock clock;
  Narrator narrator(model.names.front(), flags.engine.model.string(), !flags.server.api_keys.empty(), &clock);
  wire::SupervisedEngine::Observer observer;
  observer.on_start = [](pid_t pid) { spdlog::info("engine process {} started", pid); };
  observer.on_progress = [&](const wire::LoadProgress& progress) { narrator.OnProgress(progress); };
  observer.on_ready = [&](const EngineInfo& info) { narrator.OnReady(info); };
  observer.on_death = [&](const wire::EngineDeath& death) { narrator.OnDeath(death); };
  Tracer tracer(&clock);
  wire::SupervisedEngine engine(EngineProcess(flags.engine, flags.supervisor, flags.log_level), std::move(observer),
                                &tracer);
  model.engine = &engine;
  // The engine starts when all that the front end can refuse is in order, and the address is had.
  const Result<> served = server::Run(
      flags.server, std::move(model),
      [&](const std::string& url) {
        narrator.OnListening(url);
        engine.Start();
      },
      &tracer);
  // PROC-02: an engine that is gone for good makes the whole program fail, and says why.
  if (auto failure = engine.failure()) return std::unexpected(*std::move(failure));
  return served;
}

std::string DescribeModels(const std::vector<NamedModel>& models, bool at_start) {
  constexpr std::size_t kShownMax = 8;
  std::string text;
  std::size_t count = 0;
  for (const NamedModel& model : models) {
    if (model.load_at_start != at_start || ++count > kShownMax) continue;
    text += (count > 1 ? ", " : "") + Printable(model.name);
  }
  return count > kShownMax ? fmt::format("{} and {} more", text, count - kShownMax) : text;
}

Result<> ServeSeveral(ServeFlags flags, std::vector<NamedModel> named) {
  if (!flags.served_model_names.empty()) {
    return FailParam("served_model_name", "several models are named by --model NAME=PATH");
  }
  QUIRE_TRY_VOID(flags.models_config.Validate());
  if (named.empty() && flags.models_dir.empty()) {
    QUIRE_TRY(std::filesystem::path demo, FindDemoModel());
    named.push_back({.name = {}, .path = std::move(demo)});
  }
  QUIRE_TRY(const std::vector<NamedModel> models, CollectModels(std::move(named), flags.models_dir));
  QUIRE_TRY(std::vector<server::ModelSpec> specs,
            MakeModelSpecs(models, flags.engine, flags.supervisor, flags.log_level, &flags.models_config));
  spdlog::debug("engines: {}", ConfigToLog(flags.engine));
  spdlog::debug("models: {}", ConfigToLog(flags.models_config));
  return server::Run(flags.server, flags.models_config, std::move(specs), [&](const std::string& url) {
    const std::string at_start = DescribeModels(models, true), later = DescribeModels(models, false);
    std::string text = fmt::format("listening on {}\n\n", url);
    if (!at_start.empty()) text += fmt::format("  at start   {}\n", at_start);
    if (!later.empty()) text += fmt::format("  on demand  {}\n", later);
    text += fmt::format("  memory     {} for weights, keys and values of at most {} models\n",
                        FormatBytes(flags.models_config.memory_bytes), flags.models_config.loaded_max);
    text += CurlExample(url, models.front().name, !flags.server.api_keys.empty());
    Terminal::Of(stdout).Write(text);
  });
}

Result<> Serve(ServeFlags flags) {
  QUIRE_TRY_VOID(InitLog(flags.log_level, "server"));
  ::signal(SIGPIPE, SIG_IGN);  // who reads our output may end before us
  if (flags.server.api_keys.empty()) {
    if (const auto keys = EnvironmentVariable("QUIRE_API_KEY")) {  // several, separated by commas, as in the flag
      for (const auto key : std::views::split(*keys, ',')) flags.server.api_keys.emplace_back(key.begin(), key.end());
    }
  }
  QUIRE_TRY_VOID(flags.server.Validate());
  spdlog::debug("server: {}", ConfigToLog(flags.server));
  std::vector<NamedModel> models;
  for (const std::string& text : flags.models) {
    QUIRE_TRY(NamedModel model, ParseNamedModel(text));
    models.push_back(std::move(model));
  }
  if (flags.manages_models || models.size() > 1) return ServeSeveral(std::move(flags), std::move(models));
  if (!models.empty()) {
    flags.engine.model = models.front().path;
    if (!models.front().name.empty() && !flags.served_model_names.empty()) {
      return FailParam("served_model_name", "--model {} names the model already", flags.models.front());
    }
    if (!models.front().name.empty()) flags.served_model_names = {models.front().name};
  }
  return ServeOne(std::move(flags));
}

}  // namespace

void AddServeCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "serve",
      "serve models over an OpenAI-compatible HTTP API\n\n"
      "  quire serve                                         the demo model on http://127.0.0.1:8000\n"
      "  quire serve Qwen3-0.6B --port 9000                  a Hugging Face folder\n"
      "  quire serve llama-3.2-1b-q4_k_m.gguf --kv-memory 2GiB --max-model-len 8192\n"
      "  QUIRE_API_KEY=secret quire serve --host 0.0.0.0     for others too, with a key\n"
      "  quire serve --model small=Qwen3-0.6B --model large=llama-8b.gguf --memory 12GiB\n"
      "                                                      several, loaded when they are asked for and they fit\n"
      "  quire serve --models-dir models                     every model of a folder\n\n"
      "The engine runs in a process of its own; when it dies, its requests fail, /health turns 503, and it is\n"
      "started again. SIGTERM or Ctrl-C ends the server after the running requests, with status 0. Status 1: the\n"
      "address cannot be had, the model cannot be loaded, or the engine died more than 5 times in 10 minutes.");
  auto flags = std::make_shared<ServeFlags>();  // shared by the parser's callback and the flags that fill it
  AddFlags(flags->engine, command, "Engine");
  command->remove_option(command->get_option("--model"));
  command
      ->add_option("model,--model", flags->models,
                   "a Hugging Face folder or a .gguf file (default: the demo model); several are loaded at start as "
                   "far as they fit, and NAME=PATH gives a model another name")
      ->type_name("[NAME=]PATH");
  command
      ->add_option("--served-model-name", flags->served_model_names,
                   "names that clients may use, the first in responses; default: the model's file name")
      ->delimiter(',')
      ->group("Server");
  command
      ->add_option_function<std::string>(
          "--models-dir", [flags](const std::string& text) { flags->models_dir = text; },
          "a folder whose models (folders with a config.json, .gguf files) are served, each loaded when it is asked "
          "for")
      ->type_name("PATH")
      ->group("Models");
  AddFlags(flags->models_config, command, "Models");
  AddFlags(flags->server, command, "Server");
  AddFlags(flags->supervisor, command, "Server");
  command->add_option("--log-level", flags->log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str()
      ->group("Server");
  SetRun(command, slot, "serve", [flags, command] {
    const auto is_given = [&](const CLI::Option* option) {
      return option->get_group() == "Models" && option->count() > 0;
    };
    flags->manages_models = std::ranges::any_of(command->get_options(), is_given);
    const Result<> served = Serve(*flags);
    return served ? kExitSuccess : ReportError("serve", served.error());
  });
}

}  // namespace quire::cli
