// y = x Wᵀ + b for any weight format, and the embedding, which reads single rows of the same packed matrices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mapped_file.h"
#include "base/strong_id.h"
#include "kernels/kernel_table.h"
#include "nn/exec_context.h"

namespace quire::nn {

// A packed matrix and the memory that holds it: its own, or a part of a mapped file.
class PackedWeights {
 public:
  // Zero weights, to be filled panel by panel.
  static Result<PackedWeights> Create(kernels::WeightFormat format, std::int64_t num_outputs, std::int64_t num_inputs);
  // Weights that were packed before and lie in `file`, on a cache line.
  static PackedWeights View(const kernels::PackedMatrix& matrix, std::shared_ptr<const MappedFile> file);

  const kernels::PackedMatrix& matrix() const { return matrix_; }
  // Only of what Create made.
  std::byte* panel(std::int64_t index) {
    return memory_.data() + static_cast<std::size_t>(index) * kernels::PanelBytes(matrix_.format, matrix_.k);
  }
  std::size_t bytes() const { return MatrixBytes(matrix_.format, matrix_.n, matrix_.k); }
  static std::size_t MatrixBytes(kernels::WeightFormat format, std::int64_t num_outputs, std::int64_t num_inputs) {
    return kernels::PanelBytes(format, num_inputs) * static_cast<std::size_t>(kernels::NumPanels(num_outputs));
  }

 private:
  AlignedBuffer memory_;  // empty when the weights are in file_
  // Shared by all matrices of a model that lie in the same file; null when the weights are in memory_.
  std::shared_ptr<const MappedFile> file_;
  kernels::PackedMatrix matrix_;
};

// Inputs whose weights would have spoilt the scales of their neighbours (weights/outlier_columns.h), and are kept apart in
// BF16. What the quantised matrix holds in their columns has no meaning: it meets zeros.
struct OutlierColumns {
  std::vector<std::int32_t> columns;           // of the matrices, ascending; empty: none
  std::vector<kernels::PackedMatrix> weights;  // of every segment, [n, columns.size()] in BF16
};

// The segments of one Linear are stacked along the outputs and may have different formats (a file may keep
// attn_v in a finer type than attn_q and attn_k). Views matrices that the model owns, so that a head can
// share the embedding's. Const after construction. Threads split outputs and rows, never the inner dimension:
// a row of y is a function of that row of x. With outlier columns y = x'·Wᵀ + x[columns]·outliersᵀ + b, in this order,
// where x' is x with zeros in those columns: neither the scales of the weights nor those of 8-bit activations see them.
class Linear {
 public:
  Linear() = default;
  // `bias` is empty or has one entry for every output. All segments have the same k. `input_order` is empty, or says
  // which input meets column i of the matrices: a permutation of 0 … k−1.
  Linear(std::vector<kernels::PackedMatrix> segments, std::vector<float> bias,
         std::vector<std::int32_t> input_order = {}, OutlierColumns outliers = {});

  std::int64_t num_inputs() const { return num_inputs_; }
  std::int64_t num_outputs() const { return num_outputs_; }

  // Bytes of the prepared activations of one row, in all kinds that the segments need, and of the row as its columns are
  // arranged where that is another.
  std::size_t PreparedRowBytes(const kernels::KernelTable& kernels) const;
  // Converts rows [begin, end) of x [num_rows, num_inputs] (row stride ld_x) once for every kind of
  // activation that the segments read. `prepared` holds num_rows · PreparedRowBytes() and is 64-byte aligned.
  // Rows may be prepared by different threads.
  void Prepare(const kernels::KernelTable& kernels, const float* x, std::int64_t ld_x, std::int64_t begin,
               std::int64_t end, std::int64_t num_rows, std::byte* prepared) const;
  // y [num_rows, num_outputs] with row stride ld_y, from what Prepare made of all rows.
  void Multiply(const ExecContext& context, const std::byte* prepared, std::int64_t num_rows, float* y,
                std::int64_t ld_y) const;
  // Both; takes num_rows · PreparedRowBytes() of the workspace meanwhile.
  void Forward(const ExecContext& context, const float* x, std::int64_t ld_x, std::int64_t num_rows, float* y,
               std::int64_t ld_y) const;

 private:
  struct Segment {
    kernels::PackedMatrix matrix;
    std::int64_t first_output = 0;
    std::int64_t first_panel = 0;  // counted over all segments
    kernels::PackedMatrix outliers = {};
  };

  bool arranges() const { return !input_order_.empty() || num_outliers() > 0; }
  std::int64_t num_outliers() const { return static_cast<std::int64_t>(outlier_columns_.size()); }
  std::size_t OutlierRowBytes(const kernels::KernelTable& kernels) const;
  // Floats of a row in the order of the columns, with zeros for outliers; and, behind them, of the outliers.
  std::int64_t ArrangedFloats() const;
  std::int64_t ArrangedRowFloats() const;
  void Arrange(const float* x, std::int64_t ld_x, std::int64_t num_rows, float* arranged) const;
  void MultiplyPanels(const kernels::KernelTable& kernels, const std::byte* prepared, std::int64_t num_rows,
                      std::int64_t row_begin, std::int64_t row_end, std::int64_t panel_begin, std::int64_t panel_end,
                      float* y, std::int64_t ld_y) const;
  // Adds what the outliers contribute to outputs of the panels [panel_begin, panel_end) of a segment. `activations` and
  // `out` are those of the first row.
  void AddOutliers(const kernels::KernelTable& kernels, const Segment& segment, const std::byte* activations,
                   std::int64_t num_rows, std::int64_t panel_begin, std::int64_t panel_end, float* out,
                   std::int64_t ld_out) const;

  std::vector<Segment> segments_;
  std::vector<float> bias_;                // [num_outputs], or empty
  std::vector<std::int32_t> input_order_;  // [num_inputs], or empty
  std::vector<std::int32_t> outlier_columns_;
  std::int64_t num_inputs_ = 0, num_outputs_ = 0, num_panels_ = 0;
};

// Calls body(begin, end) on ranges of rows over the threads, on the calling thread alone when the work
// (num_rows · floats_per_row) is too small to be worth a fork and a join. A range is so short that its rows stay in a core's
// caches from one operator in `body` to the next.
template <typename Body>
void ForRows(const ExecContext& context, std::int64_t num_rows, std::int64_t floats_per_row, Body&& body) {
  // A fork and join costs a few microseconds, in which one core handles about this many floats of a simple
  // operator.
  constexpr std::int64_t kWorthForking = 16384;
  if (num_rows * floats_per_row < kWorthForking) {
    if (num_rows > 0) body(std::int64_t{0}, num_rows);
    return;
  }
  constexpr std::int64_t kResidentFloats = 32768;  // 128 KiB
  const std::int64_t rows = std::max(kResidentFloats / std::max(floats_per_row, std::int64_t{1}), std::int64_t{1});
  context.pool->ParallelFor(num_rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += rows) body(begin, std::min(begin + rows, end));
  });
}

struct EmbeddingTable {
  kernels::PackedMatrix matrix;  // [vocab_size, hidden_size]
  OutlierColumns outliers;       // for the only segment that it is
};

// out [tokens.size(), hidden_size]: row t is row tokens[t] of the table. Ids are below the vocabulary's size.
void Embed(const ExecContext& context, const EmbeddingTable& table, std::span<const TokenId> tokens, float* out);

}  // namespace quire::nn
