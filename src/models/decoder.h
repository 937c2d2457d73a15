// The decoder-only transformer of the Llama family: norm → QKV → (QK norm) → RoPE → attention → output
// projection → norm → gated MLP, with residuals. What differs between Llama, Mistral, Qwen2 and Qwen3 is data
// in ModelConfig (biases, QK norm, windows, RoPE scaling, tied heads) and the names of the tensors
// (weights/tensor_names.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/weight_loader.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/rope.h"

namespace quire::models {

struct DecoderLayer {
  std::vector<float> input_norm;            // [hidden_size]
  nn::Linear qkv_proj;                      // hidden_size → q_size + 2 · kv_size
  std::vector<float> query_norm, key_norm;  // [head_dim], or empty
  nn::Linear o_proj;                        // q_size → hidden_size
  std::vector<float> post_attention_norm;   // [hidden_size]
  nn::Linear gate_up_proj;                  // hidden_size → 2 · intermediate_size
  nn::Linear down_proj;                     // intermediate_size → hidden_size
  std::int64_t window = 0;                  // 0: none
};

class Decoder final : public Model {
 public:
  static Result<std::unique_ptr<Decoder>> Load(const weights::ModelSource& source, const LoadOptions& options,
                                               ThreadPool* pool);

  const weights::ModelConfig& config() const override { return config_; }
  std::int64_t num_parameters() const override { return num_parameters_; }
  std::int64_t weight_bytes() const override { return weight_bytes_; }
  std::string weight_formats() const override { return weight_formats_; }
  kernels::KvLayout kv_layout() const override;
  std::size_t WorkspaceBytes(const kernels::KernelTable& kernels, int num_threads, int num_tokens,
                             int num_logit_rows) const override;
  void ForwardHidden(const nn::ExecContext& context, const ForwardBatch& batch, nn::KvPool* kv,
                     float* hidden) const override;
  void Logits(const nn::ExecContext& context, const float* hidden, int num_rows, float* logits) const override;

 private:
  struct Step;  // the buffers of one forward pass

  Decoder(weights::ModelConfig config, const LoadOptions& options);
  Result<DecoderLayer> LoadLayer(WeightLoader* loader, bool is_gguf, int index);
  Result<> LoadHead(WeightLoader* loader, bool is_gguf);

  std::int64_t q_size() const { return std::int64_t{config_.num_heads} * config_.head_dim; }
  std::int64_t kv_size() const { return std::int64_t{config_.num_kv_heads} * config_.head_dim; }
  std::int64_t qkv_size() const { return q_size() + 2 * kv_size(); }

  template <typename Taker>
  Step TakeStep(const kernels::KernelTable& kernels, int num_threads, std::int64_t num_tokens,
                std::int64_t num_sequences, Taker* taker) const;
  void FillPositions(const nn::ExecContext& context, const ForwardBatch& batch, Step* step) const;
  void Attention(const nn::ExecContext& context, int index, nn::KvPool* kv, Step* step) const;
  void RotateAndStore(const nn::ExecContext& context, int index, nn::KvPool* kv, const Step& step) const;
  void Mlp(const nn::ExecContext& context, int index, Step* step) const;

  weights::ModelConfig config_;
  kernels::KvDtype kv_dtype_;
  nn::Rope rope_;
  std::vector<nn::PackedWeights> storage_;  // what the Linears view
  nn::EmbeddingTable embedding_;
  std::vector<DecoderLayer> layers_;
  std::vector<float> final_norm_;  // [hidden_size]
  nn::Linear lm_head_;             // hidden_size → vocab_size; views the embedding when they are tied
  std::int64_t num_parameters_ = 0, weight_bytes_ = 0;
  std::string weight_formats_;
};

}  // namespace quire::models
