// Packing of weights into panels and back. Scalar, the same on every tier; docs/kernels.md draws the layouts.
#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/kernel_table.h"

namespace quire::kernels {
namespace {

constexpr std::array<FormatTraits, kNumWeightFormats> kTraits = {{
    {.name = "f32", .integer = false, .group = 1, .zero_point = 0, .scale_bytes = 0, .has_min = false},
    {.name = "f16", .integer = false, .group = 1, .zero_point = 0, .scale_bytes = 0, .has_min = false},
    {.name = "bf16", .integer = false, .group = 1, .zero_point = 0, .scale_bytes = 0, .has_min = false},
    {.name = "int8g32", .integer = true, .group = 32, .zero_point = 128, .scale_bytes = 2, .has_min = false},
    {.name = "int8g32min", .integer = true, .group = 32, .zero_point = 0, .scale_bytes = 4, .has_min = true},
    {.name = "int8g16", .integer = true, .group = 16, .zero_point = 128, .scale_bytes = 4, .has_min = false},
}};

// Codes of formats with zero point 0 stay below 128, so that the 16-bit pair sums of AVX2 cannot saturate:
// 2 · 127 · 127 = 32,258 ≤ 32,767.
constexpr int kMaxCodeWithoutZeroPoint = 127;

template <typename T>
void StoreAt(std::byte* base, std::int64_t index, T value) {
  std::memcpy(base + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T>
T LoadAt(const std::byte* base, std::int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::size_t GroupBytes(const FormatTraits& traits) {
  const int vectors_of_scales = traits.has_min ? 2 : 1;
  return static_cast<std::size_t>(kPanelWidth * (traits.group + vectors_of_scales * traits.scale_bytes));
}

void StoreScale(const FormatTraits& traits, std::byte* base, std::int64_t index, float value) {
  if (traits.scale_bytes == 2) {
    StoreAt(base, index, ToF16(value).bits);
  } else {
    StoreAt(base, index, value);
  }
}

float LoadScale(const FormatTraits& traits, const std::byte* base, std::int64_t index) {
  return traits.scale_bytes == 2 ? ToFloat(F16{LoadAt<std::uint16_t>(base, index)}) : LoadAt<float>(base, index);
}

void PackFloatRow(WeightFormat format, std::int64_t k, const float* values, int column, std::byte* panel) {
  CHECK(values != nullptr || k == 0);
  for (std::int64_t i = 0; i < k; ++i) {
    if (format == WeightFormat::kF32) {
      StoreAt(panel, i * kPanelWidth + column, values[i]);
    } else if (format == WeightFormat::kF16) {
      StoreAt(panel, i * kPanelWidth + column, ToF16(values[i]).bits);
    } else {
      StoreAt(panel, (i / 2 * kPanelWidth + column) * 2 + i % 2, ToBf16(values[i]).bits);
    }
  }
}

void PackIntegerRow(const FormatTraits& traits, std::int64_t k, const WeightRow& row, int column, std::byte* panel) {
  CHECK(row.codes != nullptr && row.scales != nullptr && (row.mins != nullptr || !traits.has_min));
  for (std::int64_t g = 0; g < k / traits.group; ++g) {
    std::byte* group = panel + static_cast<std::size_t>(g) * GroupBytes(traits);
    const std::uint8_t* codes = row.codes + g * traits.group;
    for (int i = 0; i < traits.group; i += 4) {
      std::memcpy(group + (i / 4 * kPanelWidth + column) * 4, codes + i, 4);
      if (traits.zero_point != 0) continue;
      for (int j = i; j < i + 4; ++j) CHECK(codes[j] <= kMaxCodeWithoutZeroPoint);
    }
    std::byte* scales = group + kPanelWidth * traits.group;
    StoreScale(traits, scales, column, row.scales[g]);
    if (traits.has_min) StoreScale(traits, scales, kPanelWidth + column, row.mins[g]);
  }
}

}  // namespace

const FormatTraits& Traits(WeightFormat format) {
  return kTraits[static_cast<std::size_t>(format)];
}

std::size_t PanelBytes(WeightFormat format, std::int64_t k) {
  const auto inner = static_cast<std::size_t>(k);
  switch (format) {
    case WeightFormat::kF32:
      return inner * kPanelWidth * 4;
    case WeightFormat::kF16:
      return inner * kPanelWidth * 2;
    case WeightFormat::kBf16:
      return (inner + 1) / 2 * kPanelWidth * 4;
    case WeightFormat::kInt8Group32:
    case WeightFormat::kInt8Group32Min:
    case WeightFormat::kInt8Group16: {
      const FormatTraits& traits = Traits(format);
      CHECK(k % traits.group == 0);
      return inner / static_cast<std::size_t>(traits.group) * GroupBytes(traits);
    }
  }
  return 0;
}

void PackPanel(WeightFormat format, std::int64_t k, std::span<const WeightRow> rows, std::byte* panel) {
  CHECK(rows.size() <= kPanelWidth);
  // Zero codes with a zero scale (and min) are zero weights, whatever the zero point; so are zero floats.
  std::memset(panel, 0, PanelBytes(format, k));
  const FormatTraits& traits = Traits(format);
  for (int column = 0; column < static_cast<int>(rows.size()); ++column) {
    const WeightRow& row = rows[static_cast<std::size_t>(column)];
    if (traits.integer) {
      PackIntegerRow(traits, k, row, column, panel);
    } else {
      PackFloatRow(format, k, row.values, column, panel);
    }
  }
}

void UnpackRow(const PackedMatrix& matrix, std::int64_t row, float* out) {
  CHECK(0 <= row && row < matrix.n);
  const FormatTraits& traits = Traits(matrix.format);
  const std::byte* panel =
      matrix.data + static_cast<std::size_t>(row / kPanelWidth) * PanelBytes(matrix.format, matrix.k);
  const auto column = static_cast<int>(row % kPanelWidth);
  for (std::int64_t i = 0; i < matrix.k; ++i) {
    if (matrix.format == WeightFormat::kF32) {
      out[i] = LoadAt<float>(panel, i * kPanelWidth + column);
    } else if (matrix.format == WeightFormat::kF16) {
      out[i] = ToFloat(F16{LoadAt<std::uint16_t>(panel, i * kPanelWidth + column)});
    } else if (matrix.format == WeightFormat::kBf16) {
      out[i] = ToFloat(Bf16{LoadAt<std::uint16_t>(panel, (i / 2 * kPanelWidth + column) * 2 + i % 2)});
    } else {
      const std::byte* group = panel + static_cast<std::size_t>(i / traits.group) * GroupBytes(traits);
      const std::byte* scales = group + kPanelWidth * traits.group;
      const std::int64_t in_group = i % traits.group;
      const int code = LoadAt<std::uint8_t>(group, (in_group / 4 * kPanelWidth + column) * 4 + in_group % 4);
      const float min = traits.has_min ? LoadScale(traits, scales, kPanelWidth + column) : 0.0f;
      out[i] = LoadScale(traits, scales, column) * static_cast<float>(code - traits.zero_point) - min;
    }
  }
}

}  // namespace quire::kernels
