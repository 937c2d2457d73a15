// The hyper-parameters of a decoder-only transformer, from a Hugging Face config.json or from GGUF metadata,
// checked against ranges: whatever is zero, negative, absurd or contradictory is an error at load that names
// the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "weights/quantization_config.h"

namespace quire::weights {

enum class Architecture : std::uint8_t { kLlama, kMistral, kQwen2, kQwen3 };

enum class RopeType : std::uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;            // llama3
  std::int64_t original_max_position_embeddings = 0;               // llama3, yarn, dynamic
  double beta_fast = 32.0, beta_slow = 1.0;                        // yarn
  std::optional<double> attention_factor, mscale, mscale_all_dim;  // yarn
  bool yarn_truncate = true;                                       // round the ends of the ramp to whole dimensions
  // GGUF files carry the llama3 scaling as a tensor of divisors instead, [rotary_dim/2].
  std::vector<float> frequency_divisors;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::string architecture_name;  // as the file says it: "Qwen3ForCausalLM", or "qwen3" in GGUF
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;  // ≤ head_dim
  int max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // Qwen2; Llama and Mistral with attention_bias
  bool o_bias = false;    // attention_bias of Llama and Qwen3 gives the output projection one too
  bool mlp_bias = false;
  bool qk_norm = false;                         // Qwen3
  std::int64_t sliding_window = 0;              // 0: none
  std::vector<bool> layer_uses_sliding_window;  // [num_layers]
  // What ends a turn: the ids of config.json and of generation_config.json together, or those of GGUF.
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  std::optional<QuantizationConfig> quantization;  // of Hugging Face folders; GGUF says it tensor by tensor
};

// Defaults that a model's authors recommend; a request's own values win.
struct GenerationConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
  std::vector<TokenId> eos_token_ids;
};

Result<ModelConfig> ParseConfigJson(const json::value& config, std::string_view name);
Result<GenerationConfig> ParseGenerationConfigJson(const json::value& config, std::string_view name);

}  // namespace quire::weights
