// AWQ as AutoAWQ's "gemm" version stores it, 4 bits:
//
//   qweight [in, out/8] I32    eight outputs of one input in a word
//   qzeros  [in/group, out/8]  likewise
//   scales  [in/group, out]    F16
//
//   nibble, from the lowest   0 1 2 3 4 5 6 7
//   output 8j + …             0 2 4 6 1 3 5 7        w = scale · (code − zero)
#include <array>
#include <utility>

#include "weights/quantized_matrix.h"

namespace quire::weights {
namespace {

constexpr int kPerWord = 8;
constexpr std::array<int, kPerWord> kShift = {0, 16, 4, 20, 8, 24, 12, 28};  // of output 8j + i

std::uint8_t Nibble(const TensorSource& packed, std::int64_t row, std::int64_t output) {
  const std::uint32_t word = LoadWord(packed, row * packed.columns() + output / kPerWord);
  return word >> kShift[static_cast<std::size_t>(output % kPerWord)] & 15;
}

}  // namespace

OpenedMatrix OpenAwq(const ModelSource& source, const QuantizationConfig& config, std::string_view stem) {
  MatrixTensors tensors(source, stem);
  QUIRE_TRY(const TensorSource* qweight, tensors.Require(".qweight", {"I32"}));
  QUIRE_TRY(const TensorSource* qzeros, tensors.Require(".qzeros", {"I32"}));
  QUIRE_TRY(const TensorSource* scales, tensors.Require(".scales", kScaleTypes));
  QUIRE_TRY_VOID(CheckIsMatrix(*qweight));
  const std::int64_t columns = qweight->shape[0], words = qweight->shape[1], rows = words * kPerWord;
  QUIRE_TRY(const std::int64_t num_groups, CountGroups(config, *qweight, rows, columns, *qzeros, words, *scales));

  IntegerCodes codes{.bits = 4, .num_groups = num_groups, .group_of_column = ContiguousGroups(columns, num_groups)};
  QUIRE_TRY(const std::vector<float> scale_rows, ReadFiniteFloats(*scales));
  codes.scales = Transposed<float>(scale_rows, num_groups);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t group = 0; group < num_groups; ++group) codes.zeros.push_back(Nibble(*qzeros, group, row));
  }
  codes.read = [qweight](std::int64_t row, std::uint8_t* out) {
    for (std::int64_t c = 0; c < qweight->shape[0]; ++c) out[c] = Nibble(*qweight, c, row);
  };
  MatrixInfo info{.name = qweight->name, .stem = tensors.stem(), .type_name = "AWQ", .rows = rows, .columns = columns};
  info.tensors = tensors.Take();
  return MakeIntegerMatrix(std::move(info), std::move(codes));
}

}  // namespace quire::weights
