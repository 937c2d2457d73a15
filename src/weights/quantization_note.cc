#include "weights/quantization_note.h"

#include <cmath>

#include "weights/byte_reader.h"
#include "weights/outlier_columns.h"

namespace quire::weights {
namespace {

template <typename T>
void Append(const T& value, std::vector<std::byte>* out) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out->insert(out->end(), bytes.begin(), bytes.end());
}

Result<double> ReadSum(ByteReader* reader) {
  QUIRE_TRY(const auto value, reader->Read<double>("a sum of squares"));
  if (std::isfinite(value) && value >= 0) return value;
  return Fail(ErrorCode::kCorrupt, "{} is no sum of squares", value);
}

}  // namespace

std::vector<std::byte> WriteQuantizationNote(const QuantizationNote& note) {
  std::vector<std::byte> bytes;
  Append(static_cast<std::uint32_t>(note.outlier_columns.size()), &bytes);
  Append(static_cast<std::uint32_t>(note.errors.size()), &bytes);
  for (const std::int32_t column : note.outlier_columns) Append(column, &bytes);
  for (const QuantizationError& error : note.errors) {
    Append(error.squared_error, &bytes);
    Append(error.squared_norm, &bytes);
    Append(error.all_quantised_error, &bytes);
  }
  return bytes;
}

Result<QuantizationNote> ReadQuantizationNote(std::span<const std::byte> bytes, std::int64_t columns,
                                              std::size_t num_matrices) {
  ByteReader reader(bytes, "the note");
  QUIRE_TRY(const auto num_columns, reader.Read<std::uint32_t>("the number of outlier columns"));
  QUIRE_TRY(const auto num_errors, reader.Read<std::uint32_t>("the number of matrices"));
  if (num_columns > OutlierColumnsMax(columns)) {
    return Fail(ErrorCode::kCorrupt, "{} outlier columns; at most {} of {} are kept", num_columns,
                OutlierColumnsMax(columns), columns);
  }
  if (num_errors != num_matrices) {
    return Fail(ErrorCode::kCorrupt, "errors of {} matrices, where there are {}", num_errors, num_matrices);
  }
  QuantizationNote note;
  std::int64_t last = -1;
  for (std::uint32_t i = 0; i < num_columns; ++i) {
    QUIRE_TRY(const auto column, reader.Read<std::int32_t>("an outlier column"));
    if (column <= last || column >= columns) {
      return Fail(ErrorCode::kCorrupt, "outlier column {} is {}; it must lie above {} and below {}", i, column, last,
                  columns);
    }
    note.outlier_columns.push_back(column);
    last = column;
  }
  for (std::size_t i = 0; i < num_matrices; ++i) {
    QuantizationError error;
    QUIRE_TRY(error.squared_error, ReadSum(&reader));
    QUIRE_TRY(error.squared_norm, ReadSum(&reader));
    QUIRE_TRY(error.all_quantised_error, ReadSum(&reader));
    note.errors.push_back(error);
  }
  if (reader.left() != 0) return Fail(ErrorCode::kCorrupt, "{} bytes too many", reader.left());
  return note;
}

}  // namespace quire::weights
