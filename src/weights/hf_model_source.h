// A Hugging Face folder: config.json, model.safetensors (or its shards and their index), and the text files.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "weights/model_source.h"

namespace quire::weights {

Result<std::unique_ptr<ModelSource>> OpenHuggingFaceFolder(const std::filesystem::path& folder);

}  // namespace quire::weights
