// Integer codes with scales and zero points for groups of inputs, whatever layout they come from.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "weights/quantized_matrix.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;

// Inner elements that share a scale in every panel format that is used here.
constexpr std::int64_t kPanelGroup = 32;

// The panel formats for integers, the smallest first.
constexpr std::array kPanels = {WeightFormat::kInt4Group32, WeightFormat::kInt4Group32Min, WeightFormat::kInt8Group32,
                                WeightFormat::kInt8Group32F32, WeightFormat::kInt8Group32Min};

bool IsExactInF16(float value) {
  return ToFloat(ToF16(value)) == value;
}

// scale · code and scale · zero are exact, and so is their difference: 16 bits by 7, far from the ends of the range.
bool HasFewBits(float value) {
  if (value == 0) return true;
  return (std::bit_cast<std::uint32_t>(value) & 0xFF) == 0 && std::fabs(value) > 0x1p-90f && std::fabs(value) < 0x1p90f;
}

// Whether each 32 neighbours in the order share a group.
bool FillsPanelGroups(const std::vector<std::int32_t>& group_of_column, const std::vector<std::int32_t>& order) {
  const auto columns = static_cast<std::int64_t>(group_of_column.size());
  if (columns % kPanelGroup != 0) return false;
  for (std::int64_t i = 0; i < columns; ++i) {
    const auto group_at = [&](std::int64_t place) {
      const auto column = order.empty() ? place : std::int64_t{order[static_cast<std::size_t>(place)]};
      return group_of_column[static_cast<std::size_t>(column)];
    };
    if (group_at(i) != group_at(i / kPanelGroup * kPanelGroup)) return false;
  }
  return true;
}

// Columns of the same group side by side; empty when they are already.
std::vector<std::int32_t> GroupedOrder(const std::vector<std::int32_t>& group_of_column) {
  if (std::ranges::is_sorted(group_of_column)) return {};
  std::vector<std::int32_t> order(group_of_column.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int32_t column) {
    return std::pair(group_of_column[static_cast<std::size_t>(column)], column);
  });
  return order;
}

// Whether the panels hold the codes exactly.
bool Holds(WeightFormat format, const IntegerCodes& codes) {
  const kernels::FormatTraits& traits = kernels::Traits(format);
  const int largest = (1 << codes.bits) - 1;
  if (traits.scale == kernels::ScaleType::kF16 && !std::ranges::all_of(codes.scales, IsExactInF16)) return false;
  if (traits.min != kernels::ScaleType::kNone) {
    return largest <= traits.code_max && std::ranges::all_of(codes.scales, HasFewBits);
  }
  // One zero point for all; codes move with it to the panel's.
  const int shift = traits.zero_point - codes.zeros[0];
  const bool one_zero = std::ranges::all_of(codes.zeros, [&](std::uint8_t zero) { return zero == codes.zeros[0]; });
  return one_zero && shift >= 0 && largest + shift <= traits.code_max;
}

WeightFormat ChooseFormat(const IntegerCodes& codes) {
  if (codes.sparse && Holds(WeightFormat::kInt8Sparse24, codes)) return WeightFormat::kInt8Sparse24;
  const auto format = std::ranges::find_if(kPanels, [&](WeightFormat candidate) { return Holds(candidate, codes); });
  return format == kPanels.end() ? WeightFormat::kF32 : *format;
}

class IntegerMatrix final : public MatrixSource {
 public:
  IntegerMatrix(MatrixInfo info, IntegerCodes codes) : MatrixSource(std::move(info)), codes_(std::move(codes)) {}

  Result<> Dequantize(std::int64_t row, float* out) const override {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(info().columns));
    QUIRE_TRY_VOID(ReadCodes(row, codes.data()));
    for (std::size_t c = 0; c < codes.size(); ++c) {
      const std::int32_t group = codes_.group_of_column[c];
      out[c] = scale(row, group) * static_cast<float>(int{codes[c]} - zero(row, group));
    }
    return {};
  }

  Result<> Decode(std::int64_t row, RowBuffer* out) const override {
    const auto columns = static_cast<std::size_t>(info().columns);
    if (info().packed == WeightFormat::kF32) {
      out->values.resize(columns);
      return Dequantize(row, out->values.data());
    }
    const kernels::FormatTraits& traits = kernels::Traits(info().packed);
    const std::vector<std::int32_t>& order = info().input_order;
    out->codes.resize(columns);
    if (order.empty()) {
      QUIRE_TRY_VOID(ReadCodes(row, out->codes.data()));
    } else {
      std::vector<std::uint8_t> in_input_order(columns);
      QUIRE_TRY_VOID(ReadCodes(row, in_input_order.data()));
      for (std::size_t i = 0; i < columns; ++i) out->codes[i] = in_input_order[static_cast<std::size_t>(order[i])];
    }
    const bool has_min = traits.min != kernels::ScaleType::kNone;
    out->scales.resize(columns / kPanelGroup);
    out->mins.resize(has_min ? columns / kPanelGroup : 0);
    for (std::size_t g = 0; g < out->scales.size(); ++g) {
      const std::size_t place = g * kPanelGroup;
      const std::size_t column = order.empty() ? place : static_cast<std::size_t>(order[place]);
      const std::int32_t group = codes_.group_of_column[column];
      out->scales[g] = scale(row, group);
      if (has_min) out->mins[g] = scale(row, group) * static_cast<float>(zero(row, group));
    }
    if (!has_min) {
      const int shift = traits.zero_point - zero(row, 0);  // one zero point for all
      for (std::uint8_t& code : out->codes) code = static_cast<std::uint8_t>(code + shift);
    }
    return {};
  }

 private:
  float scale(std::int64_t row, std::int32_t group) const {
    return codes_.scales[static_cast<std::size_t>(row * codes_.num_groups + group)];
  }
  int zero(std::int64_t row, std::int32_t group) const {
    return codes_.zeros.size() == 1 ? codes_.zeros[0]
                                    : codes_.zeros[static_cast<std::size_t>(row * codes_.num_groups + group)];
  }

  // A scale of zero is what some exporters write for a group of zeros. Where the codes say otherwise, weights were
  // lost, and the file is refused.
  Result<> ReadCodes(std::int64_t row, std::uint8_t* codes) const {
    codes_.read(row, codes);
    const auto scales =
        std::span(codes_.scales)
            .subspan(static_cast<std::size_t>(row * codes_.num_groups), static_cast<std::size_t>(codes_.num_groups));
    if (std::ranges::find(scales, 0.0f) == scales.end()) return {};
    for (std::int64_t c = 0; c < info().columns; ++c) {
      const std::int32_t group = codes_.group_of_column[static_cast<std::size_t>(c)];
      if (scale(row, group) == 0 && codes[c] != zero(row, group)) {
        return Fail(ErrorCode::kCorrupt, "tensor {}: the scale of row {}, group {} is zero, but its codes are not",
                    info().name, row, group);
      }
    }
    return {};
  }

  const IntegerCodes codes_;
};

}  // namespace

std::unique_ptr<MatrixSource> MakeIntegerMatrix(MatrixInfo info, IntegerCodes codes) {
  const auto num_scales = static_cast<std::size_t>(info.rows * codes.num_groups);
  CHECK(codes.scales.size() == num_scales && (codes.zeros.size() == 1 || codes.zeros.size() == num_scales));
  CHECK(static_cast<std::int64_t>(codes.group_of_column.size()) == info.columns);
  info.quantized_layout = true;
  info.packed = ChooseFormat(codes);
  if (info.packed != WeightFormat::kF32) {
    info.input_order = GroupedOrder(codes.group_of_column);
    if (!FillsPanelGroups(codes.group_of_column, info.input_order)) {
      info.input_order.clear();
      info.packed = WeightFormat::kF32;
    }
  }
  return std::make_unique<IntegerMatrix>(std::move(info), std::move(codes));
}

}  // namespace quire::weights
