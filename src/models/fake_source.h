// For tests: a model that was never a file. Its tensors are random, of any types, and can be dropped, added and bent.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "weights/model_source.h"
#include "weights/tensor_names.h"

namespace quire::models {

using weights::TensorName;
using weights::TensorPart;
using weights::TensorRole;

inline weights::ModelConfig SmallConfig(weights::Architecture architecture) {
  weights::ModelConfig config;
  config.architecture = architecture;
  config.architecture_name = "TestForCausalLM";
  config.vocab_size = 70;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.rotary_dim = 16;
  config.max_position_embeddings = 256;
  config.qkv_bias = architecture == weights::Architecture::kQwen2;
  config.qk_norm = architecture == weights::Architecture::kQwen3;
  config.layer_uses_sliding_window.assign(2, false);
  return config;
}

class FakeSource final : public weights::ModelSource {
 public:
  // `type_of` says how a tensor is stored; vectors are always F32.
  template <typename TypeOf>
  FakeSource(weights::ModelConfig config, bool is_gguf, TypeOf type_of, std::uint32_t seed = 1)
      : config_(std::move(config)), is_gguf_(is_gguf), random_(seed) {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    const std::int64_t q = std::int64_t{config_.num_heads} * config_.head_dim;
    const std::int64_t kv = std::int64_t{config_.num_kv_heads} * config_.head_dim;
    const auto add = [&](TensorRole role, int layer, std::int64_t rows, std::int64_t columns, bool bias) {
      const std::string name = TensorName(is_gguf, role, TensorPart::kWeight, layer);
      Add(name, {rows, columns}, type_of(role));
      if (bias) Add(TensorName(is_gguf, role, TensorPart::kBias, layer), {rows}, "F32");
    };
    const auto add_norm = [&](TensorRole role, int layer, std::int64_t size) {
      Add(TensorName(is_gguf, role, TensorPart::kWeight, layer), {size}, "F32");
    };
    add(TensorRole::kEmbedTokens, 0, config_.vocab_size, hidden, false);
    if (!config_.tie_word_embeddings) add(TensorRole::kLmHead, 0, config_.vocab_size, hidden, false);
    add_norm(TensorRole::kFinalNorm, 0, hidden);
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      add(TensorRole::kQuery, layer, q, hidden, config_.qkv_bias);
      add(TensorRole::kKey, layer, kv, hidden, config_.qkv_bias);
      add(TensorRole::kValue, layer, kv, hidden, config_.qkv_bias);
      add(TensorRole::kOutput, layer, hidden, q, config_.o_bias);
      add(TensorRole::kGate, layer, inner, hidden, config_.mlp_bias);
      add(TensorRole::kUp, layer, inner, hidden, config_.mlp_bias);
      add(TensorRole::kDown, layer, hidden, inner, config_.mlp_bias);
      add_norm(TensorRole::kInputNorm, layer, hidden);
      add_norm(TensorRole::kPostAttentionNorm, layer, hidden);
      if (config_.qk_norm) add_norm(TensorRole::kQueryNorm, layer, config_.head_dim);
      if (config_.qk_norm) add_norm(TensorRole::kKeyNorm, layer, config_.head_dim);
    }
  }

  void Add(const std::string& name, std::vector<std::int64_t> shape, std::string_view type_name) {
    const weights::TypeTraits* type = weights::FindTypeByName(type_name);
    CHECK(type != nullptr && type->quantize_row != nullptr);
    const std::int64_t columns = shape.back(), rows = shape.size() == 1 ? 1 : shape.front();
    const std::size_t row_bytes = *weights::RowBytes(*type, columns, name);
    std::vector<std::byte>& data = storage_.emplace_back(row_bytes * static_cast<std::size_t>(rows));
    std::normal_distribution<float> normal(shape.size() == 1 ? 1.0f : 0.0f,
                                           shape.size() == 1 ? 0.2f : 1.5f / std::sqrt(static_cast<float>(columns)));
    std::vector<float> values(static_cast<std::size_t>(columns));
    for (std::int64_t row = 0; row < rows; ++row) {
      for (float& value : values) value = normal(random_);
      type->quantize_row(values.data(), columns, data.data() + row_bytes * static_cast<std::size_t>(row));
    }
    tensors_.push_back({.name = name, .type = type, .shape = std::move(shape), .data = data});
  }
  void Drop(std::string_view name) {
    std::erase_if(tensors_, [&](const weights::TensorSource& tensor) { return tensor.name == name; });
  }
  // Writes over the bytes of one row.
  void Spoil(std::string_view name, std::int64_t row, std::size_t at, std::span<const std::byte> bytes) {
    const auto tensor = std::ranges::find(tensors_, name, &weights::TensorSource::name);
    const std::size_t row_bytes = *weights::RowBytes(*tensor->type, tensor->columns(), name);
    const auto data =
        std::ranges::find(storage_, tensor->data.data(), [](const std::vector<std::byte>& v) { return v.data(); });
    std::ranges::copy(bytes,
                      data->begin() + static_cast<std::ptrdiff_t>(row_bytes * static_cast<std::size_t>(row) + at));
  }
  // Of a tensor of floats.
  void ScaleColumn(std::string_view name, std::int64_t column, float factor) {
    const auto tensor = std::ranges::find(tensors_, name, &weights::TensorSource::name);
    CHECK(tensor->type == weights::FindTypeByName("F32"));
    const auto data =
        std::ranges::find(storage_, tensor->data.data(), [](const std::vector<std::byte>& v) { return v.data(); });
    auto* values = reinterpret_cast<float*>(data->data());
    for (std::int64_t row = 0; row < tensor->rows(); ++row) values[row * tensor->columns() + column] *= factor;
  }
  // The same values as F32.
  void ReplaceByFloats(std::string_view name) {
    const auto tensor = std::ranges::find(tensors_, name, &weights::TensorSource::name);
    const std::int64_t columns = tensor->columns();
    const std::size_t row_bytes = *weights::RowBytes(*tensor->type, columns, name);
    std::vector<std::byte>& data =
        storage_.emplace_back(static_cast<std::size_t>(tensor->rows() * columns) * sizeof(float));
    for (std::int64_t row = 0; row < tensor->rows(); ++row) {
      tensor->type->dequantize_row(tensor->data.data() + row_bytes * static_cast<std::size_t>(row), columns,
                                   reinterpret_cast<float*>(data.data()) + row * columns);
    }
    tensor->type = weights::FindTypeByName("F32");
    tensor->data = data;
  }

  const weights::ModelConfig& config() const override { return config_; }
  const weights::GenerationConfig& generation_config() const override { return generation_config_; }
  Result<weights::TextAssets> ReadTextAssets() const override { return weights::TextAssets{}; }
  bool is_gguf() const override { return is_gguf_; }
  const weights::TensorSource* Find(std::string_view name) const override {
    const auto found = std::ranges::find(tensors_, name, &weights::TensorSource::name);
    return found == tensors_.end() ? nullptr : &*found;
  }
  std::span<const weights::TensorSource> tensors() const override { return tensors_; }
  std::int64_t total_bytes() const override {
    std::int64_t sum = 0;
    for (const weights::TensorSource& tensor : tensors_) sum += static_cast<std::int64_t>(tensor.data.size());
    return sum;
  }
  void Release(const weights::TensorSource&) const override {}

 private:
  weights::ModelConfig config_;
  weights::GenerationConfig generation_config_;
  bool is_gguf_;
  std::mt19937 random_;
  std::deque<std::vector<std::byte>> storage_;
  std::vector<weights::TensorSource> tensors_;
};

}  // namespace quire::models
