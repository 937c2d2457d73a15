// compressed-tensors' "sparse-24-bitmask": of every four neighbours in a row two are stored.
//
//   compressed [out, in/2]   the stored values, in their order: BF16, F16, F32, or I8 and F8 with a weight_scale
//   bitmask [out, ⌈in/8⌉] U8 a bit for each weight, lowest first: whether it is stored
//   shape [2] or [2, 1]      [out, in]
#include <algorithm>
#include <bit>
#include <utility>

#include "weights/quantized_matrix.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;

struct Sparse24 {
  const TensorSource* values = nullptr;
  const TensorSource* bitmask = nullptr;
  std::int64_t rows = 0, columns = 0;

  // Calls stored(column, index in the row of stored values) for each stored weight.
  template <typename Stored>
  void ForStored(std::int64_t row, Stored stored) const {
    const std::byte* mask = bitmask->data.data() + row * bitmask->columns();
    std::int64_t index = 0;
    for (std::int64_t byte = 0; byte < bitmask->columns(); ++byte) {
      for (auto bits = std::to_integer<unsigned>(mask[byte]); bits != 0; bits &= bits - 1) {
        stored(byte * 8 + std::countr_zero(bits), index++);
      }
    }
  }
};

// Whether every four weights have two stored ones, and the last byte no others.
Result<> CheckMask(const Sparse24& sparse) {
  const std::int64_t bytes = sparse.bitmask->columns();
  for (std::int64_t row = 0; row < sparse.rows; ++row) {
    for (std::int64_t byte = 0; byte < bytes; ++byte) {
      const auto bits = std::to_integer<unsigned>(sparse.bitmask->data[static_cast<std::size_t>(row * bytes + byte)]);
      const bool half = byte * 8 + 4 == sparse.columns;
      if (std::popcount(bits & 15) != 2 || std::popcount(bits >> 4) != (half ? 0 : 2)) {
        return Fail(ErrorCode::kCorrupt, "tensor {}: row {}, column {}: two of four weights must be stored",
                    sparse.bitmask->name, row, byte * 8);
      }
    }
  }
  return {};
}

class Sparse24Floats final : public MatrixSource {
 public:
  Sparse24Floats(MatrixInfo info, const Sparse24& sparse) : MatrixSource(std::move(info)), sparse_(sparse) {}

  Result<> Decode(std::int64_t row, RowBuffer* out) const override {
    out->values.resize(static_cast<std::size_t>(info().columns));
    return Dequantize(row, out->values.data());
  }
  Result<> Dequantize(std::int64_t row, float* out) const override {
    const TensorSource& values = *sparse_.values;
    std::vector<float> stored(static_cast<std::size_t>(values.columns()));
    const std::int64_t row_bytes = values.columns() * values.type->block_bytes;
    values.type->dequantize_row(values.data.data() + row * row_bytes, values.columns(), stored.data());
    std::fill_n(out, info().columns, 0.0f);
    sparse_.ForStored(
        row, [&](std::int64_t column, std::int64_t index) { out[column] = stored[static_cast<std::size_t>(index)]; });
    return {};
  }

 private:
  const Sparse24 sparse_;
};

OpenedMatrix OpenSparseInt8(MatrixTensors* tensors, MatrixInfo info, const Sparse24& sparse) {
  QUIRE_TRY(const TensorSource* scale, tensors->Require(".weight_scale", kScaleTypes));
  tensors->Ignore(".weight_zero_point");
  tensors->IgnoreActivationScales();
  QUIRE_TRY(RowScales scales, ReadRowScales(*scale, sparse.rows, sparse.columns));
  IntegerCodes codes{.bits = 8,
                     .num_groups = scales.num_groups,
                     .group_of_column = ContiguousGroups(sparse.columns, scales.num_groups),
                     .scales = std::move(scales.values),
                     .zeros = {128},
                     .sparse = true};
  codes.read = [sparse](std::int64_t row, std::uint8_t* out) {
    const std::byte* stored = sparse.values->data.data() + row * sparse.values->columns();
    std::fill_n(out, sparse.columns, std::uint8_t{128});
    sparse.ForStored(row, [&](std::int64_t column, std::int64_t index) {
      out[column] = std::to_integer<std::uint8_t>(stored[index]) ^ 0x80;
    });
  };
  info.type_name = "INT8 2:4";
  info.tensors = tensors->Take();
  return MakeIntegerMatrix(std::move(info), std::move(codes));
}

}  // namespace

OpenedMatrix OpenSparse24(const ModelSource& source, const QuantizationConfig&, std::string_view stem) {
  MatrixTensors tensors(source, stem);
  Sparse24 sparse;
  QUIRE_TRY(sparse.values, tensors.Require(".compressed", {"BF16", "F16", "F32", "I8"}));
  QUIRE_TRY(sparse.bitmask, tensors.Require(".bitmask", {"U8"}));
  QUIRE_TRY(const TensorSource* shape, tensors.Require(".shape", {"I64", "I32"}));
  QUIRE_TRY_VOID(CheckIsMatrix(*sparse.values));
  QUIRE_TRY(const std::vector<std::int32_t> sides, ReadIntegers(*shape));
  sparse.rows = sparse.values->shape[0];
  sparse.columns = sparse.values->shape[1] * 2;
  if (sides.size() != 2 || sides[0] != sparse.rows || sides[1] != sparse.columns || sparse.columns % 4 != 0) {
    return Fail(ErrorCode::kCorrupt, "tensor {} says [{}], but {} holds half of [{}, {}], in fours", shape->name,
                fmt::join(sides, ", "), sparse.values->name, sparse.rows, sparse.columns);
  }
  QUIRE_TRY_VOID(CheckShape(*sparse.bitmask, {sparse.rows, (sparse.columns + 7) / 8}, "a bit for each weight"));
  QUIRE_TRY_VOID(CheckMask(sparse));

  MatrixInfo info{.name = sparse.values->name, .stem = tensors.stem(), .rows = sparse.rows, .columns = sparse.columns};
  const std::string_view type = sparse.values->type->name;
  if (type == "I8") return OpenSparseInt8(&tensors, std::move(info), sparse);
  info.type_name = type == "BF16" ? "BF16 2:4" : type == "F16" ? "F16 2:4" : "F32 2:4";
  info.packed = type == "BF16" ? WeightFormat::kBf16Sparse24 : sparse.values->type->packed;
  info.tensors = tensors.Take();
  info.quantized_layout = true;
  return std::make_unique<Sparse24Floats>(std::move(info), sparse);
}

}  // namespace quire::weights
