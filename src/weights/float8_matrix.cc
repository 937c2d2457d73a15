// 8-bit floats with scales, as compressed-tensors ("float-quantized") and as plain FP8 checkpoints store them:
//
//   weight [out, in] F8_E4M3 or F8_E5M2
//   weight_scale or weight_scale_inv, F32 or BF16: one; one for each output, [out] or [out, 1]; or one for each block of
//     block_rows × block_columns weights, [⌈out/block_rows⌉, ⌈in/block_columns⌉]
//
//   w = scale · value, whatever the tensor is called: DeepSeek's "inverse" is that of the scale that quantised
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/float8.h"
#include "weights/quantized_matrix.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;

constexpr std::size_t kPanelGroup = 128;  // weights that share a scale in a panel

struct BlockScales {
  std::vector<float> values;  // [⌈rows/block_rows⌉, num_block_columns], finite
  std::int64_t block_rows = 1, block_columns = 1, num_block_columns = 1;

  const float* OfRow(std::int64_t row) const { return values.data() + row / block_rows * num_block_columns; }
};

class Float8Matrix final : public MatrixSource {
 public:
  Float8Matrix(MatrixInfo info, const TensorSource& weight, BlockScales scales)
      : MatrixSource(std::move(info)), weight_(weight), scales_(std::move(scales)) {
    const bool is_e4m3 = weight.type->name == "F8_E4M3";
    for (std::size_t i = 0; i < table_.size(); ++i) {
      const auto code = static_cast<std::uint8_t>(i);
      table_[i] = is_e4m3 ? ToFloat(Fp8E4m3{code}) : ToFloat(Fp8E5m2{code});
    }
  }

  Result<> Decode(std::int64_t row, RowBuffer* out) const override {
    const auto columns = static_cast<std::size_t>(info().columns);
    out->values.resize(columns);
    QUIRE_TRY_VOID(Dequantize(row, out->values.data()));  // which checks every weight
    if (info().packed == WeightFormat::kF32) return {};
    out->codes.resize(columns);
    std::memcpy(out->codes.data(), weight_.data.data() + row * info().columns, columns);
    out->scales.resize((columns + kPanelGroup - 1) / kPanelGroup);
    for (std::size_t group = 0; group < out->scales.size(); ++group) {
      const auto column = static_cast<std::int64_t>(group * kPanelGroup);
      out->scales[group] = scales_.OfRow(row)[column / scales_.block_columns];
    }
    return {};
  }

  Result<> Dequantize(std::int64_t row, float* out) const override {
    const std::byte* codes = weight_.data.data() + row * info().columns;
    const float* scales = scales_.OfRow(row);
    for (std::int64_t c = 0; c < info().columns; ++c) {
      const float value = table_[std::to_integer<std::size_t>(codes[c])], scale = scales[c / scales_.block_columns];
      out[c] = scale * value;
      // A block of zeros may have any scale; where a scale of zero hides weights, they were lost.
      if (!std::isfinite(value) || (scale == 0 && value != 0)) return BadWeight(row, c, value, scale);
    }
    return {};
  }

 private:
  std::unexpected<Error> BadWeight(std::int64_t row, std::int64_t column, float value, float scale) const {
    if (scale == 0) {
      return Fail(ErrorCode::kCorrupt, "tensor {}: row {}, column {} is {}, but its scale is zero", info().name, row,
                  column, value);
    }
    return Fail(ErrorCode::kCorrupt, "tensor {}: row {}, column {} is {}; finite numbers are wanted", info().name, row,
                column, value);
  }

  const TensorSource& weight_;
  const BlockScales scales_;
  std::array<float, 256> table_{};
};

// Which of the kinds of scales a tensor holds, its shape says.
Result<BlockScales> ReadBlockScales(const TensorSource& tensor, const QuantizationConfig& config, std::int64_t rows,
                                    std::int64_t columns) {
  BlockScales scales;
  QUIRE_TRY(scales.values, ReadFiniteFloats(tensor));
  const auto size = static_cast<std::int64_t>(scales.values.size());
  if (config.block_rows > 0) {
    const std::int64_t down = (rows + config.block_rows - 1) / config.block_rows;
    const std::int64_t across = (columns + config.block_columns - 1) / config.block_columns;
    const auto fits = CheckShape(
        tensor, {down, across},
        fmt::format("[{}, {}] weights in blocks of {} × {}", rows, columns, config.block_rows, config.block_columns));
    if (fits) {
      scales.block_rows = config.block_rows;
      scales.block_columns = config.block_columns;
      scales.num_block_columns = across;
      return scales;
    }
    if (size != 1 && size != rows) return std::unexpected(fits.error());
  }
  if (size != 1 && (size != rows || tensor.shape.front() != rows)) {
    return Fail(ErrorCode::kCorrupt, "tensor {} has shape [{}]; one scale, or one for each of {} outputs is wanted",
                tensor.name, fmt::join(tensor.shape, ", "), rows);
  }
  scales.block_rows = size == 1 ? rows : 1;
  scales.block_columns = columns;
  return scales;
}

}  // namespace

OpenedMatrix OpenFloat8(const ModelSource& source, const QuantizationConfig& config, std::string_view stem) {
  MatrixTensors tensors(source, stem);
  QUIRE_TRY(const TensorSource* weight, tensors.Require(".weight", {"F8_E4M3", "F8_E5M2"}));
  QUIRE_TRY(const TensorSource* scale, tensors.Optional(".weight_scale_inv", kScaleTypes));
  if (scale == nullptr) {
    QUIRE_TRY(scale, tensors.Require(".weight_scale", kScaleTypes));
  }
  tensors.IgnoreActivationScales();
  QUIRE_TRY_VOID(CheckIsMatrix(*weight));
  const std::int64_t rows = weight->shape[0], columns = weight->shape[1];
  QUIRE_TRY(BlockScales scales, ReadBlockScales(*scale, config, rows, columns));
  const bool is_e4m3 = weight->type->name == "F8_E4M3";
  const bool fills_groups = scales.block_columns >= columns || scales.block_columns % std::int64_t{kPanelGroup} == 0;
  const bool fits_panel =  // whose scales are 2^8 times as large
      fills_groups && std::ranges::all_of(scales.values, [](float value) { return std::abs(value) < 0x1p119f; });
  MatrixInfo info{.name = weight->name,
                  .stem = tensors.stem(),
                  .type_name = is_e4m3 ? "FP8 E4M3" : "FP8 E5M2",
                  .rows = rows,
                  .columns = columns,
                  .packed = !fits_panel ? WeightFormat::kF32
                            : is_e4m3   ? WeightFormat::kFp8E4m3
                                        : WeightFormat::kFp8E5m2};
  info.tensors = tensors.Take();
  info.quantized_layout = true;
  return std::make_unique<Float8Matrix>(std::move(info), *weight, std::move(scales));
}

}  // namespace quire::weights
