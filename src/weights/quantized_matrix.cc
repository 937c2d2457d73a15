#include "weights/quantized_matrix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace quire::weights {
namespace {

// Which of its tensors says that a matrix has a layout. The first row that fits counts.
struct LayoutRow {
  QuantizationMethod method;
  std::string_view suffix;
  std::string_view type;  // "": any
  OpenedMatrix (*open)(const ModelSource&, const QuantizationConfig&, std::string_view stem);
};

constexpr std::array<LayoutRow, 13> kLayouts = {{
    {QuantizationMethod::kAwq, ".qweight", "", OpenAwq},
    {QuantizationMethod::kGptq, ".qweight", "", OpenGptq},
    {QuantizationMethod::kCompressedTensors, ".weight_packed", "", OpenPackedIntegers},
    {QuantizationMethod::kCompressedTensors, ".compressed", "", OpenSparse24},
    {QuantizationMethod::kCompressedTensors, ".weight", "I8", OpenInt8},
    {QuantizationMethod::kCompressedTensors, ".weight", "F8_E4M3", OpenFloat8},
    {QuantizationMethod::kCompressedTensors, ".weight", "F8_E5M2", OpenFloat8},
    {QuantizationMethod::kFp8, ".weight", "F8_E4M3", OpenFloat8},
    {QuantizationMethod::kFp8, ".weight", "F8_E5M2", OpenFloat8},
    {QuantizationMethod::kFp8, ".weight", "I8", OpenInt8},
    {QuantizationMethod::kBitsAndBytes, ".weight.absmax", "", OpenBitsAndBytes4Bit},
    {QuantizationMethod::kBitsAndBytes, ".weight", "U8", OpenBitsAndBytes4Bit},
    {QuantizationMethod::kBitsAndBytes, ".weight", "I8", OpenBitsAndBytesInt8},
}};

}  // namespace

Result<std::unique_ptr<MatrixSource>> OpenQuantizedMatrix(const ModelSource& source, const QuantizationConfig& config,
                                                          std::string_view stem) {
  for (const LayoutRow& layout : kLayouts) {
    if (layout.method != config.method) continue;
    const TensorSource* tensor = source.Find(fmt::format("{}{}", stem, layout.suffix));
    if (tensor != nullptr && (layout.type.empty() || tensor->type->name == layout.type)) {
      return layout.open(source, config, stem);
    }
  }
  return nullptr;
}

Result<const TensorSource*> MatrixTensors::Optional(std::string_view suffix,
                                                    std::initializer_list<std::string_view> types) {
  const TensorSource* tensor = source_.Find(stem_ + std::string(suffix));
  if (tensor == nullptr) return nullptr;
  if (std::ranges::find(types, tensor->type->name) == types.end()) {
    return Fail(ErrorCode::kCorrupt, "tensor {} has the type {}; {} is wanted", tensor->name, tensor->type->name,
                fmt::join(types, " or "));
  }
  tensors_.push_back(tensor);
  return tensor;
}

Result<const TensorSource*> MatrixTensors::Require(std::string_view suffix,
                                                   std::initializer_list<std::string_view> types) {
  QUIRE_TRY(const TensorSource* tensor, Optional(suffix, types));
  if (tensor == nullptr) {
    return Fail(ErrorCode::kCorrupt, "tensor {}{} is missing; {} has other tensors of its layout", stem_, suffix,
                stem_);
  }
  return tensor;
}

void MatrixTensors::Ignore(std::string_view suffix) {
  if (const TensorSource* tensor = source_.Find(stem_ + std::string(suffix))) tensors_.push_back(tensor);
}

void MatrixTensors::IgnoreActivationScales() {
  constexpr std::array<std::string_view, 6> kSuffixes = {".input_scale",  ".input_zero_point",  ".input_global_scale",
                                                         ".output_scale", ".output_zero_point", ".input_scale_ub"};
  for (const std::string_view suffix : kSuffixes) Ignore(suffix);
}

Result<> CheckShape(const TensorSource& tensor, std::initializer_list<std::int64_t> shape, std::string_view because) {
  if (std::ranges::equal(tensor.shape, shape)) return {};
  return Fail(ErrorCode::kCorrupt, "tensor {} has shape [{}]; [{}] is wanted for {}", tensor.name,
              fmt::join(tensor.shape, ", "), fmt::join(shape, ", "), because);
}

Result<> CheckIsMatrix(const TensorSource& tensor) {
  constexpr std::int64_t kSideMax = std::numeric_limits<std::int32_t>::max();
  const auto good = [](std::int64_t size) { return size > 0 && size <= kSideMax; };
  if (tensor.shape.size() == 2 && std::ranges::all_of(tensor.shape, good)) return {};
  return Fail(ErrorCode::kCorrupt, "tensor {} has shape [{}]; a matrix is wanted", tensor.name,
              fmt::join(tensor.shape, ", "));
}

Result<std::vector<float>> ReadFiniteFloats(const TensorSource& tensor) {
  const std::int64_t size = tensor.rows() * tensor.columns();
  std::vector<float> values(static_cast<std::size_t>(size));
  if (size == 0) return values;  // whose address is null
  tensor.type->dequantize_row(tensor.data.data(), size, values.data());
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad != values.end()) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: element {} is {}; finite numbers are wanted", tensor.name,
                bad - values.begin(), *bad);
  }
  return values;
}

Result<std::vector<std::int32_t>> ReadIntegers(const TensorSource& tensor) {
  const std::int64_t size = tensor.rows() * tensor.columns();
  const auto load = [&]<typename T>(std::int64_t index, T value) {
    __builtin_memcpy(&value, tensor.data.data() + index * static_cast<std::int64_t>(sizeof value), sizeof value);
    return static_cast<std::int64_t>(value);
  };
  std::vector<std::int32_t> values;
  values.reserve(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    const std::string_view type = tensor.type->name;
    const std::int64_t value = type == "I64"   ? load(i, std::int64_t{})
                               : type == "I32" ? load(i, std::int32_t{})
                               : type == "I8"  ? load(i, std::int8_t{})
                                               : load(i, std::uint8_t{});
    if (!std::in_range<std::int32_t>(value)) {
      return Fail(ErrorCode::kCorrupt, "tensor {}: element {} is {}, which is out of range", tensor.name, i, value);
    }
    values.push_back(static_cast<std::int32_t>(value));
  }
  return values;
}

Result<std::int64_t> CountGroups(const QuantizationConfig& config, const TensorSource& qweight, std::int64_t rows,
                                 std::int64_t columns, const TensorSource& qzeros, std::int64_t zero_words,
                                 const TensorSource& scales) {
  const std::int64_t group_size = config.group_size == -1 ? columns : config.group_size;
  if (columns % group_size != 0) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: groups of {} do not divide {} inputs", qweight.name, group_size,
                columns);
  }
  const std::int64_t num_groups = columns / group_size;
  const std::string because = fmt::format("{} inputs in groups of {}", columns, group_size);
  QUIRE_TRY_VOID(CheckShape(qzeros, {num_groups, zero_words}, because));
  QUIRE_TRY_VOID(CheckShape(scales, {num_groups, rows}, because));
  return num_groups;
}

std::function<void(std::int64_t row, std::uint8_t* codes)> ReadSignedBytes(const TensorSource& tensor) {
  return [&tensor](std::int64_t row, std::uint8_t* codes) {
    const std::byte* values = tensor.data.data() + row * tensor.columns();
    for (std::int64_t c = 0; c < tensor.columns(); ++c) codes[c] = std::to_integer<std::uint8_t>(values[c]) ^ 0x80;
  };
}

Result<RowScales> ReadRowScales(const TensorSource& tensor, std::int64_t rows, std::int64_t columns) {
  RowScales scales;
  QUIRE_TRY(scales.values, ReadFiniteFloats(tensor));
  const auto size = static_cast<std::int64_t>(scales.values.size());
  if (size == 1) {
    scales.values.assign(static_cast<std::size_t>(rows), scales.values[0]);
    return scales;
  }
  if (tensor.shape.empty() || tensor.shape.size() > 2 || tensor.shape[0] != rows || size == 0) {
    return Fail(ErrorCode::kCorrupt, "tensor {} has shape [{}]; one scale, or some for each of {} outputs are wanted",
                tensor.name, fmt::join(tensor.shape, ", "), rows);
  }
  scales.num_groups = size / rows;
  if (columns % scales.num_groups != 0) {
    return Fail(ErrorCode::kCorrupt, "tensor {} has {} groups, which do not divide {} inputs", tensor.name,
                scales.num_groups, columns);
  }
  return scales;
}

Result<std::vector<std::int32_t>> ReadGroupIndex(const TensorSource* g_idx, std::int64_t columns,
                                                 std::int64_t num_groups) {
  if (g_idx == nullptr) return ContiguousGroups(columns, num_groups);
  QUIRE_TRY_VOID(CheckShape(*g_idx, {columns}, "the inputs"));
  QUIRE_TRY(std::vector<std::int32_t> groups, ReadIntegers(*g_idx));
  if (std::ranges::all_of(groups, [](std::int32_t group) { return group == -1; })) {
    return ContiguousGroups(columns, num_groups);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] < 0 || groups[i] >= num_groups) {
      return Fail(ErrorCode::kCorrupt, "tensor {}: element {} is {}; there are {} groups", g_idx->name, i, groups[i],
                  num_groups);
    }
  }
  return groups;
}

std::vector<std::int32_t> ContiguousGroups(std::int64_t columns, std::int64_t num_groups) {
  std::vector<std::int32_t> groups(static_cast<std::size_t>(columns));
  const std::int64_t size = columns / num_groups;
  for (std::int64_t i = 0; i < columns; ++i) groups[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / size);
  return groups;
}

}  // namespace quire::weights
