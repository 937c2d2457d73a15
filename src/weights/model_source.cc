// Which kind of model a path is.
#include "weights/model_source.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>
#include <vector>

#include "weights/gguf_model.h"
#include "weights/hf_model_source.h"

namespace quire::weights {
namespace {

constexpr std::size_t kFolderEntriesMax = 100'000;

// Files that say so, whatever they are called.
bool BeginsLikeGguf(const std::filesystem::path& path) {
  std::array<char, 4> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

std::vector<std::filesystem::path> GgufFilesIn(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  std::size_t seen = 0;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end && seen < kFolderEntriesMax;
       it.increment(error), ++seen) {
    if (it->path().extension() == ".gguf" && it->is_regular_file(error)) files.push_back(it->path());
  }
  std::ranges::sort(files);
  return files;
}

bool HoldsSafetensors(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / "model.safetensors", error) ||
         std::filesystem::exists(folder / "model.safetensors.index.json", error);
}

Result<std::unique_ptr<ModelSource>> OpenFolder(const std::filesystem::path& folder) {
  std::error_code error;
  const bool has_config = std::filesystem::exists(folder / "config.json", error);
  if (has_config && HoldsSafetensors(folder)) return OpenHuggingFaceFolder(folder);
  const std::vector<std::filesystem::path> files = GgufFilesIn(folder);
  if (files.size() == 1) return OpenGgufFile(files.front());
  if (files.size() > 1) {
    return Fail(ErrorCode::kInvalidArgument, "{} holds {} .gguf files ({}, {}, …); name the one that is wanted",
                folder.string(), files.size(), files[0].filename().string(), files[1].filename().string());
  }
  if (has_config) return OpenHuggingFaceFolder(folder);  // which says what is missing
  return Fail(ErrorCode::kNotFound, "{} holds no model: neither config.json nor a .gguf file", folder.string());
}

}  // namespace

Result<std::unique_ptr<MatrixSource>> ModelSource::FindMatrix(std::string_view stem) const {
  const TensorSource* tensor = Find(fmt::format("{}.weight", stem));
  if (tensor == nullptr) return nullptr;
  return OpenPlainMatrix(*tensor);
}

Result<std::unique_ptr<ModelSource>> ModelSource::Open(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Fail(ErrorCode::kNotFound, "there is no model at {}", path.string());
  }
  if (std::filesystem::is_directory(path, error)) return OpenFolder(path);
  if (path.extension() == ".gguf" || (std::filesystem::is_regular_file(path, error) && BeginsLikeGguf(path))) {
    return OpenGgufFile(path);
  }
  return Fail(ErrorCode::kUnsupported, "{} is not a model: a folder with config.json or a .gguf file is wanted",
              path.string());
}

}  // namespace quire::weights
