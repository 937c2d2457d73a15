// Quantising while a model is loaded: a matrix of floats that hands out its rows in a smaller format, and counts what
// that costs. What int8 and int4 store is, bit for bit, what `quire quantize` writes as Q8_0 and Q4_K_M, but for matrices
// with outlier columns (outlier_columns.h), which those files have no place for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/gguf_export.h"
#include "weights/matrix_source.h"
#include "weights/model_source.h"

namespace quire::weights {

enum class Quantization : std::uint8_t { kNone, kInt8, kInt4, kFp8 };
inline constexpr std::array kQuantizations = {Quantization::kNone, Quantization::kInt8, Quantization::kInt4,
                                              Quantization::kFp8};

// "none", "int8", "int4", "fp8".
std::string_view QuantizationName(Quantization quantization);
Result<Quantization> ParseQuantization(std::string_view name);

// The mix of types that int8 and int4 stand for, Q8_0 and Q4_K_M; null for the others, which no GGUF file holds.
const GgufFileType* GgufMixOf(Quantization quantization);

// Whether columns that would hurt are kept in BF16. Not with fp8: a scale that is too large costs a small weight the bits
// of its integer code, but a float has all of its bits until it is 2^14 times smaller than the largest of its group.
bool KeepsOutlierColumns(Quantization quantization);

// What one row lost, or a matrix.
struct QuantizationError {
  double squared_error = 0, squared_norm = 0;
  double all_quantised_error = 0;  // what squared_error would be without outlier columns
};

struct MatrixError {
  std::string name;
  std::string_view type;  // what it became, "Q4_K"; lives as long as the program
  QuantizationError error;
  std::int64_t num_outlier_columns = 0;

  // √(Σ (stored − w)² / Σ w²); 0 for a matrix of zeros.
  double relative_rms() const;
  // The same, if no column had been kept apart.
  double all_quantised_rms() const;
};

// Sums the rows in their order, so that the result does not depend on threads.
QuantizationError SumErrors(std::span<const QuantizationError> rows);
// All of them as one: "43 matrices".
MatrixError SumErrors(std::span<const MatrixError> matrices);
// One line a matrix, the worst first, below a line of headings: name, type, relative RMS error, number of outlier columns
// and what the error would be without them, between tabs.
std::string QuantizationTable(std::span<const MatrixError> matrices);

// A model whose weights are quantised already loses twice: an error, which names what is quantised.
Result<> CheckNotQuantized(const ModelSource& source, Quantization quantization);

// The matrix in the format that `quantization` wants for a matrix of this name. Matrices whose rows no block divides
// are given back as they are. Columns that are `kept` apart, ascending, are quantised as zeros, and whoever multiplies
// leaves them out; the error counts them as BF16. `errors` [rows] outlives the result, which writes an element when it
// decodes that row: a row must not be decoded by two threads.
std::unique_ptr<MatrixSource> QuantizeMatrix(std::unique_ptr<MatrixSource> matrix, const ModelSource& source,
                                             Quantization quantization, std::vector<std::int32_t> kept,
                                             std::span<QuantizationError> errors);

}  // namespace quire::weights
