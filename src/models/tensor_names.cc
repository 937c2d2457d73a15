#include "models/tensor_names.h"

#include <fmt/format.h>

#include "base/check.h"

namespace quire::models {
namespace {

struct NameRow {
  TensorRole role;
  bool in_layer;
  std::string_view hugging_face;  // in layers: after "model.layers.N."
  std::string_view gguf;          // in layers: after "blk.N."
};

constexpr NameRow kNames[] = {
    {TensorRole::kEmbedTokens, false, "model.embed_tokens", "token_embd"},
    {TensorRole::kFinalNorm, false, "model.norm", "output_norm"},
    {TensorRole::kLmHead, false, "lm_head", "output"},
    {TensorRole::kInputNorm, true, "input_layernorm", "attn_norm"},
    {TensorRole::kQuery, true, "self_attn.q_proj", "attn_q"},
    {TensorRole::kKey, true, "self_attn.k_proj", "attn_k"},
    {TensorRole::kValue, true, "self_attn.v_proj", "attn_v"},
    {TensorRole::kOutput, true, "self_attn.o_proj", "attn_output"},
    {TensorRole::kQueryNorm, true, "self_attn.q_norm", "attn_q_norm"},
    {TensorRole::kKeyNorm, true, "self_attn.k_norm", "attn_k_norm"},
    {TensorRole::kPostAttentionNorm, true, "post_attention_layernorm", "ffn_norm"},
    {TensorRole::kGate, true, "mlp.gate_proj", "ffn_gate"},
    {TensorRole::kUp, true, "mlp.up_proj", "ffn_up"},
    {TensorRole::kDown, true, "mlp.down_proj", "ffn_down"},
};

}  // namespace

std::string TensorName(bool is_gguf, TensorRole role, TensorPart part, int layer) {
  const std::string_view suffix = part == TensorPart::kWeight ? "weight" : "bias";
  for (const NameRow& row : kNames) {
    if (row.role != role) continue;
    const std::string_view name = is_gguf ? row.gguf : row.hugging_face;
    if (!row.in_layer) return fmt::format("{}.{}", name, suffix);
    return fmt::format("{}.{}.{}.{}", is_gguf ? "blk" : "model.layers", layer, name, suffix);
  }
  CHECK(false);
  return {};
}

bool IsHarmlessTensor(bool is_gguf, std::string_view name) {
  if (is_gguf) return name == "rope_freqs.weight" || name.ends_with(".attn_rot_embd");
  return name.ends_with("rotary_emb.inv_freq");
}

}  // namespace quire::models
