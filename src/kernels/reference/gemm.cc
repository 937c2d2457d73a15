#include <algorithm>
#include <cstring>

#include "kernels/activation_layout.h"
#include "kernels/reference/reference.h"
#include "kernels/weight_layout.h"

namespace quire::kernels::reference {
namespace {

template <typename T>
T LoadAt(const std::byte* base, std::int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float FloatWeight(WeightFormat format, const std::byte* panel, std::int64_t i, std::int64_t column) {
  if (format == WeightFormat::kF32) return LoadAt<float>(panel, i * kPanelWidth + column);
  if (format == WeightFormat::kF16) {
    return ToFloat(F16{LoadAt<std::uint16_t>(panel, i * kPanelWidth + column)});
  }
  return ToFloat(Bf16{LoadAt<std::uint16_t>(panel, (i / 2 * kPanelWidth + column) * 2 + i % 2)});
}

double ScaledDot(const PackedMatrix& weights, const std::byte* panel, int column, const std::byte* row) {
  const ScaledGroup layout(weights.format);
  double total = 0;
  for (std::int64_t begin = 0; begin < weights.k; begin += layout.elements, panel += layout.bytes) {
    double sum = 0;
    for (std::int64_t i = 0; i < std::min(layout.elements, weights.k - begin); ++i) {
      const int code = ScaledCode(layout, panel, i, column);
      sum += double{LoadAt<float>(row, begin + i)} * double{CodeValue(weights.format, static_cast<std::uint8_t>(code))};
    }
    total += sum * double{LoadAt<float>(panel, column)} / double{ScaleFactor(weights.format)};
  }
  return total;
}

double SparseDot(const PackedMatrix& weights, const std::byte* panel, int column, const std::byte* row) {
  double sum = 0;
  for (std::int64_t quad = 0; quad < weights.k / 4; ++quad, panel += kBf16SparseQuadBytes) {
    for (int i = 0; i < 4; ++i) {  // those that are not stored, too: NaN times one of them is NaN
      sum += double{LoadAt<float>(row, quad * 4 + i)} * double{Bf16SparseWeight(panel, i, column)};
    }
  }
  return sum;
}

double FloatDot(const PackedMatrix& weights, const std::byte* panel, int column, const std::byte* row) {
  if (weights.format == WeightFormat::kBf16Sparse24) return SparseDot(weights, panel, column, row);
  if (IsScaledFloat(Traits(weights.format))) return ScaledDot(weights, panel, column, row);
  double sum = 0;
  for (std::int64_t i = 0; i < weights.k; ++i) {
    sum += double{LoadAt<float>(row, i)} * double{FloatWeight(weights.format, panel, i, column)};
  }
  return sum;
}

double IntegerDot(const PackedMatrix& weights, const std::byte* panel, int column, const std::byte* row) {
  const FormatTraits& traits = Traits(weights.format);
  const Int8RowLayout layout(weights.k);
  double total = 0;
  for (std::int64_t index = 0; index < layout.num_blocks; ++index) {
    const BlockView block(traits, panel, weights.k, index);
    double sum = 0;
    for (int group = 0; group < block.num_elements() / traits.group; ++group) {
      // scale · Σ integer · a − min · Σ a, the sums exact
      std::int64_t dot = 0, activations = 0;
      for (int i = group * traits.group; i < (group + 1) * traits.group; ++i) {
        const int a = LoadAt<std::int8_t>(row, index * kActivationBlock + i);
        dot += block.Integer(i, column) * a;
        activations += a;
      }
      sum += double{block.Scale(group, column)} * static_cast<double>(dot) -
             double{block.Min(group, column)} * static_cast<double>(activations);
    }
    total += sum * double{LoadAt<float>(row + layout.scales, index)};
  }
  return total;
}

}  // namespace

void Gemm(const GemmArgs& args) {
  const PackedMatrix& weights = *args.weights;
  const bool integer = Traits(weights.format).integer;
  const std::size_t row_bytes = ActivationRowBytes(integer ? ActivationKind::kInt8 : ActivationKind::kF32, weights.k);
  const std::size_t panel_bytes = PanelBytes(weights.format, weights.k);
  const std::int64_t column_end = std::min(weights.n, args.panel_end * kPanelWidth);
  for (std::int64_t r = 0; r < args.num_rows; ++r) {
    const std::byte* row = args.activations + static_cast<std::size_t>(r) * row_bytes;
    for (std::int64_t c = args.panel_begin * kPanelWidth; c < column_end; ++c) {
      const std::byte* panel = weights.data + static_cast<std::size_t>(c / kPanelWidth) * panel_bytes;
      const auto column = static_cast<int>(c % kPanelWidth);
      const double dot = integer ? IntegerDot(weights, panel, column, row) : FloatDot(weights, panel, column, row);
      args.out[r * args.ld_out + c] = static_cast<float>(dot);
    }
  }
}

}  // namespace quire::kernels::reference
