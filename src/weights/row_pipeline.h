// Rows of floats → rows of a storage type, in parallel and in pieces, for files larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "weights/tensor_source.h"

namespace quire::weights {

// Writes the floats of one row, [columns]; called from several threads at once.
using FillRow = std::function<void(std::int64_t row, float* out)>;
// Takes the encoded rows in their order.
using RowSink = std::function<Result<>(std::span<const std::byte> rows)>;

// A value that is not finite, or that the type cannot hold (its scales are F16), is an error that names the tensor.
Result<> EncodeRows(ThreadPool* pool, std::string_view tensor, const TypeTraits& type, std::int64_t rows,
                    std::int64_t columns, const FillRow& fill, const RowSink& sink);

}  // namespace quire::weights
