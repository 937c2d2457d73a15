#include "weights/matrix_source.h"

#include <utility>

#include "base/check.h"

namespace quire::weights {
namespace {

class PlainMatrix final : public MatrixSource {
 public:
  PlainMatrix(const TensorSource& tensor, std::size_t row_bytes)
      : MatrixSource({.name = tensor.name,
                      .type_name = tensor.type->name,
                      .rows = tensor.rows(),
                      .columns = tensor.columns(),
                      .packed = tensor.type->packed,
                      .tensors = {&tensor}}),
        tensor_(tensor),
        row_bytes_(row_bytes) {}

  Result<> Decode(std::int64_t row, RowBuffer* out) const override {
    tensor_.type->decode_row(Row(row), info().columns, out);
    return {};
  }
  Result<> Dequantize(std::int64_t row, float* out) const override {
    tensor_.type->dequantize_row(Row(row), info().columns, out);
    return {};
  }

 private:
  const std::byte* Row(std::int64_t row) const {
    return tensor_.data.data() + row_bytes_ * static_cast<std::size_t>(row);
  }

  const TensorSource& tensor_;
  const std::size_t row_bytes_;
};

}  // namespace

Result<std::unique_ptr<MatrixSource>> OpenPlainMatrix(const TensorSource& tensor) {
  if (tensor.type->decode_row == nullptr) {
    return Fail(ErrorCode::kCorrupt,
                "tensor {} has the type {}: codes, but there is nothing that says what they stand for", tensor.name,
                tensor.type->name);
  }
  QUIRE_TRY(const std::size_t row_bytes, RowBytes(*tensor.type, tensor.columns(), tensor.name));
  CHECK(row_bytes * static_cast<std::size_t>(tensor.rows()) <= tensor.data.size());  // readers checked it
  return std::make_unique<PlainMatrix>(tensor, row_bytes);
}

}  // namespace quire::weights
