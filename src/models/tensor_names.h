// What the tensors of a decoder are called in Hugging Face folders and in GGUF files. One table; a new
// architecture of this family is a row, not code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire::models {

enum class TensorRole : std::uint8_t {
  kEmbedTokens,
  kFinalNorm,
  kLmHead,
  // Of one layer:
  kInputNorm,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kQueryNorm,
  kKeyNorm,
  kPostAttentionNorm,
  kGate,
  kUp,
  kDown,
};

enum class TensorPart : std::uint8_t { kWeight, kBias };

// "model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight". `layer` is ignored for roles outside the
// layers.
std::string TensorName(bool is_gguf, TensorRole role, TensorPart part, int layer = 0);

// Tensors that some files carry and that nothing needs: precomputed rotary tables, which quire derives from
// the configuration, and what the weights module reads into the configuration.
bool IsHarmlessTensor(bool is_gguf, std::string_view name);

}  // namespace quire::models
