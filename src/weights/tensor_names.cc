#include "weights/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/check.h"

namespace quire::weights {
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

constexpr std::string_view kHuggingFaceLayers = "model.layers", kGgufLayers = "blk";

std::string FullName(const NameRow& row, bool is_gguf, int layer, std::string_view suffix) {
  const std::string_view name = is_gguf ? row.gguf : row.hugging_face;
  if (!row.in_layer) return fmt::format("{}.{}", name, suffix);
  return fmt::format("{}.{}.{}.{}", is_gguf ? kGgufLayers : kHuggingFaceLayers, layer, name, suffix);
}

// Takes "model.layers.3." off the front of a stem; −1, and the stem as it was, when that does not stand there.
int TakeLayer(std::string_view* stem) {
  if (!stem->starts_with(kHuggingFaceLayers)) return -1;
  const std::string_view rest = stem->substr(kHuggingFaceLayers.size());
  const char* const rest_end = rest.data() + rest.size();
  int layer = -1;
  if (!rest.starts_with('.')) return -1;
  const auto [end, error] = std::from_chars(rest.data() + 1, rest_end, layer);
  if (error != std::errc() || layer < 0 || end == rest_end || *end != '.') return -1;
  *stem = {end + 1, rest_end};
  return layer;
}

}  // namespace

std::string TensorName(bool is_gguf, TensorRole role, TensorPart part, int layer) {
  const std::string_view suffix = part == TensorPart::kWeight ? "weight" : "bias";
  for (const NameRow& row : kNames) {
    if (row.role == role) return FullName(row, is_gguf, layer, suffix);
  }
  CHECK(false);
  return {};
}

std::string GgufTensorName(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::string_view stem = name.substr(0, dot);
  const std::string_view suffix = name.substr(dot + 1);
  if (suffix != "weight" && suffix != "bias") return {};
  const int layer = TakeLayer(&stem);
  for (const NameRow& row : kNames) {
    if (row.in_layer == (layer >= 0) && row.hugging_face == stem) return FullName(row, true, layer, suffix);
  }
  return {};
}

bool IsHarmlessTensor(bool is_gguf, std::string_view name) {
  if (is_gguf) return name == "rope_freqs.weight" || name.ends_with(".attn_rot_embd");
  // The scales are of 8-bit keys and values, which quire quantises by its own.
  constexpr std::string_view kSuffixes[] = {"rotary_emb.inv_freq", ".k_scale", ".v_scale", ".q_scale",
                                            ".prob_output_scale"};
  return std::ranges::any_of(kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool GgufInterleavesRotaryRows(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
    case Architecture::kMistral:
      return true;
    case Architecture::kQwen2:
    case Architecture::kQwen3:
      return false;
  }
  return false;
}

}  // namespace quire::weights
