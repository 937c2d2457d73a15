#include "cli/served_models.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/utf8.h"
#include "cli/config_fields.h"
#include "cli/model_location.h"
#include "cli/units.h"
#include "engine/memory_budget.h"
#include "engine/model_memory.h"

namespace quire::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kModelsMax = 256;  // each has a thread that waits
constexpr std::size_t kNameBytesMax = 200;
// Of the memory that is free at start, when nothing else is said: the front end, the working memory of engines and
// the page cache need some, too.
constexpr double kMemoryShare = 0.8;

bool HoldsModel(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "config.json", error)) return true;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    if (file->path().extension() == ".gguf") return true;
  }
  return false;
}

// A name as the name of a folder, another one for each; "org/a" → "org%2Fa".
std::string FolderName(const std::string& name) {
  std::string folder;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '_' || (c == '.' && !folder.empty());
    folder += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return folder;
}

}  // namespace

Result<NamedModel> ParseNamedModel(const std::string& text) {
  std::error_code ignored;
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || fs::exists(text, ignored)) return NamedModel{.name = {}, .path = text};
  NamedModel model{.name = text.substr(0, equals), .path = text.substr(equals + 1)};
  if (model.name.empty() || model.path.empty()) {
    return FailParam("model", "a model is a PATH or NAME=PATH, got {}", text);
  }
  return model;
}

Result<std::vector<NamedModel>> ListModels(const fs::path& folder) {
  std::vector<NamedModel> models;
  std::error_code error;
  fs::directory_iterator file(folder, error);
  for (const fs::directory_iterator end; !error && file != end; file.increment(error)) {
    const fs::path& path = file->path();
    if (path.filename().native().starts_with('.')) continue;
    std::error_code ignored;
    const bool is_folder = file->is_directory(ignored);
    if (is_folder ? !HoldsModel(path) : path.extension() != ".gguf") continue;
    // A link is called what it is called here, wherever it leads.
    models.push_back({.name = (is_folder ? path.filename() : path.stem()).string(), .path = path});
  }
  if (error) return FailParam("models_dir", "reading the folder {}: {}", folder.string(), error.message());
  std::ranges::sort(models, {}, &NamedModel::name);
  return models;
}

Result<std::vector<NamedModel>> CollectModels(std::vector<NamedModel> named, const fs::path& folder) {
  std::map<std::string, fs::path> paths;  // by name
  for (NamedModel& model : named) {
    if (model.name.empty()) model.name = engine::ModelName(model.path);
    model.load_at_start = true;
    const auto [other, is_new] = paths.emplace(model.name, model.path);
    if (is_new) continue;
    return FailParam("model", "{} and {} are both called {}: give one another name with --model NAME=PATH",
                     other->second.string(), model.path.string(), model.name);
  }
  const std::map<std::string, fs::path> named_paths = paths;
  std::vector<NamedModel> found;
  if (!folder.empty()) {
    QUIRE_TRY(found, ListModels(folder));
  }
  for (NamedModel& model : found) {
    if (named_paths.contains(model.name)) continue;
    const auto [other, is_new] = paths.emplace(model.name, model.path);
    if (!is_new) {
      return FailParam("models_dir", "{} and {} are both called {}", other->second.string(), model.path.string(),
                       model.name);
    }
    named.push_back(std::move(model));
  }
  if (named.empty()) return FailParam("models_dir", "there is no model in {}", folder.string());
  if (named.size() > kModelsMax) {
    return FailParam("models_dir", "{} models are too many; at most {} can be served", named.size(), kModelsMax);
  }
  for (const NamedModel& model : named) {
    if (model.name.size() <= kNameBytesMax && IsValidUtf8(model.name)) continue;
    return FailParam("model", "the name of {} is no text of at most {} bytes", Printable(model.path.string()),
                     kNameBytesMax);
  }
  return named;
}

server::ServedModel MakeServedModel(engine::TextSide text, std::vector<std::string> names) {
  server::ServedModel model;
  model.names = std::move(names);
  // Shared by whoever holds the model and the server's worker threads.
  model.tokenizer = std::shared_ptr<const text::Tokenizer>(std::move(text.tokenizer));
  model.chat_template = std::make_shared<const text::ChatTemplate>(std::move(text.chat_template));
  model.defaults = {.temperature = text.generation_config.temperature,
                    .top_p = text.generation_config.top_p,
                    .min_p = text.generation_config.min_p,
                    .repetition_penalty = text.generation_config.repetition_penalty,
                    .top_k = text.generation_config.top_k};
  return model;
}

wire::SupervisorConfig EngineProcess(const engine::EngineOptions& options, wire::SupervisorConfig supervisor,
                                     const std::string& log_level) {
  supervisor.program = "/proc/self/exe";
  supervisor.arguments = {
      "quire",       "engine", "--fd", std::to_string(wire::ChildProcess::kSocketFd), "--config", ConfigToJson(options),
      "--log-level", log_level};
  return supervisor;
}

namespace {

// What is logged about the engine of one of several models. Shared by its callbacks, which come one at a time.
wire::SupervisedEngine::Observer LogEngine(const std::string& name) {
  wire::SupervisedEngine::Observer observer;
  observer.on_start = [name](pid_t pid) { spdlog::info("model {}: engine process {} started", name, pid); };
  observer.on_ready = [name, was_ready = false](const EngineInfo& info) mutable {
    if (std::exchange(was_ready, true)) {
      spdlog::info("model {}: the engine is ready again after {}", name, FormatSeconds(info.load_seconds));
    }
  };
  observer.on_death = [name](const wire::EngineDeath& death) {
    if (!death.restart_in) return;  // the server says why the model is gone
    if (death.is_orderly) {
      spdlog::info("model {}: the engine process has drained and ended; starting a new one in {}", name,
                   ExactDuration(*death.restart_in));
    } else {
      spdlog::error("model {}: the engine process {}; starting it again in {}", name, death.what,
                    ExactDuration(*death.restart_in));
    }
  };
  return observer;
}

// One of several models, and the memory that it may take.
struct LoadableModel {
  std::string name;
  engine::EngineOptions options;
  wire::SupervisorConfig supervisor;
  std::string log_level;
  std::int64_t budget_bytes = 0;  // of all models
  std::int64_t kv_bytes_max = 0;  // unless the options say more

  Result<engine::ModelMemory> Measure() const {
    engine::EngineOptions measured = options;
    CompleteKvRedis(&measured);  // as the engine process will
    return engine::MeasureModel(measured, budget_bytes, kv_bytes_max);
  }

  Result<server::ServedModel> Load() const {
    QUIRE_TRY(const engine::ModelMemory memory, Measure());
    QUIRE_TRY(engine::TextSide text, engine::LoadTextSide(options.model));
    if (!text.has_own_template) spdlog::warn("model {}: it has no chat template; ChatML stands in", name);
    engine::EngineOptions planned = options;
    planned.kv_memory_bytes = memory.kv_bytes;
    server::ServedModel model = MakeServedModel(std::move(text), {name});
    auto engine =
        std::make_unique<wire::SupervisedEngine>(EngineProcess(planned, supervisor, log_level), LogEngine(name));
    engine->Start();
    model.engine = engine.get();
    model.own_engine = std::move(engine);
    return model;
  }
};

}  // namespace

Result<std::vector<server::ModelSpec>> MakeModelSpecs(const std::vector<NamedModel>& models,
                                                      const engine::EngineOptions& options,
                                                      const wire::SupervisorConfig& supervisor,
                                                      const std::string& log_level, server::ModelsConfig* config) {
  if (!options.quantization_report.empty()) {
    return FailParam("quantization_report", "one file cannot hold the reports of several models");
  }
  if (config->memory_bytes == 0) {
    const auto available = engine::AvailableMemoryBytes();
    if (!available) return FailParam("memory", "the system does not say how much memory is free; give a size");
    config->memory_bytes = static_cast<std::int64_t>(static_cast<double>(*available) * kMemoryShare);
  }
  const auto num_loaded =
      std::min<std::size_t>(models.size(), static_cast<std::size_t>(std::max(config->loaded_max, 1)));
  const auto kv_bytes_max = static_cast<std::int64_t>(static_cast<double>(config->memory_bytes) *
                                                      options.kv_memory_fraction / static_cast<double>(num_loaded));
  std::vector<server::ModelSpec> specs;
  for (const NamedModel& model : models) {
    engine::EngineOptions own = options;
    own.model = model.path;
    if (!own.kv_disk.empty()) own.kv_disk /= FolderName(model.name);
    QUIRE_TRY_VOID(CompleteOptions(&own));
    if (own.packed_cache.ends_with(".packed") && models.size() > 1) {
      return FailParam("packed_cache", "one file cannot hold the weights of several models; name a folder");
    }
    // Shared by the two functions.
    auto loadable = std::make_shared<const LoadableModel>(LoadableModel{.name = model.name,
                                                                        .options = std::move(own),
                                                                        .supervisor = supervisor,
                                                                        .log_level = log_level,
                                                                        .budget_bytes = config->memory_bytes,
                                                                        .kv_bytes_max = kv_bytes_max});
    specs.push_back({.names = {model.name},
                     .load_at_start = model.load_at_start,
                     .measure = [loadable]() -> Result<server::ModelMemory> {
                       QUIRE_TRY(const engine::ModelMemory memory, loadable->Measure());
                       return server::ModelMemory{.weight_bytes = memory.weight_bytes,
                                                  .kv_bytes = memory.kv_bytes + memory.swap_bytes};
                     },
                     .load = [loadable] { return loadable->Load(); }});
  }
  return specs;
}

}  // namespace quire::cli
