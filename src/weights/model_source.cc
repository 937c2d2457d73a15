// Which kind of model a path is.
#include "weights/model_source.h"

#include <system_error>

#include "weights/hf_model_source.h"

namespace quire::weights {

Result<std::unique_ptr<ModelSource>> ModelSource::Open(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Fail(ErrorCode::kNotFound, "there is no model at {}", path.string());
  }
  if (std::filesystem::is_directory(path, error)) return OpenHuggingFaceFolder(path);
  return Fail(ErrorCode::kUnsupported,
              "{} is not a model: a folder with config.json or a .gguf file is wanted", path.string());
}

}  // namespace quire::weights
