// The layouts of bitsandbytes.
//
//   LLM.int8()  weight [out, in] I8, SCB [out] F32, weight_format (one U8; 0: rows as they are)
//               w = SCB / 127 · value
//   NF4, FP4    weight [⌈n/2⌉, 1] U8                       two codes a byte, the first in the high nibble, over all n =
//                                                          out·in weights in their order
//               weight.quant_map [16] F32                  the values of the codes
//               weight.absmax [⌈n/blocksize⌉]              F32, or U8: codes of nested_quant_map
//               weight.nested_absmax, weight.nested_quant_map [256] F32
//               weight.quant_state.bitsandbytes__nf4 U8    JSON: shape, blocksize, nested_blocksize, nested_offset …
//               w = absmax · quant_map[code];   absmax = nested_quant_map[code] · nested_absmax + nested_offset
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/json.h"
#include "kernels/weight_layout.h"
#include "weights/quantized_matrix.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;

constexpr std::size_t kStateBytesMax = 64 << 10;
constexpr std::int64_t kBlockSizeMax = 1 << 20;
constexpr std::int64_t kCodes4Bit = 16, kCodes8Bit = 256;

struct State {
  std::int64_t rows = 0, columns = 0, block_size = 64, nested_block_size = 256;
  double nested_offset = 0;
};

Result<State> ParseState(const TensorSource& tensor) {
  if (tensor.data.size() > kStateBytesMax) {
    return Fail(ErrorCode::kCorrupt, "tensor {} has {} bytes; at most {} are allowed", tensor.name, tensor.data.size(),
                kStateBytesMax);
  }
  const std::string_view text(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  const std::string name = "tensor " + tensor.name;
  QUIRE_TRY(const json::value root, ParseJson(text, name, {.depth_max = 8, .refuse_duplicate_keys = true}));
  if (!root.is_object()) return Fail(ErrorCode::kCorrupt, "{} is not a JSON object", name);
  const JsonFields fields(root.get_object(), name);
  State state;
  QUIRE_TRY(const auto block_size, fields.OptionalInt("blocksize", 1, kBlockSizeMax));
  state.block_size = block_size.value_or(state.block_size);
  QUIRE_TRY(const auto nested, fields.OptionalInt("nested_blocksize", 1, kBlockSizeMax));
  state.nested_block_size = nested.value_or(state.nested_block_size);
  QUIRE_TRY(state.nested_offset, fields.DoubleOr("nested_offset", -1e30, 1e30, 0));
  const json::value* shape = fields.Find("shape");
  const json::array* sides = shape != nullptr ? shape->if_array() : nullptr;
  const auto side = [&](std::size_t i) {
    const auto* value = sides != nullptr && sides->size() == 2 ? (*sides)[i].if_int64() : nullptr;
    return value != nullptr && *value > 0 && std::in_range<std::int32_t>(*value) ? *value : 0;
  };
  state.rows = side(0);
  state.columns = side(1);
  if (state.rows == 0 || state.columns == 0) {
    return Fail(ErrorCode::kCorrupt, "{}: \"shape\" must be two sizes", name);
  }
  return state;
}

Result<> CheckSize(const TensorSource& tensor, std::int64_t size) {
  if (tensor.rows() * tensor.columns() == size) return {};
  return Fail(ErrorCode::kCorrupt, "tensor {} has {} elements; {} are wanted", tensor.name,
              tensor.rows() * tensor.columns(), size);
}

// The largest magnitude of each block, of which nested quantisation keeps codes.
Result<std::vector<float>> ReadAbsmax(MatrixTensors* tensors, const State& state) {
  QUIRE_TRY(const TensorSource* absmax, tensors->Require(".weight.absmax", {"F32", "U8"}));
  const std::int64_t size = (state.rows * state.columns + state.block_size - 1) / state.block_size;
  QUIRE_TRY_VOID(CheckSize(*absmax, size));
  if (absmax->type->name == "F32") return ReadFiniteFloats(*absmax);
  QUIRE_TRY(const TensorSource* nested, tensors->Require(".weight.nested_absmax", {"F32"}));
  QUIRE_TRY(const TensorSource* map, tensors->Require(".weight.nested_quant_map", {"F32"}));
  QUIRE_TRY_VOID(CheckSize(*nested, (size + state.nested_block_size - 1) / state.nested_block_size));
  QUIRE_TRY_VOID(CheckSize(*map, kCodes8Bit));
  QUIRE_TRY(const std::vector<float> scales, ReadFiniteFloats(*nested));
  QUIRE_TRY(const std::vector<float> values, ReadFiniteFloats(*map));
  const auto offset = static_cast<float>(state.nested_offset);
  std::vector<float> out(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < out.size(); ++i) {
    // Rounded twice, as the two steps of the definition.
    const float product = values[std::to_integer<std::size_t>(absmax->data[i])] *
                          scales[i / static_cast<std::size_t>(state.nested_block_size)];
    out[i] = product + offset;
    if (!std::isfinite(out[i])) {
      return Fail(ErrorCode::kCorrupt, "tensor {}: element {} stands for {}; finite numbers are wanted", absmax->name,
                  i, out[i]);
    }
  }
  return out;
}

class Codes4BitMatrix final : public MatrixSource {
 public:
  Codes4BitMatrix(MatrixInfo info, const TensorSource& weight, std::int64_t block_size, std::vector<float> absmax,
                  std::vector<float> values)
      : MatrixSource(std::move(info)),
        weight_(weight),
        block_size_(block_size),
        absmax_(std::move(absmax)),
        values_(std::move(values)) {}

  Result<> Decode(std::int64_t row, RowBuffer* out) const override {
    const auto columns = static_cast<std::size_t>(info().columns);
    if (info().packed == WeightFormat::kF32) {
      out->values.resize(columns);
      return Dequantize(row, out->values.data());
    }
    const std::int64_t first = row * info().columns;
    out->codes.resize(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      out->codes[c] = static_cast<std::uint8_t>(Code(first + static_cast<std::int64_t>(c)));
    }
    const auto scales = std::span(absmax_).subspan(static_cast<std::size_t>(first / block_size_),
                                                   columns / static_cast<std::size_t>(block_size_));
    out->scales.assign(scales.begin(), scales.end());
    return {};
  }

  // An absmax of zero is what bitsandbytes writes for zeros, with any codes.
  Result<> Dequantize(std::int64_t row, float* out) const override {
    const std::int64_t first = row * info().columns;
    for (std::int64_t c = 0; c < info().columns; ++c) {
      out[c] = absmax_[static_cast<std::size_t>((first + c) / block_size_)] * values_[Code(first + c)];
    }
    return {};
  }

 private:
  std::size_t Code(std::int64_t index) const {
    const auto pair = std::to_integer<std::size_t>(weight_.data[static_cast<std::size_t>(index / 2)]);
    return index % 2 == 0 ? pair >> 4 : pair & 15;
  }

  const TensorSource& weight_;
  const std::int64_t block_size_;
  const std::vector<float> absmax_;  // [⌈rows · columns / block_size⌉]
  const std::vector<float> values_;  // [16]
};

}  // namespace

OpenedMatrix OpenBitsAndBytesInt8(const ModelSource& source, const QuantizationConfig&, std::string_view stem) {
  MatrixTensors tensors(source, stem);
  QUIRE_TRY(const TensorSource* weight, tensors.Require(".weight", {"I8"}));
  QUIRE_TRY(const TensorSource* scb, tensors.Require(".SCB", {"F32"}));
  QUIRE_TRY(const TensorSource* format, tensors.Optional(".weight_format", {"U8", "I8", "I32", "I64"}));
  QUIRE_TRY_VOID(CheckIsMatrix(*weight));
  const std::int64_t rows = weight->shape[0], columns = weight->shape[1];
  QUIRE_TRY_VOID(CheckSize(*scb, rows));
  if (format != nullptr) {
    QUIRE_TRY(const std::vector<std::int32_t> values, ReadIntegers(*format));
    if (values.size() != 1 || values[0] != 0) {
      return Fail(ErrorCode::kUnsupported, "tensor {}: only the format 0, rows as they are, is supported",
                  format->name);
    }
  }
  IntegerCodes codes{.bits = 8, .num_groups = 1, .group_of_column = ContiguousGroups(columns, 1), .zeros = {128}};
  QUIRE_TRY(codes.scales, ReadFiniteFloats(*scb));
  for (float& scale : codes.scales) scale /= 127.0f;
  codes.read = ReadSignedBytes(*weight);
  MatrixInfo info{
      .name = weight->name, .stem = tensors.stem(), .type_name = "LLM.int8()", .rows = rows, .columns = columns};
  info.tensors = tensors.Take();
  return MakeIntegerMatrix(std::move(info), std::move(codes));
}

OpenedMatrix OpenBitsAndBytes4Bit(const ModelSource& source, const QuantizationConfig&, std::string_view stem) {
  MatrixTensors tensors(source, stem);
  QUIRE_TRY(const TensorSource* weight, tensors.Require(".weight", {"U8"}));
  QUIRE_TRY(const TensorSource* map, tensors.Require(".weight.quant_map", {"F32"}));
  QUIRE_TRY(const TensorSource* fp4, tensors.Optional(".weight.quant_state.bitsandbytes__fp4", {"U8"}));
  const TensorSource* state_tensor = fp4;
  if (fp4 == nullptr) {
    QUIRE_TRY(state_tensor, tensors.Require(".weight.quant_state.bitsandbytes__nf4", {"U8"}));
  }
  QUIRE_TRY(const State state, ParseState(*state_tensor));
  // No more weights than the file has codes for, before anything is allocated for them.
  QUIRE_TRY_VOID(CheckSize(*weight, (state.rows * state.columns + 1) / 2));
  QUIRE_TRY_VOID(CheckSize(*map, kCodes4Bit));
  QUIRE_TRY(std::vector<float> values, ReadFiniteFloats(*map));
  QUIRE_TRY(std::vector<float> absmax, ReadAbsmax(&tensors, state));
  const bool fits_panel = state.block_size == kernels::Traits(WeightFormat::kNf4).group &&
                          state.columns % state.block_size == 0 && std::ranges::equal(values, kernels::kNf4Values);
  MatrixInfo info{.name = weight->name,
                  .stem = tensors.stem(),
                  .type_name = fp4 != nullptr ? "FP4" : "NF4",
                  .rows = state.rows,
                  .columns = state.columns,
                  .packed = fits_panel ? WeightFormat::kNf4 : WeightFormat::kF32};
  info.tensors = tensors.Take();
  info.quantized_layout = true;
  return std::make_unique<Codes4BitMatrix>(std::move(info), *weight, state.block_size, std::move(absmax),
                                           std::move(values));
}

}  // namespace quire::weights
