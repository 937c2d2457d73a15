// A weight matrix as the loader sees it, whatever tensors a file keeps it in: one (BF16, Q4_K), or a family of
// them (the codes, scales and zero points of AWQ, GPTQ, FP8 …). Rows come out as codes and scales for a panel, or
// as floats.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "weights/tensor_source.h"

namespace quire::weights {

struct MatrixInfo {
  std::string name;            // of its main tensor, for errors and progress
  std::string stem;            // of all its tensors, where there are several
  std::string_view type_name;  // "Q4_K", "GPTQ 4-bit"; lives as long as the program
  std::int64_t rows = 0, columns = 0;
  kernels::WeightFormat packed = kernels::WeightFormat::kF32;  // the panel format that holds the weights exactly
  // What a quantised layout keeps the matrix in, and what is known to belong to it and not needed. Of the source.
  std::vector<const TensorSource*> tensors;
  // Empty, or in which order Decode puts the columns: the one at place i belongs to input input_order[i]. GPTQ with
  // desc_act spreads the columns of a group over the row; this order brings them together.
  std::vector<std::int32_t> input_order;
  bool quantized_layout = false;  // several tensors, of a checkpoint with a quantization_config
};

// Immutable; rows may be read by several threads. Views the mapped files of the ModelSource, which outlives it.
class MatrixSource {
 public:
  explicit MatrixSource(MatrixInfo info) : info_(std::move(info)) {}
  virtual ~MatrixSource() = default;

  const MatrixInfo& info() const { return info_; }
  // One row as info().packed wants it, in input_order. An error, which names the tensor, when the row holds what no
  // weight can be.
  virtual Result<> Decode(std::int64_t row, RowBuffer* out) const = 0;
  // One row as floats in the order of the inputs, exact to the definition of the format. `out` [columns].
  virtual Result<> Dequantize(std::int64_t row, float* out) const = 0;

 private:
  const MatrixInfo info_;
};

// The matrix (or vector, which is one row) in one tensor. Refuses the types that only codes are stored in.
Result<std::unique_ptr<MatrixSource>> OpenPlainMatrix(const TensorSource& tensor);

}  // namespace quire::weights
