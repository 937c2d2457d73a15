// GPTQ as AutoGPTQ and GPTQModel store it, 2, 3, 4 or 8 bits. The codes of one output are a stream of bits down a
// column of words, lowest bits first; with 3 bits some cross from one word to the next.
//
//   qweight [in·bits/32, out] I32
//   qzeros  [groups, out·bits/32] I32   a stream along the row; less one (modulo 2^bits) in the first version of the
//                                       format, as they are in "gptq_v2"
//   scales  [groups, out] F16
//   g_idx   [in] I32                    the group of each input; without it groups follow each other
//
//   w = scale · (code − zero)
#include <utility>

#include "weights/quantized_matrix.h"

namespace quire::weights {
namespace {

std::string_view TypeName(int bits) {
  return bits == 2 ? "GPTQ 2-bit" : bits == 3 ? "GPTQ 3-bit" : bits == 4 ? "GPTQ 4-bit" : "GPTQ 8-bit";
}

// [rows, num_groups]
std::vector<std::uint8_t> ReadZeros(const TensorSource& qzeros, int bits, bool minus_one, std::int64_t rows,
                                    std::int64_t num_groups) {
  std::vector<std::uint8_t> zeros(static_cast<std::size_t>(rows * num_groups));
  for (std::int64_t group = 0; group < num_groups; ++group) {
    const std::int64_t first_word = group * qzeros.columns();
    ReadBitStream(
        rows, bits, [&](std::int64_t word) { return LoadWord(qzeros, first_word + word); },
        zeros.data() + group * rows);
  }
  if (minus_one) {
    for (std::uint8_t& zero : zeros) zero = static_cast<std::uint8_t>((zero + 1) & ((1 << bits) - 1));
  }
  return Transposed<std::uint8_t>(zeros, num_groups);
}

}  // namespace

OpenedMatrix OpenGptq(const ModelSource& source, const QuantizationConfig& config, std::string_view stem) {
  MatrixTensors tensors(source, stem);
  QUIRE_TRY(const TensorSource* qweight, tensors.Require(".qweight", {"I32"}));
  QUIRE_TRY(const TensorSource* qzeros, tensors.Require(".qzeros", {"I32"}));
  QUIRE_TRY(const TensorSource* scales, tensors.Require(".scales", kScaleTypes));
  QUIRE_TRY(const TensorSource* g_idx, tensors.Optional(".g_idx", {"I32", "I64"}));
  QUIRE_TRY_VOID(CheckIsMatrix(*qweight));
  const int bits = config.bits;
  const std::int64_t rows = qweight->shape[1], columns = qweight->shape[0] * 32 / bits;
  if (columns * bits != qweight->shape[0] * 32 || rows * bits % 32 != 0) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: {} words for each of {} outputs do not hold whole codes of {} bits",
                qweight->name, qweight->shape[0], rows, bits);
  }
  QUIRE_TRY(const std::int64_t num_groups,
            CountGroups(config, *qweight, rows, columns, *qzeros, rows * bits / 32, *scales));

  IntegerCodes codes{.bits = bits, .num_groups = num_groups};
  QUIRE_TRY(codes.group_of_column, ReadGroupIndex(g_idx, columns, num_groups));
  QUIRE_TRY(const std::vector<float> scale_rows, ReadFiniteFloats(*scales));
  codes.scales = Transposed<float>(scale_rows, num_groups);
  codes.zeros = ReadZeros(*qzeros, bits, config.zeros_minus_one, rows, num_groups);
  codes.read = [qweight, bits, columns](std::int64_t row, std::uint8_t* out) {
    const std::int64_t stride = qweight->columns();
    ReadBitStream(columns, bits, [&](std::int64_t word) { return LoadWord(*qweight, word * stride + row); }, out);
  };
  MatrixInfo info{
      .name = qweight->name, .stem = tensors.stem(), .type_name = TypeName(bits), .rows = rows, .columns = columns};
  info.tensors = tensors.Take();
  return MakeIntegerMatrix(std::move(info), std::move(codes));
}

}  // namespace quire::weights
