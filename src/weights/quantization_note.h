// What was found out when matrices that share their inputs were quantised while they were loaded: which columns were
// kept in BF16, and what was lost. A file of packed weights keeps it beside them, because a start that maps the weights
// reads none of those that they were made of. As hostile as the rest of such a file.
//
//   | number of columns u32 | number of matrices u32 | columns i32 … | squared error, squared norm, all-quantised error f64 | … |
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "weights/quantizing_matrix.h"

namespace quire::weights {

struct QuantizationNote {
  std::vector<std::int32_t> outlier_columns;  // ascending
  std::vector<QuantizationError> errors;      // of each matrix
};

std::vector<std::byte> WriteQuantizationNote(const QuantizationNote& note);

// The note about `num_matrices` matrices with `columns` columns.
Result<QuantizationNote> ReadQuantizationNote(std::span<const std::byte> bytes, std::int64_t columns,
                                              std::size_t num_matrices);

}  // namespace quire::weights
