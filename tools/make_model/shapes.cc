#include "shapes.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::make_model {
namespace {

using weights::Architecture;
using weights::ModelConfig;
using weights::RopeConfig;
using weights::RopeType;

struct Sizes {
  int vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, positions;
};

ModelConfig Make(Architecture architecture, std::string_view class_name, const Sizes& sizes, double theta, float eps) {
  ModelConfig config;
  config.architecture = architecture;
  config.architecture_name = class_name;
  config.vocab_size = sizes.vocab;
  config.hidden_size = sizes.hidden;
  config.intermediate_size = sizes.intermediate;
  config.num_layers = sizes.layers;
  config.num_heads = sizes.heads;
  config.num_kv_heads = sizes.kv_heads;
  config.head_dim = sizes.head_dim;
  config.rotary_dim = sizes.head_dim;
  config.max_position_embeddings = sizes.positions;
  config.rms_norm_eps = eps;
  config.rope.theta = theta;
  config.layer_uses_sliding_window.assign(static_cast<std::size_t>(sizes.layers), false);
  return config;
}

ModelConfig Llama(const Sizes& sizes, double theta) {
  return Make(Architecture::kLlama, "LlamaForCausalLM", sizes, theta, 1e-5f);
}

ModelConfig Mistral(const Sizes& sizes, int window) {
  ModelConfig config = Make(Architecture::kMistral, "MistralForCausalLM", sizes, 10000, 1e-5f);
  config.sliding_window = window;
  if (window > 0) config.layer_uses_sliding_window.assign(static_cast<std::size_t>(sizes.layers), true);
  return config;
}

ModelConfig Qwen2(const Sizes& sizes) {
  ModelConfig config = Make(Architecture::kQwen2, "Qwen2ForCausalLM", sizes, 1e6, 1e-6f);
  config.qkv_bias = true;
  return config;
}

ModelConfig Qwen3(const Sizes& sizes) {
  ModelConfig config = Make(Architecture::kQwen3, "Qwen3ForCausalLM", sizes, 1e6, 1e-6f);
  config.qk_norm = true;
  return config;
}

ModelConfig Tied(ModelConfig config) {
  config.tie_word_embeddings = true;
  return config;
}

ModelConfig WithRope(ModelConfig config, RopeType type, double factor, int original) {
  config.rope.type = type;
  config.rope.factor = factor;
  config.rope.original_max_position_embeddings = original;
  return config;
}

ModelConfig WindowFrom(ModelConfig config, int window, int first_layer) {
  config.sliding_window = window;
  for (int layer = first_layer; layer < config.num_layers; ++layer) {
    config.layer_uses_sliding_window[static_cast<std::size_t>(layer)] = true;
  }
  return config;
}

ModelConfig WithBiases(ModelConfig config) {
  config.qkv_bias = config.o_bias = config.mlp_bias = true;
  return config;
}

void AddRealShapes(std::vector<Shape>* shapes) {
  constexpr auto kQwen = TokenizerKind::kQwen;
  constexpr auto kLlama3 = TokenizerKind::kLlama3;
  constexpr auto kLlama2 = TokenizerKind::kLlama2;
  //                                                       vocab   hidden inter layers h kv hd positions
  shapes->push_back({"qwen2.5-0.5b", "Qwen2.5 0.5B: QKV bias, tied head",
                     Tied(Qwen2({151936, 896, 4864, 24, 14, 2, 64, 32768})), kQwen, 151665});
  shapes->push_back(
      {"qwen2.5-1.5b", "Qwen2.5 1.5B", Tied(Qwen2({151936, 1536, 8960, 28, 12, 2, 128, 32768})), kQwen, 151665});
  shapes->push_back(
      {"qwen2.5-7b", "Qwen2.5 7B: untied head", Qwen2({152064, 3584, 18944, 28, 28, 4, 128, 32768}), kQwen, 151665});
  shapes->push_back({"qwen3-0.6b", "Qwen3 0.6B: QK norm, head_dim beyond hidden / heads",
                     Tied(Qwen3({151936, 1024, 3072, 28, 16, 8, 128, 40960})), kQwen, 151669});
  ModelConfig llama =
      WithRope(Tied(Llama({128256, 2048, 8192, 16, 32, 8, 64, 131072}, 5e5)), RopeType::kLlama3, 32, 8192);
  shapes->push_back({"llama-3.2-1b", "Llama 3.2 1B: llama3 RoPE scaling, tied head", llama, kLlama3, 128256});
  ModelConfig llama8 = WithRope(Llama({128256, 4096, 14336, 32, 32, 8, 128, 131072}, 5e5), RopeType::kLlama3, 8, 8192);
  shapes->push_back({"llama-3.1-8b", "Llama 3.1 8B", llama8, kLlama3, 128256});
  shapes->push_back({"llama-2-7b", "Llama 2 7B: multi-head attention",
                     Llama({32000, 4096, 11008, 32, 32, 32, 128, 4096}, 1e4), kLlama2, 32000});
  shapes->push_back({"mistral-7b", "Mistral 7B v0.1: sliding window of 4096",
                     Mistral({32000, 4096, 14336, 32, 32, 8, 128, 32768}, 4096), kLlama2, 32000});
}

void AddTinyShapes(std::vector<Shape>* shapes) {
  constexpr auto kQwen = TokenizerKind::kQwen;
  constexpr auto kLlama3 = TokenizerKind::kLlama3;
  constexpr auto kLlama2 = TokenizerKind::kLlama2;
  const Sizes gqa = {512, 256, 512, 4, 8, 2, 32, 512};
  const Sizes mha = {512, 256, 512, 4, 4, 4, 64, 512};
  const auto add = [&](std::string_view name, std::string_view description, ModelConfig config, TokenizerKind kind,
                       int tokens) {
    shapes->push_back({std::string(name), std::string(description), std::move(config), kind, tokens});
  };
  add("tiny-llama2", "multi-head attention, SentencePiece tokenizer", Llama(mha, 1e4), kLlama2, 512);
  add("tiny-llama3", "grouped queries, llama3 RoPE scaling, tied head",
      WithRope(Tied(Llama(gqa, 5e5)), RopeType::kLlama3, 8, 128), kLlama3, 512);
  add("tiny-mistral", "sliding window of 40", Mistral(gqa, 40), kLlama2, 512);
  add("tiny-qwen2", "QKV bias, tied head, an embedding with more rows than tokens",
      Tied(Qwen2({640, 256, 512, 4, 8, 2, 32, 512})), kQwen, 600);
  add("tiny-qwen2-window", "sliding window of 24 from layer 2 on", WindowFrom(Qwen2(gqa), 24, 2), kQwen, 512);
  add("tiny-qwen3", "QK norm, heads wider than the model", Qwen3({512, 256, 512, 4, 8, 4, 64, 512}), kQwen, 512);
  add("tiny-mqa", "one key-value head", Llama({512, 256, 512, 4, 8, 1, 32, 512}, 1e4), kLlama2, 512);
  add("tiny-bias", "biases in attention and feed-forward", WithBiases(Llama(gqa, 1e4)), kLlama3, 512);
  add("tiny-linear", "linear RoPE scaling", WithRope(Llama(gqa, 1e4), RopeType::kLinear, 4, 0), kLlama3, 512);
  add("tiny-dynamic", "dynamic RoPE scaling (folders only)", WithRope(Llama(gqa, 1e4), RopeType::kDynamic, 4, 512),
      kLlama3, 512);
  add("tiny-yarn", "yarn RoPE scaling", WithRope(Qwen2(gqa), RopeType::kYarn, 4, 128), kQwen, 512);
  add("tiny-head40", "head_dim 40, sizes that K-quants do not divide", Llama({512, 160, 416, 3, 4, 2, 40, 512}, 1e4),
      kLlama2, 512);
  add("tiny-head80", "head_dim 80, seven query heads a key-value head", Llama({512, 256, 512, 3, 7, 1, 80, 512}, 1e4),
      kLlama3, 512);
  add("tiny-head6", "head_dim 6, sizes that no block divides", Qwen3({500, 20, 36, 2, 3, 3, 6, 64}), kQwen, 500);
}

std::vector<Shape> MakeShapes() {
  std::vector<Shape> shapes;
  AddRealShapes(&shapes);
  AddTinyShapes(&shapes);
  return shapes;
}

}  // namespace

std::span<const Shape> AllShapes() {
  static const std::vector<Shape> shapes = MakeShapes();
  return shapes;
}

const Shape* FindShape(std::string_view name) {
  const auto shapes = AllShapes();
  const auto found = std::ranges::find(shapes, name, &Shape::name);
  return found == shapes.end() ? nullptr : &*found;
}

std::vector<TensorSpec> TensorsOf(const ModelConfig& config) {
  using Kind = TensorSpec::Kind;
  std::vector<TensorSpec> tensors;
  const std::int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const std::int64_t queries = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t keys = std::int64_t{config.num_kv_heads} * config.head_dim;
  const auto norm = [&](std::string name, std::int64_t size) { tensors.push_back({name, {size}, Kind::kNorm}); };
  const auto linear = [&](std::string name, std::int64_t rows, std::int64_t columns, bool bias) {
    tensors.push_back({name + ".weight", {rows, columns}, Kind::kMatrix});
    if (bias) tensors.push_back({name + ".bias", {rows}, Kind::kBias});
  };
  tensors.push_back({"model.embed_tokens.weight", {config.vocab_size, hidden}, Kind::kEmbedding});
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    norm(prefix + "input_layernorm.weight", hidden);
    linear(prefix + "self_attn.q_proj", queries, hidden, config.qkv_bias);
    linear(prefix + "self_attn.k_proj", keys, hidden, config.qkv_bias);
    linear(prefix + "self_attn.v_proj", keys, hidden, config.qkv_bias);
    linear(prefix + "self_attn.o_proj", hidden, queries, config.o_bias);
    if (config.qk_norm) {
      norm(prefix + "self_attn.q_norm.weight", config.head_dim);
      norm(prefix + "self_attn.k_norm.weight", config.head_dim);
    }
    norm(prefix + "post_attention_layernorm.weight", hidden);
    linear(prefix + "mlp.gate_proj", intermediate, hidden, config.mlp_bias);
    linear(prefix + "mlp.up_proj", intermediate, hidden, config.mlp_bias);
    linear(prefix + "mlp.down_proj", hidden, intermediate, config.mlp_bias);
  }
  norm("model.norm.weight", hidden);
  if (!config.tie_word_embeddings) {
    tensors.push_back({"lm_head.weight", {config.vocab_size, hidden}, Kind::kEmbedding});
  }
  return tensors;
}

}  // namespace quire::make_model
