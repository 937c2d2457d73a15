// The shapes that make_model knows: real models for speed, tiny ones of every architecture and corner for tests.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/model_config.h"

namespace quire::make_model {

enum class TokenizerKind {
  kQwen,    // byte-level BPE, ChatML, no BOS
  kLlama3,  // byte-level BPE, header tokens, BOS
  kLlama2,  // SentencePiece-style BPE with byte fallback, [INST], BOS
};

struct Shape {
  std::string name, description;
  weights::ModelConfig config;
  TokenizerKind tokenizer = TokenizerKind::kQwen;
  int num_tokens = 0;  // of the tokenizer; the embedding may have more rows
};

std::span<const Shape> AllShapes();
const Shape* FindShape(std::string_view name);

// One tensor of a model as a Hugging Face file names and shapes it.
struct TensorSpec {
  enum class Kind { kMatrix, kEmbedding, kNorm, kBias };
  std::string name;
  std::vector<std::int64_t> shape;  // outermost first
  Kind kind = Kind::kMatrix;
};
std::vector<TensorSpec> TensorsOf(const weights::ModelConfig& config);

}  // namespace quire::make_model
