// A model as it lies on disk, behind one interface: a Hugging Face folder or a GGUF file. Opening validates
// everything that can be known without reading tensor data; tensors stay in the mapped files until they are
// packed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/gguf_vocabulary.h"
#include "base/result.h"
#include "weights/matrix_source.h"
#include "weights/model_config.h"
#include "weights/tensor_source.h"

namespace quire::weights {

// What the front end needs to build a tokenizer and a template; exactly one of the tokenizer members is
// filled.
struct TextAssets {
  std::string tokenizer_json;       // contents of tokenizer.json
  std::string sentencepiece_model;  // contents of tokenizer.model, when there is no tokenizer.json
  std::optional<GgufVocabulary> gguf_vocabulary;
  std::string tokenizer_config_json;  // "" when there is none
  std::string chat_template;          // "" when there is none
  std::string bos_token, eos_token;   // as text, for the template
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // A folder with config.json, or a `.gguf` file (also the only one of a folder).
  static Result<std::unique_ptr<ModelSource>> Open(const std::filesystem::path& path);

  virtual const ModelConfig& config() const = 0;
  virtual const GenerationConfig& generation_config() const = 0;
  // Reads the text files; not needed by the engine process.
  virtual Result<TextAssets> ReadTextAssets() const = 0;

  // True for GGUF, whose tensor names and whose order of rotary rows differ (see weights/tensor_names.h).
  virtual bool is_gguf() const = 0;
  virtual const TensorSource* Find(std::string_view name) const = 0;
  // The matrix called `stem` ("model.layers.0.self_attn.q_proj"), which plain models keep in the tensor
  // STEM.weight; null when the model has none. Must not outlive the source.
  virtual Result<std::unique_ptr<MatrixSource>> FindMatrix(std::string_view stem) const;
  virtual std::span<const TensorSource> tensors() const = 0;
  virtual std::int64_t total_bytes() const = 0;  // of all tensors
  // Gives the mapped pages of a tensor back to the kernel after it was packed.
  virtual void Release(const TensorSource& tensor) const = 0;
};

}  // namespace quire::weights
