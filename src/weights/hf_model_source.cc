#include "weights/hf_model_source.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "weights/config_limits.h"
#include "weights/quantized_matrix.h"
#include "weights/safetensors.h"
#include "weights/tensor_index.h"
#include "weights/text_assets.h"

namespace quire::weights {
namespace {

constexpr std::size_t kConfigBytesMax = std::size_t{16} << 20;
constexpr std::size_t kIndexBytesMax = std::size_t{64} << 20;
constexpr std::size_t kShardsMax = 4096;

class HuggingFaceSource final : public ModelSource {
 public:
  HuggingFaceSource(std::filesystem::path folder, ModelConfig config, GenerationConfig generation_config,
                    std::vector<MappedFile> files, TensorIndex index)
      : folder_(std::move(folder)),
        config_(std::move(config)),
        generation_config_(std::move(generation_config)),
        files_(std::move(files)),
        index_(std::move(index)) {}

  const ModelConfig& config() const override { return config_; }
  const GenerationConfig& generation_config() const override { return generation_config_; }
  Result<TextAssets> ReadTextAssets() const override { return ReadTextAssetsOfFolder(folder_); }
  bool is_gguf() const override { return false; }
  const TensorSource* Find(std::string_view name) const override { return index_.Find(name); }
  Result<std::unique_ptr<MatrixSource>> FindMatrix(std::string_view stem) const override {
    if (config_.quantization) {
      QUIRE_TRY(auto matrix, OpenQuantizedMatrix(*this, *config_.quantization, stem));
      if (matrix != nullptr) return matrix;
    }
    return ModelSource::FindMatrix(stem);
  }
  std::span<const TensorSource> tensors() const override { return index_.tensors(); }
  std::int64_t total_bytes() const override { return index_.total_bytes(); }

  void Release(const TensorSource& tensor) const override {
    for (const MappedFile& file : files_) {
      const auto bytes = file.bytes();
      if (tensor.data.data() >= bytes.data() && tensor.data.data() < bytes.data() + bytes.size()) {
        return file.Release(tensor.data);
      }
    }
    CHECK(tensor.data.empty());  // any other tensor is not of this source
  }

 private:
  const std::filesystem::path folder_;
  const ModelConfig config_;
  const GenerationConfig generation_config_;
  const std::vector<MappedFile> files_;  // the tensors' bytes
  const TensorIndex index_;
};

struct Tensors {
  std::vector<MappedFile> files;
  std::vector<TensorSource> tensors;
};

// Shard file → the tensors that the index takes from it.
using WeightMap = std::map<std::string, std::set<std::string, std::less<>>>;

// A name that stays in the folder (SAFE-05). What such a name links to may lie elsewhere: caches of
// downloaded models are folders of links.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

Result<WeightMap> ReadWeightMap(const std::filesystem::path& path) {
  const std::string name = path.string();
  QUIRE_TRY(const std::string text, ReadFile(path, kIndexBytesMax));
  QUIRE_TRY(const json::value root, ParseJson(text, name, {.depth_max = 16, .refuse_duplicate_keys = true}));
  const json::value* map = root.is_object() ? root.get_object().if_contains("weight_map") : nullptr;
  if (!map || !map->is_object() || map->get_object().empty()) {
    return Fail(ErrorCode::kCorrupt, "{}: there is no \"weight_map\" of tensors", name);
  }
  WeightMap shards;
  for (const auto& [tensor, shard] : map->get_object()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get_string())) {
      return Fail(ErrorCode::kCorrupt, "{}: the tensor {} is said to be in {}; a plain file name is wanted", name,
                  std::string_view(tensor), ToJson(shard));
    }
    shards[std::string(shard.get_string())].emplace(tensor);
  }
  if (shards.size() > kShardsMax) {
    return Fail(ErrorCode::kOutOfRange, "{}: {} shards; at most {} are allowed", name, shards.size(), kShardsMax);
  }
  return shards;
}

// Names every missing shard and some of its tensors (LOAD-01).
Result<> CheckShardsExist(const std::filesystem::path& folder, const WeightMap& shards) {
  std::string missing;
  for (const auto& [shard, tensors] : shards) {
    std::error_code error;
    if (std::filesystem::is_regular_file(folder / shard, error)) continue;
    missing += fmt::format("{}{} (with {}{})", missing.empty() ? "" : ", ", shard, *tensors.begin(),
                           tensors.size() > 1 ? fmt::format(" and {} more tensors", tensors.size() - 1) : "");
  }
  if (missing.empty()) return {};
  return Fail(ErrorCode::kNotFound, "{}: files that the index names are missing: {}", folder.string(), missing);
}

// The tensors that the index maps to each shard; whatever else a shard holds is not part of the model
// (LOAD-04).
Result<Tensors> OpenShards(const std::filesystem::path& folder, const WeightMap& shards) {
  QUIRE_TRY_VOID(CheckShardsExist(folder, shards));
  Tensors all;
  for (const auto& [shard, wanted] : shards) {
    QUIRE_TRY(MappedFile file, MappedFile::Open(folder / shard));
    QUIRE_TRY(std::vector<TensorSource> tensors, ParseSafetensors(file.bytes(), file.path().string()));
    std::set<std::string_view> missing(wanted.begin(), wanted.end());
    for (TensorSource& tensor : tensors) {
      if (missing.erase(tensor.name) == 1) all.tensors.push_back(std::move(tensor));
    }
    if (!missing.empty()) {
      return Fail(ErrorCode::kCorrupt, "{} does not hold the tensor {}, which the index says is there",
                  file.path().string(), *missing.begin());
    }
    all.files.push_back(std::move(file));
  }
  return all;
}

Result<Tensors> OpenTensors(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(std::filesystem::symlink_status(index, error))) {
    QUIRE_TRY(const WeightMap shards, ReadWeightMap(index));
    return OpenShards(folder, shards);
  }
  const std::filesystem::path single = folder / "model.safetensors";
  if (!std::filesystem::exists(single, error)) {
    return Fail(ErrorCode::kNotFound, "{} holds neither model.safetensors nor model.safetensors.index.json{}",
                folder.string(),
                std::filesystem::exists(folder / "pytorch_model.bin", error)
                    ? "; pytorch_model.bin is a pickle, which runs code when it is read, and is not supported"
                    : "");
  }
  Tensors all;
  QUIRE_TRY(MappedFile file, MappedFile::Open(single));
  QUIRE_TRY(all.tensors, ParseSafetensors(file.bytes(), single.string()));
  all.files.push_back(std::move(file));
  return all;
}

Result<json::value> ReadConfig(const std::filesystem::path& path) {
  QUIRE_TRY(const std::string text, ReadFile(path, kConfigBytesMax));
  return ParseJson(text, path.string(), {.refuse_duplicate_keys = true});
}

}  // namespace

Result<std::unique_ptr<ModelSource>> OpenHuggingFaceFolder(const std::filesystem::path& folder) {
  const std::filesystem::path config_path = folder / "config.json";
  QUIRE_TRY(const json::value config_json, ReadConfig(config_path));
  QUIRE_TRY(ModelConfig config, ParseConfigJson(config_json, config_path.string()));

  GenerationConfig generation;
  const std::filesystem::path generation_path = folder / "generation_config.json";
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(generation_path, error))) {
    QUIRE_TRY(const json::value generation_json, ReadConfig(generation_path));
    QUIRE_TRY(generation, ParseGenerationConfigJson(generation_json, generation_path.string()));
    QUIRE_TRY_VOID(
        CheckTokenIds(generation.eos_token_ids, config.vocab_size, "the end-of-text id", generation_path.string()));
  }
  // A model ends its turn with any of the ids that either file names.
  for (const TokenId id : generation.eos_token_ids) {
    if (std::ranges::find(config.eos_token_ids, id) == config.eos_token_ids.end()) config.eos_token_ids.push_back(id);
  }

  QUIRE_TRY(Tensors tensors, OpenTensors(folder));
  QUIRE_TRY(TensorIndex index, TensorIndex::Build(std::move(tensors.tensors), folder.string()));
  return std::make_unique<HuggingFaceSource>(folder, std::move(config), std::move(generation), std::move(tensors.files),
                                             std::move(index));
}

}  // namespace quire::weights
