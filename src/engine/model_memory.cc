#include "engine/model_memory.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/loader.h"
#include "engine/tiers/open_tiers.h"
#include "kernels/kv_layout.h"
#include "nn/linear.h"
#include "weights/quantizing_matrix.h"
#include "weights/tensor_names.h"

namespace quire::engine {

Result<std::int64_t> EstimateWeightBytes(const weights::ModelSource& source, weights::Quantization quantization) {
  using weights::TensorName;
  using weights::TensorPart;
  using weights::TensorRole;
  // A folder that ties its head to the embedding may hold a copy of it that nobody loads.
  const bool has_no_head = source.config().tie_word_embeddings && !source.is_gguf();
  const std::string head = TensorName(source.is_gguf(), TensorRole::kLmHead, TensorPart::kWeight, 0);
  if (quantization != weights::Quantization::kNone) {
    QUIRE_TRY_VOID(weights::CheckNotQuantized(source, quantization));
  }
  std::vector<weights::QuantizationError> errors;  // of a matrix that nobody decodes
  std::int64_t bytes = 0;
  std::set<std::string> stems;  // of matrices: some are kept in several tensors
  for (const weights::TensorSource& tensor : source.tensors()) {
    if (has_no_head && tensor.name == head) continue;
    if (tensor.shape.size() < 2) {  // becomes floats
      bytes += tensor.columns() * static_cast<std::int64_t>(sizeof(float));
      continue;
    }
    const std::string stem = tensor.name.substr(0, tensor.name.rfind('.'));
    if (!stems.insert(stem).second) continue;
    QUIRE_TRY(std::unique_ptr<weights::MatrixSource> matrix, source.FindMatrix(stem));
    if (matrix == nullptr) {  // a part of one that has been met, or will be
      bytes += static_cast<std::int64_t>(tensor.data.size());
      continue;
    }
    errors.resize(static_cast<std::size_t>(matrix->info().rows));
    matrix = weights::QuantizeMatrix(std::move(matrix), source, quantization, {}, errors);
    const weights::MatrixInfo& info = matrix->info();
    bytes += static_cast<std::int64_t>(nn::PackedWeights::MatrixBytes(info.packed, info.rows, info.columns));
  }
  return bytes;
}

Result<ModelMemory> MeasureModel(const EngineOptions& options, std::int64_t budget_bytes, std::int64_t kv_bytes_max) {
  QUIRE_TRY(const std::unique_ptr<weights::ModelSource> source, weights::ModelSource::Open(options.model));
  ModelMemory memory;
  QUIRE_TRY(memory.weight_bytes, EstimateWeightBytes(*source, options.quantization));
  const weights::ModelConfig& config = source->config();
  const kernels::KvLayout layout{.num_layers = config.num_layers,
                                 .num_kv_heads = config.num_kv_heads,
                                 .head_dim = config.head_dim,
                                 .dtype = options.kv_dtype};
  const auto block_bytes = static_cast<std::int64_t>(layout.block_bytes());
  const auto mebibytes = [](std::int64_t bytes) { return fmt::format("{:.1f} MiB", double(bytes) / (1 << 20)); };
  EngineOptions planned = options;
  memory.swap_bytes = options.swap_memory_bytes + (HasTiers(options) ? options.kv_transfer_bytes : 0);
  const std::int64_t room = budget_bytes - memory.weight_bytes - memory.swap_bytes;
  if (planned.kv_memory_bytes == 0) planned.kv_memory_bytes = std::min(kv_bytes_max, room);
  if (room < planned.kv_memory_bytes || planned.kv_memory_bytes < block_bytes) {
    return Fail(ErrorCode::kOutOfRange,
                "its weights take {}, and {} are left for keys and values of the {} that all models may take together",
                mebibytes(memory.weight_bytes), mebibytes(std::max<std::int64_t>(0, room)), mebibytes(budget_bytes));
  }
  QUIRE_TRY(const MemoryPlan plan, PlanMemory(planned, {.available_bytes = planned.kv_memory_bytes,
                                                        .block_bytes = block_bytes,
                                                        .model_length_max = ModelLengthMax(config),
                                                        .model_length_default = ModelLengthDefault(config)}));
  memory.kv_bytes = std::int64_t{plan.num_blocks} * block_bytes;
  return memory;
}

}  // namespace quire::engine
