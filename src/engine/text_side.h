// From a path to what a front end needs of a model: its text side.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/model_config.h"

namespace quire::engine {

// Needs no engine; immutable once loaded.
struct TextSide {
  std::string name;  // of the folder or the file, without extension
  std::unique_ptr<text::Tokenizer> tokenizer;
  text::ChatTemplate chat_template;
  bool has_own_template = false;  // false: ChatML stands in
  weights::GenerationConfig generation_config;
  weights::ModelConfig config;
};
// "models/demo/" → "demo", "model.gguf" → "model".
std::string ModelName(const std::filesystem::path& path);

Result<TextSide> LoadTextSide(const std::filesystem::path& path);

}  // namespace quire::engine
