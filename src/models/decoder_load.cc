// Loading: which tensors a decoder consists of, and where they go.
#include <array>
#include <utility>

#include "models/decoder.h"
#include "weights/rope.h"
#include "weights/tensor_names.h"

namespace quire::models {
namespace {

using weights::TensorName;
using weights::TensorPart;
using weights::TensorRole;

// TensorName without ".weight".
std::string MatrixName(bool is_gguf, TensorRole role, int layer = 0) {
  std::string name = TensorName(is_gguf, role, TensorPart::kWeight, layer);
  name.resize(name.rfind('.'));
  return name;
}

RowOrder RotaryRows(const weights::ModelConfig& config, bool is_gguf) {
  if (!is_gguf || !weights::GgufInterleavesRotaryRows(config.architecture)) return {};
  return {config.head_dim, config.rotary_dim};
}

}  // namespace

Result<std::unique_ptr<Model>> Model::Load(const weights::ModelSource& source, const LoadOptions& options,
                                           ThreadPool* pool, const kernels::KernelTable&) {
  return Decoder::Load(source, options, pool);
}

void Model::Forward(const nn::ExecContext& context, const ForwardBatch& batch, nn::KvPool* kv, float* logits) const {
  const nn::Workspace::Scope scope(context.workspace);
  const std::size_t num_rows = batch.logit_rows.size();
  auto* hidden = context.workspace->Take<float>(num_rows * static_cast<std::size_t>(config().hidden_size));
  ForwardHidden(context, batch, kv, hidden);
  Logits(context, hidden, static_cast<int>(num_rows), logits);
}

Decoder::Decoder(weights::ModelConfig config, const LoadOptions& options)
    : config_(std::move(config)), kv_dtype_(options.kv_dtype) {
  // "Dynamic" scaling raises its base once, for the longest sequence that will be run. (Hugging Face raises it as a
  // sequence grows, which leaves earlier keys rotated with another base and makes the result depend on how the prompt
  // was cut.)
  const std::int64_t longest = options.max_model_len > 0 ? options.max_model_len : config_.max_position_embeddings;
  rope_ = nn::Rope(weights::InverseFrequencies(config_.rope, config_.rotary_dim, longest),
                   weights::AttentionScaling(config_.rope));
}

Result<std::unique_ptr<Decoder>> Decoder::Load(const weights::ModelSource& source, const LoadOptions& options,
                                               ThreadPool* pool) {
  if (options.quantization != weights::Quantization::kNone) {
    QUIRE_TRY_VOID(weights::CheckNotQuantized(source, options.quantization));
  }
  std::unique_ptr<Decoder> model(new Decoder(source.config(), options));
  WeightLoader loader(source, options, pool);
  const bool is_gguf = source.is_gguf();
  QUIRE_TRY(model->embedding_,
            loader.LoadEmbedding(MatrixName(is_gguf, TensorRole::kEmbedTokens), model->config_.vocab_size,
                                 model->config_.hidden_size, &model->storage_));
  for (int index = 0; index < model->config_.num_layers; ++index) {
    QUIRE_TRY(DecoderLayer layer, model->LoadLayer(&loader, is_gguf, index));
    model->layers_.push_back(std::move(layer));
  }
  QUIRE_TRY_VOID(model->LoadHead(&loader, is_gguf));
  QUIRE_TRY_VOID(loader.CheckAllUsed());
  model->num_parameters_ = loader.num_parameters();
  model->weight_bytes_ = loader.packed_bytes();
  model->weight_formats_ = loader.FormatNames();
  return model;
}

Result<> Decoder::LoadHead(WeightLoader* loader, bool is_gguf) {
  QUIRE_TRY(final_norm_,
            loader->LoadVector(TensorName(is_gguf, TensorRole::kFinalNorm, TensorPart::kWeight), config_.hidden_size));
  const std::string name = TensorName(is_gguf, TensorRole::kLmHead, TensorPart::kWeight);
  // GGUF says "tied" by leaving the head out. A Hugging Face folder that ties them may still hold a copy of
  // the embedding under the head's name; the configuration decides.
  const bool tied = config_.tie_word_embeddings && !(is_gguf && loader->Has(name));
  if (tied) {
    loader->Ignore(MatrixName(is_gguf, TensorRole::kLmHead));
    lm_head_ = nn::Linear({embedding_.matrix}, {}, {}, embedding_.outliers);
    return {};
  }
  const std::array head{MatrixPart{MatrixName(is_gguf, TensorRole::kLmHead), config_.vocab_size}};
  QUIRE_TRY(lm_head_, loader->LoadLinear(head, config_.hidden_size, BiasRule::kNone, &storage_));
  return {};
}

Result<DecoderLayer> Decoder::LoadLayer(WeightLoader* loader, bool is_gguf, int index) {
  const auto full_name = [&](TensorRole role) { return TensorName(is_gguf, role, TensorPart::kWeight, index); };
  const auto part = [&](TensorRole role, std::int64_t rows, RowOrder order = {}) {
    return MatrixPart{MatrixName(is_gguf, role, index), rows, order};
  };
  const auto bias = [&](bool required) {
    return required ? BiasRule::kRequired : is_gguf ? BiasRule::kIfPresent : BiasRule::kNone;
  };
  const RowOrder rotary = RotaryRows(config_, is_gguf);
  const std::int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;

  DecoderLayer layer;
  QUIRE_TRY(layer.input_norm, loader->LoadVector(full_name(TensorRole::kInputNorm), hidden));
  const std::array qkv{part(TensorRole::kQuery, q_size(), rotary), part(TensorRole::kKey, kv_size(), rotary),
                       part(TensorRole::kValue, kv_size())};
  QUIRE_TRY(layer.qkv_proj, loader->LoadLinear(qkv, hidden, bias(config_.qkv_bias), &storage_));
  if (config_.qk_norm) {
    QUIRE_TRY(layer.query_norm, loader->LoadVector(full_name(TensorRole::kQueryNorm), config_.head_dim));
    QUIRE_TRY(layer.key_norm, loader->LoadVector(full_name(TensorRole::kKeyNorm), config_.head_dim));
  }
  const std::array output{part(TensorRole::kOutput, hidden)};
  QUIRE_TRY(layer.o_proj, loader->LoadLinear(output, q_size(), bias(config_.o_bias), &storage_));
  QUIRE_TRY(layer.post_attention_norm, loader->LoadVector(full_name(TensorRole::kPostAttentionNorm), hidden));
  const std::array gate_up{part(TensorRole::kGate, intermediate), part(TensorRole::kUp, intermediate)};
  QUIRE_TRY(layer.gate_up_proj, loader->LoadLinear(gate_up, hidden, bias(config_.mlp_bias), &storage_));
  const std::array down{part(TensorRole::kDown, hidden)};
  QUIRE_TRY(layer.down_proj, loader->LoadLinear(down, intermediate, bias(config_.mlp_bias), &storage_));
  const auto i = static_cast<std::size_t>(index);
  const bool windowed =
      i < config_.layer_uses_sliding_window.size() ? config_.layer_uses_sliding_window[i] : config_.sliding_window > 0;
  layer.window = windowed ? config_.sliding_window : 0;
  return layer;
}

}  // namespace quire::models
