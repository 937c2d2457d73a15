// A loaded model. Const after Load: any number of readers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"
#include "nn/exec_context.h"
#include "nn/kv_pool.h"
#include "weights/model_source.h"
#include "weights/packed_file.h"
#include "weights/quantizing_matrix.h"

namespace quire::models {

// Consecutive tokens of one sequence in a flat batch.
struct SequenceSlice {
  std::int32_t token_begin = 0;  // its first token in the batch
  std::int32_t num_tokens = 0;
  std::int32_t first_position = 0;  // of that token in the sequence
  std::span<const BlockId> blocks;  // of the sequence from position 0, enough for first_position + num_tokens
};

// One step's tokens, all sequences one after the other.
struct ForwardBatch {
  std::span<const TokenId> tokens;  // [num_tokens]
  std::span<const SequenceSlice> sequences;
  std::span<const std::int32_t> logit_rows;  // rows of the batch whose logits are wanted, ascending
};

struct LoadOptions {
  kernels::KvDtype kv_dtype = kernels::KvDtype::kBf16;
  // The longest sequence that will be run; 0: the model's max_position_embeddings. Matters to RoPE scaling
  // only.
  std::int64_t max_model_len = 0;
  // What matrices become; other than kNone, the model must not be quantised already.
  weights::Quantization quantization = weights::Quantization::kNone;
  // Gets what that costs each matrix, in the order of loading, also of weights that were packed before; null where nobody
  // asks.
  std::vector<weights::MatrixError>* quantization_errors = nullptr;
  // Matrices that were packed before are taken from here instead of packing them again; or null. Outlives Load only.
  const weights::PackedReader* packed = nullptr;
  // Gets what is packed, for the next time; or null.
  weights::PackedWriter* packing = nullptr;
  // Called from one thread while tensors are packed: bytes done, bytes in all, name of the tensor.
  std::function<void(std::int64_t done, std::int64_t total, std::string_view tensor)> progress;
};

class Model {
 public:
  virtual ~Model() = default;

  // Packs every tensor of `source` with all threads of `pool`. Missing, unexpected or misshapen tensors are
  // errors that name them.
  static Result<std::unique_ptr<Model>> Load(const weights::ModelSource& source, const LoadOptions& options,
                                             ThreadPool* pool, const kernels::KernelTable& kernels);

  virtual const weights::ModelConfig& config() const = 0;
  virtual std::int64_t num_parameters() const = 0;
  virtual std::int64_t weight_bytes() const = 0;   // packed
  virtual std::string weight_formats() const = 0;  // "BF16", "Q4_K + Q6_K"
  virtual kernels::KvLayout kv_layout() const = 0;

  // Workspace that ForwardHidden and Logits need for batches of at most this size.
  virtual std::size_t WorkspaceBytes(const kernels::KernelTable& kernels, int num_threads, int num_tokens,
                                     int num_logit_rows) const = 0;

  // Runs the batch: stores its keys and values in `kv`, and writes what the head turns into logits: the
  // normed last hidden states of logit_rows, `hidden` [logit_rows.size(), hidden_size]. Token ids are below
  // vocab_size and the kernels may be of any tier. Allocates nothing.
  virtual void ForwardHidden(const nn::ExecContext& context, const ForwardBatch& batch, nn::KvPool* kv,
                             float* hidden) const = 0;
  // logits [num_rows, vocab_size] of rows of ForwardHidden's output. Separate, because the logits of a whole
  // batch may not fit in memory: prompt logprobs take them a few rows at a time.
  virtual void Logits(const nn::ExecContext& context, const float* hidden, int num_rows, float* logits) const = 0;

  // Both: logits [logit_rows.size(), vocab_size].
  void Forward(const nn::ExecContext& context, const ForwardBatch& batch, nn::KvPool* kv, float* logits) const;
};

}  // namespace quire::models
