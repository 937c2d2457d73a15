// The integer layouts of compressed-tensors.
//
//   pack-quantized   weight_packed [out, ⌈in·bits/32⌉] I32   a stream of bits along the row, lowest first; each code is
//                                                            the signed value + 2^(bits−1)
//                    weight_shape [2]                        [out, in]
//                    weight_scale [out, groups]
//                    weight_zero_point [⌈out·bits/32⌉, groups] I32, a stream down the column, codes as above;
//                                      or [out, groups] I8; none: zero
//                    weight_g_idx [in]                       the group of each input; −1 everywhere: as without
//   int-quantized    weight [out, in] I8, weight_scale [out, groups] or one, weight_zero_point likewise, I8
//
//   w = scale · (value − zero_point)
#include <utility>

#include "weights/quantized_matrix.h"

namespace quire::weights {
namespace {

// Zero points as codes: 2^(bits−1) more than their value.
Result<std::vector<std::uint8_t>> ReadZeros(const TensorSource* tensor, int bits, std::int64_t rows,
                                            std::int64_t num_groups) {
  const int middle = 1 << (bits - 1);
  if (tensor == nullptr) return std::vector<std::uint8_t>(1, static_cast<std::uint8_t>(middle));
  std::vector<std::uint8_t> zeros(static_cast<std::size_t>(rows * num_groups));
  if (tensor->type->name == "I32") {
    const std::int64_t words = (rows * bits + 31) / 32;
    QUIRE_TRY_VOID(CheckShape(*tensor, {words, num_groups}, fmt::format("{} outputs of {} bits", rows, bits)));
    for (std::int64_t group = 0; group < num_groups; ++group) {
      ReadBitStream(
          rows, bits, [&](std::int64_t word) { return LoadWord(*tensor, word * num_groups + group); },
          zeros.data() + group * rows);
    }
    return Transposed<std::uint8_t>(zeros, num_groups);
  }
  QUIRE_TRY(const std::vector<std::int32_t> values, ReadIntegers(*tensor));
  if (values.size() != zeros.size() && values.size() != 1) {
    return Fail(ErrorCode::kCorrupt, "tensor {} has {} elements; {} outputs with {} scales each want {}", tensor->name,
                values.size(), rows, num_groups, zeros.size());
  }
  for (std::size_t i = 0; i < zeros.size(); ++i) {
    const std::int32_t value = values.size() == 1 ? values[0] : values[i];
    if (value < -middle || value >= middle) {
      return Fail(ErrorCode::kCorrupt, "tensor {}: the zero point {} is out of the range of {} bits", tensor->name,
                  value, bits);
    }
    zeros[i] = static_cast<std::uint8_t>(value + middle);
  }
  return zeros;
}

// The number of bits with which the words of a row hold its columns, as one of the schemes says.
Result<int> PackedBits(const QuantizationConfig& config, const TensorSource& packed, std::int64_t columns,
                       std::int64_t num_groups) {
  for (const WeightScheme& scheme : config.schemes) {
    const bool same_words = packed.shape[1] == (columns * scheme.bits + 31) / 32;
    const bool same_groups = (scheme.group_size == 0 ? columns : scheme.group_size) * num_groups == columns;
    if (!scheme.is_float && same_words && same_groups) return scheme.bits;
  }
  return Fail(ErrorCode::kCorrupt,
              "tensor {}: {} words for {} inputs with {} scales are of none of the {} schemes in quantization_config",
              packed.name, packed.shape[1], columns, num_groups, config.schemes.size());
}

}  // namespace

OpenedMatrix OpenPackedIntegers(const ModelSource& source, const QuantizationConfig& config, std::string_view stem) {
  MatrixTensors tensors(source, stem);
  QUIRE_TRY(const TensorSource* packed, tensors.Require(".weight_packed", {"I32"}));
  QUIRE_TRY(const TensorSource* shape, tensors.Require(".weight_shape", {"I64", "I32"}));
  QUIRE_TRY(const TensorSource* scale, tensors.Require(".weight_scale", kScaleTypes));
  QUIRE_TRY(const TensorSource* zero_point, tensors.Optional(".weight_zero_point", {"I32", "I8"}));
  QUIRE_TRY(const TensorSource* g_idx, tensors.Optional(".weight_g_idx", {"I32", "I64"}));
  tensors.IgnoreActivationScales();
  QUIRE_TRY_VOID(CheckIsMatrix(*packed));
  QUIRE_TRY(const std::vector<std::int32_t> sides, ReadIntegers(*shape));
  const std::int64_t rows = packed->shape[0];
  if (sides.size() != 2 || sides[0] != rows || sides[1] <= 0) {
    return Fail(ErrorCode::kCorrupt, "tensor {} says [{}], but {} has {} outputs", shape->name, fmt::join(sides, ", "),
                packed->name, rows);
  }
  const std::int64_t columns = sides[1];
  QUIRE_TRY(RowScales scales, ReadRowScales(*scale, rows, columns));
  IntegerCodes codes{.num_groups = scales.num_groups, .scales = std::move(scales.values)};
  QUIRE_TRY(codes.bits, PackedBits(config, *packed, columns, codes.num_groups));
  QUIRE_TRY(codes.group_of_column, ReadGroupIndex(g_idx, columns, codes.num_groups));
  QUIRE_TRY(codes.zeros, ReadZeros(zero_point, codes.bits, rows, codes.num_groups));
  codes.read = [packed, bits = codes.bits, columns](std::int64_t row, std::uint8_t* out) {
    const std::int64_t first_word = row * packed->columns();
    ReadBitStream(columns, bits, [&](std::int64_t word) { return LoadWord(*packed, first_word + word); }, out);
  };
  MatrixInfo info{.name = packed->name, .stem = tensors.stem(), .rows = rows, .columns = columns};
  info.type_name = codes.bits == 4 ? "W4A16" : "W8A16";
  info.tensors = tensors.Take();
  return MakeIntegerMatrix(std::move(info), std::move(codes));
}

OpenedMatrix OpenInt8(const ModelSource& source, const QuantizationConfig&, std::string_view stem) {
  MatrixTensors tensors(source, stem);
  QUIRE_TRY(const TensorSource* weight, tensors.Require(".weight", {"I8"}));
  QUIRE_TRY(const TensorSource* scale, tensors.Require(".weight_scale", kScaleTypes));
  QUIRE_TRY(const TensorSource* zero_point, tensors.Optional(".weight_zero_point", {"I8"}));
  tensors.IgnoreActivationScales();
  QUIRE_TRY_VOID(CheckIsMatrix(*weight));
  const std::int64_t rows = weight->shape[0], columns = weight->shape[1];
  QUIRE_TRY(RowScales scales, ReadRowScales(*scale, rows, columns));
  IntegerCodes codes{.bits = 8,
                     .num_groups = scales.num_groups,
                     .group_of_column = ContiguousGroups(columns, scales.num_groups),
                     .scales = std::move(scales.values)};
  QUIRE_TRY(codes.zeros, ReadZeros(zero_point, 8, rows, codes.num_groups));
  codes.read = ReadSignedBytes(*weight);
  MatrixInfo info{.name = weight->name, .stem = tensors.stem(), .type_name = "INT8", .rows = rows, .columns = columns};
  info.tensors = tensors.Take();
  return MakeIntegerMatrix(std::move(info), std::move(codes));
}

}  // namespace quire::weights
