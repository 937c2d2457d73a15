// Which models `quire serve` is to serve, from its flags; and how each is loaded when it is needed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/text_side.h"
#include "server/models_config.h"
#include "wire/supervised_engine.h"

namespace quire::cli {

struct NamedModel {
  std::string name;  // "": what its file or folder is called
  std::filesystem::path path;
  bool load_at_start = false;
};

// "NAME=PATH" or "PATH"; a path with an equals sign that exists is a path.
Result<NamedModel> ParseNamedModel(const std::string& text);

// The models of a folder, by name: every folder with a config.json or a .gguf file in it, and every .gguf file. What
// begins with a dot is left out.
Result<std::vector<NamedModel>> ListModels(const std::filesystem::path& folder);

// Both together, with their names; those that are named themselves are loaded at start, and go before what the folder
// calls the same. An error when two have one name.
Result<std::vector<NamedModel>> CollectModels(std::vector<NamedModel> named, const std::filesystem::path& folder);

// What the server needs of a model's text side; no engine.
server::ServedModel MakeServedModel(engine::TextSide text, std::vector<std::string> names);

// `options` but for the model are the same for all. Fills in the memory of `config` where it was left open.
Result<std::vector<server::ModelSpec>> MakeModelSpecs(const std::vector<NamedModel>& models,
                                                      const engine::EngineOptions& options,
                                                      const wire::SupervisorConfig& supervisor,
                                                      const std::string& log_level, server::ModelsConfig* config);

// The engine process for these options.
wire::SupervisorConfig EngineProcess(const engine::EngineOptions& options, wire::SupervisorConfig supervisor,
                                     const std::string& log_level);

}  // namespace quire::cli
