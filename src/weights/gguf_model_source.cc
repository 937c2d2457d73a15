// A GGUF file as a ModelSource.
#include <utility>

#include "base/mapped_file.h"
#include "weights/gguf_model.h"
#include "weights/tensor_index.h"

namespace quire::weights {
namespace {

class GgufSource final : public ModelSource {
 public:
  // `file` has given its tensors to `index`.
  GgufSource(MappedFile mapped, GgufFile file, ModelConfig config, GenerationConfig generation_config,
             TensorIndex index)
      : mapped_(std::move(mapped)),
        file_(std::move(file)),
        config_(std::move(config)),
        generation_config_(std::move(generation_config)),
        index_(std::move(index)) {}

  const ModelConfig& config() const override { return config_; }
  const GenerationConfig& generation_config() const override { return generation_config_; }
  Result<TextAssets> ReadTextAssets() const override { return ReadGgufTextAssets(file_); }
  bool is_gguf() const override { return true; }
  const TensorSource* Find(std::string_view name) const override { return index_.Find(name); }
  std::span<const TensorSource> tensors() const override { return index_.tensors(); }
  std::int64_t total_bytes() const override { return index_.total_bytes(); }
  void Release(const TensorSource& tensor) const override { mapped_.Release(tensor.data); }

 private:
  const MappedFile mapped_;  // what the metadata and the tensors are views of
  const GgufFile file_;
  const ModelConfig config_;
  const GenerationConfig generation_config_;
  const TensorIndex index_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> OpenGgufFile(const std::filesystem::path& path) {
  QUIRE_TRY(MappedFile mapped, MappedFile::Open(path));
  const std::string name = path.string();
  QUIRE_TRY(GgufFile file, GgufFile::Parse(mapped.bytes(), name));
  QUIRE_TRY(const auto parts, file.OptionalInt("split.count", 0, 65535));
  if (parts.value_or(0) > 1) {
    return Fail(ErrorCode::kUnsupported, "{} is one of {} parts of a model; merge them into one file first", name,
                *parts);
  }
  QUIRE_TRY(ModelConfig config, ParseGgufConfig(file));
  QUIRE_TRY(GenerationConfig generation, ParseGgufGenerationConfig(file));
  generation.eos_token_ids = config.eos_token_ids;
  std::vector<TensorSource> tensors = std::exchange(file.tensors(), {});
  std::erase_if(tensors, [](const TensorSource& tensor) { return tensor.name == kRopeFrequenciesTensor; });
  QUIRE_TRY(TensorIndex index, TensorIndex::Build(std::move(tensors), name));
  return std::make_unique<GgufSource>(std::move(mapped), std::move(file), std::move(config), std::move(generation),
                                      std::move(index));
}

}  // namespace quire::weights
