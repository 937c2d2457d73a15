#include "weights/row_pipeline.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

namespace quire::weights {
namespace {

// Floats in one piece: 16 MiB, enough work for many threads and far less than a model.
constexpr std::int64_t kPieceElements = std::int64_t{4} << 20;
// Rows below this fit in every type: no scale or minimum is larger than the largest element.
constexpr float kF16Max = 65504.0f;

float LargestMagnitude(std::span<const float> values) {  // NaN and infinity are infinity
  float largest = 0;
  bool finite = true;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
    finite &= std::isfinite(value);
  }
  return finite ? largest : INFINITY;
}

}  // namespace

Result<> EncodeRows(ThreadPool* pool, std::string_view tensor, const TypeTraits& type, std::int64_t rows,
                    std::int64_t columns, const FillRow& fill, const RowSink& sink) {
  QUIRE_TRY(const std::size_t row_bytes, RowBytes(type, columns, tensor));
  const std::int64_t piece_rows =
      std::clamp<std::int64_t>(kPieceElements / std::max<std::int64_t>(columns, 1), 1, rows);
  std::vector<std::byte> piece(static_cast<std::size_t>(piece_rows) * row_bytes);
  std::atomic<std::int64_t> bad_row{-1};  // any of them; relaxed, for the pool's join publishes it
  for (std::int64_t first = 0; first < rows; first += piece_rows) {
    const std::int64_t count = std::min(piece_rows, rows - first);
    pool->ParallelFor(count, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> values(static_cast<std::size_t>(columns));
      for (std::int64_t row = begin; row < end; ++row) {
        fill(first + row, values.data());
        std::byte* out = piece.data() + static_cast<std::size_t>(row) * row_bytes;
        type.quantize_row(values.data(), columns, out);
        const float largest = LargestMagnitude(values);
        if (largest <= kF16Max) continue;
        // An F16, as a value or as a scale, may have become infinite.
        if (largest < INFINITY) type.dequantize_row(out, columns, values.data());
        if (LargestMagnitude(values) == INFINITY) bad_row.store(first + row, std::memory_order_relaxed);
      }
    });
    if (const std::int64_t row = bad_row.load(std::memory_order_relaxed); row >= 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  "tensor {}: row {} holds a value that {} cannot represent (not finite, or "
                  "too large)",
                  tensor, row, type.name);
    }
    QUIRE_TRY_VOID(sink(std::span(piece).first(static_cast<std::size_t>(count) * row_bytes)));
  }
  return {};
}

}  // namespace quire::weights
