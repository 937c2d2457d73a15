#include <algorithm>
#include <cstring>

#include "kernels/activation_layout.h"
#include "kernels/reference/reference.h"

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

double FloatDot(const PackedMatrix& weights, const std::byte* panel, std::int64_t column, const std::byte* row) {
  double sum = 0;
  for (std::int64_t i = 0; i < weights.k; ++i) {
    sum += double{LoadAt<float>(row, i)} * double{FloatWeight(weights.format, panel, i, column)};
  }
  return sum;
}

// One group: scale · Σ (code − zero_point) · a − min · Σ a, the sums exact.
double GroupDot(const FormatTraits& traits, const std::byte* group, std::int64_t column, const std::byte* a) {
  std::int64_t dot = 0, sum = 0;
  for (std::int64_t i = 0; i < traits.group; ++i) {
    const int code = LoadAt<std::uint8_t>(group, (i / 4 * kPanelWidth + column) * 4 + i % 4);
    const int activation = LoadAt<std::int8_t>(a, i);
    dot += (code - traits.zero_point) * activation;
    sum += activation;
  }
  const std::byte* scales = group + kPanelWidth * traits.group;
  const double scale =
      traits.scale_bytes == 2 ? ToFloat(F16{LoadAt<std::uint16_t>(scales, column)}) : LoadAt<float>(scales, column);
  const double min = traits.has_min ? LoadAt<float>(scales, kPanelWidth + column) : 0.0f;
  return scale * static_cast<double>(dot) - min * static_cast<double>(sum);
}

double IntegerDot(const PackedMatrix& weights, const std::byte* panel, std::int64_t column, const std::byte* row) {
  const FormatTraits& traits = Traits(weights.format);
  const Int8RowLayout layout(weights.k);
  const std::size_t group_bytes = PanelBytes(weights.format, traits.group);
  double total = 0;
  for (std::int64_t block = 0; block < layout.num_blocks; ++block) {
    const std::int64_t begin = block * kActivationBlock;
    const std::int64_t end = std::min(weights.k, begin + kActivationBlock);
    double sum = 0;
    for (std::int64_t i = begin; i < end; i += traits.group) {
      const std::byte* group = panel + static_cast<std::size_t>(i / traits.group) * group_bytes;
      sum += GroupDot(traits, group, column, row + i);
    }
    total += sum * double{LoadAt<float>(row + layout.scales, block)};
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
      const double dot =
          integer ? IntegerDot(weights, panel, c % kPanelWidth, row) : FloatDot(weights, panel, c % kPanelWidth, row);
      args.out[r * args.ld_out + c] = static_cast<float>(dot);
    }
  }
}

}  // namespace quire::kernels::reference
