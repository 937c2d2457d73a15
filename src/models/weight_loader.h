// From the tensors of a model file to packed matrices: finds them by name, checks their shapes, packs them
// with all threads, gives the file's pages back, and knows in the end which tensors nobody asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "models/model.h"
#include "nn/linear.h"
#include "weights/matrix_source.h"
#include "weights/model_source.h"
#include "weights/quantization_note.h"

namespace quire::models {

// In which order the rows of a projection lie in the file. GGUF files of the llama family keep the rows of Q
// and K in the order that rotates neighbours; quire rotates halves of a head (i, i + rotary_dim/2), as
// Hugging Face does:
//
//   row of a head:     0 1 2 … r/2−1 | r/2 r/2+1 … r−1 | r … head_dim−1
//   lies in the file:  0 2 4 … r−2   | 1   3     … r−1 | r … head_dim−1        r = rotary_dim
struct RowOrder {
  int head_dim = 0;  // 0: as they are
  int rotary_dim = 0;

  std::int64_t FileRow(std::int64_t row) const {
    if (head_dim == 0) return row;
    const std::int64_t head = row / head_dim * head_dim, i = row % head_dim, half = rotary_dim / 2;
    if (i >= rotary_dim) return row;
    return head + (i < half ? 2 * i : 2 * (i - half) + 1);
  }
};

// One tensor of a (possibly fused) projection.
struct MatrixPart {
  std::string name;       // without ".weight" / ".bias"
  std::int64_t rows = 0;  // what its shape must be
  RowOrder order = {};
};

enum class BiasRule {
  kNone,       // a bias is an unexpected tensor
  kRequired,   // a missing bias is an error
  kIfPresent,  // GGUF, whose metadata say nothing about biases
};

class WeightLoader {
 public:
  struct Rows {  // a matrix on its way into a segment
    std::unique_ptr<weights::MatrixSource> matrix;
    RowOrder order;
    // [rows of the file], filled as they are packed; empty if not quantised here.
    std::vector<weights::QuantizationError> errors = {};
  };

  WeightLoader(const weights::ModelSource& source, const LoadOptions& options, ThreadPool* pool);

  // The parts [rows, columns] stacked along the outputs. Neighbours of the same type share a segment. What is
  // packed is added to `storage`, which must outlive the Linear. Parts whose columns come in different orders cannot
  // share activations: those that differ from the first become floats.
  Result<nn::Linear> LoadLinear(std::span<const MatrixPart> parts, std::int64_t columns, BiasRule bias,
                                std::vector<nn::PackedWeights>* storage);
  // One matrix of rows × columns, its columns in the order of the inputs. `name` without ".weight"; `storage` as above.
  Result<nn::EmbeddingTable> LoadEmbedding(const std::string& name, std::int64_t rows, std::int64_t columns,
                                           std::vector<nn::PackedWeights>* storage);
  // A vector as floats.
  Result<std::vector<float>> LoadVector(const std::string& tensor_name, std::int64_t size, RowOrder order = {});

  bool Has(std::string_view tensor_name) const { return source_.Find(tensor_name) != nullptr; }
  // Marks the tensors of a matrix as known though nothing reads them. `name` without ".weight".
  void Ignore(std::string_view name);
  // An error that names the tensors that nobody asked for.
  Result<> CheckAllUsed() const;

  std::int64_t num_parameters() const { return num_parameters_; }
  std::int64_t packed_bytes() const { return packed_bytes_; }
  // Types of the matrices, the ones with most bytes first: "Q4_K + Q6_K".
  std::string FormatNames() const;

 private:
  using InputOrder = std::span<const std::int32_t>;
  struct FormatBytes {
    std::string_view name;
    std::int64_t bytes = 0;
  };

  // What a Linear is made of, but for its bias.
  struct Stack {
    std::vector<kernels::PackedMatrix> segments;
    nn::OutlierColumns outliers;
  };

  Result<const weights::TensorSource*> Find(const std::string& tensor_name, std::span<const std::int64_t> shape);
  Result<std::unique_ptr<weights::MatrixSource>> FindMatrix(const std::string& name, std::int64_t rows,
                                                            std::int64_t columns);
  Result<std::vector<Rows>> FindRows(std::span<const MatrixPart> parts, std::int64_t columns);
  // What the packed file says of matrices when they are quantised; nothing when there is none, or it says nothing.
  Result<weights::QuantizationNote> ReadNote(const weights::PackedKey& key, std::span<const Rows> matrices) const;
  // Makes the matrices be packed in the format that the options ask for. Gives what ReadNote does, or else the columns
  // to keep, and no errors.
  Result<weights::QuantizationNote> Quantize(const weights::PackedKey& key, std::span<Rows> matrices);
  // When they are packed: hands on what that cost them.
  void ReportErrors(const weights::PackedKey& key, std::span<const Rows> matrices, weights::QuantizationNote note);
  // Matrices with a format and an order of columns in common become a segment. `parts` are their names.
  Result<Stack> PackStack(std::span<const MatrixPart> parts, std::span<Rows> matrices, std::int64_t columns,
                          InputOrder input_order, std::vector<nn::PackedWeights>* storage);
  Result<nn::PackedWeights> PackOutliers(std::span<const MatrixPart> parts, std::int64_t columns,
                                         const std::vector<std::int32_t>& outliers);
  // Empty when the parts say nothing.
  static std::vector<std::int32_t> CommonInputOrder(std::span<const Rows> parts);
  Result<nn::PackedWeights> Pack(kernels::WeightFormat format, std::span<const Rows> parts, std::int64_t columns,
                                 InputOrder input_order);
  // Fills `packed` panel by panel, with all threads.
  Result<> PackPanels(std::span<const Rows> parts, InputOrder input_order, std::int64_t file_bytes,
                      nn::PackedWeights* packed);
  Result<std::vector<float>> LoadBias(const MatrixPart& part, BiasRule rule, bool quantized_layout);
  void CountUse(const weights::MatrixSource& matrix);
  void Report(std::int64_t bytes, std::string_view tensor_name);

  const weights::ModelSource& source_;
  const LoadOptions& options_;
  ThreadPool* pool_;
  std::unordered_set<std::string_view> used_;  // names, owned by the source
  std::vector<FormatBytes> formats_;
  std::int64_t num_parameters_ = 0, packed_bytes_ = 0, done_bytes_ = 0;
};

}  // namespace quire::models
