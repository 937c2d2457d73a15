// What the tensors of a decoder are called in Hugging Face folders and in GGUF files, and where their rows differ. One
// table, for the loader and for what writes GGUF; a new architecture of this family is a row, not code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weights/model_config.h"

namespace quire::weights {

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

// "model.layers.3.self_attn.q_proj.weight" → "blk.3.attn_q.weight"; "" for a name that is not of these models.
std::string GgufTensorName(std::string_view hugging_face_name);

// Tensors that some files carry and that nothing needs: precomputed rotary tables, which quire derives from
// the configuration, scales for keys and values of a calibrated cache, and what the weights module reads into the
// configuration.
bool IsHarmlessTensor(bool is_gguf, std::string_view name);

// True where GGUF stores the rows of the query and key projections so that the pairs that rotate together are
// neighbours (row 2i and 2i + 1 of a head), while Hugging Face keeps them half a head apart.
bool GgufInterleavesRotaryRows(Architecture architecture);

}  // namespace quire::weights
