// The table of storage types, and what follows from it.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <limits>

#include "base/check.h"
#include "weights/group_blocks.h"
#include "weights/super_blocks.h"
#include "weights/tensor_codecs.h"
#include "weights/tensor_source.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;
using QuantizeFunction = decltype(TypeTraits::quantize_row);

template <typename Reader>
constexpr TypeTraits Quantized(std::string_view name, int gguf_id, QuantizeFunction quantize) {
  return {name,
          gguf_id,
          "",
          Reader::kElements,
          Reader::kBytes,
          Reader::kFormat,
          DecodeRow<Reader>,
          DequantizeRow<Reader>,
          quantize};
}

// clang-format off
constexpr std::array<TypeTraits, 17> kTypes = {{
    // name  ggml  safetensors  elements bytes
    {"F32",  0,    "F32",       1,       4,    WeightFormat::kF32,  DecodeF32,  DequantizeF32,  QuantizeF32},
    {"F16",  1,    "F16",       1,       2,    WeightFormat::kF16,  DecodeF16,  DequantizeF16,  QuantizeF16},
    {"BF16", 30,   "BF16",      1,       2,    WeightFormat::kBf16, DecodeBf16, DequantizeBf16, QuantizeBf16},
    Quantized<Q8_0>("Q8_0", 8, QuantizeQ8_0),
    Quantized<Q4_0>("Q4_0", 2, QuantizeQ4_0),
    Quantized<Q4_1>("Q4_1", 3, QuantizeQ4_1),
    Quantized<Q5_0>("Q5_0", 6, QuantizeQ5_0),
    Quantized<Q5_1>("Q5_1", 7, QuantizeQ5_1),
    Quantized<Q2K>("Q2_K", 10, QuantizeQ2K),
    Quantized<Q3K>("Q3_K", 11, QuantizeQ3K),
    Quantized<Q4K>("Q4_K", 12, QuantizeQ4K),
    Quantized<Q5K>("Q5_K", 13, QuantizeQ5K),
    Quantized<Q6K>("Q6_K", 14, QuantizeQ6K),
    Quantized<Q8K>("Q8_K", 15, nullptr),
    Quantized<Iq4Nl>("IQ4_NL", 20, QuantizeIq4Nl),
    Quantized<Iq4Xs>("IQ4_XS", 23, nullptr),
    Quantized<Mxfp4>("MXFP4", 39, QuantizeMxfp4),
}};
// clang-format on

template <typename Matches>
const TypeTraits* FindType(Matches matches) {
  const auto found = std::ranges::find_if(kTypes, matches);
  return found == kTypes.end() ? nullptr : &*found;
}

// The magnitudes of floats are ordered as their bits are, NaN above infinity above all others.
bool AllWithin(std::span<const float> values, float limit) {
  std::uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFF);
  return largest <= std::bit_cast<std::uint32_t>(limit);
}

}  // namespace

std::int64_t TensorSource::columns() const {
  return shape.empty() ? 1 : shape.back();
}

std::int64_t TensorSource::rows() const {
  std::int64_t product = 1;  // readers checked that it does not overflow
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) product *= shape[i];
  return product;
}

kernels::WeightRow RowBuffer::View() const {
  const auto pointer = [](const auto& vector) { return vector.empty() ? nullptr : vector.data(); };
  return {pointer(values), pointer(codes), pointer(scales), pointer(mins), pointer(scale_codes), pointer(min_codes)};
}

bool RowBuffer::IsFinite() const {
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kLargestInteger = 128;  // what a scale is multiplied with, of all formats and both levels
  return AllWithin(values, kMax) && AllWithin(scales, kMax / kLargestInteger) && AllWithin(mins, kMax);
}

const TypeTraits* FindTypeByGgufId(std::uint32_t id) {
  return FindType([&](const TypeTraits& type) { return type.gguf_id == static_cast<std::int64_t>(id); });
}

const TypeTraits* FindTypeBySafetensorsName(std::string_view name) {
  if (name.empty()) return nullptr;
  const TypeTraits* type = FindType([&](const TypeTraits& candidate) { return candidate.safetensors_name == name; });
  return type != nullptr ? type : FindCodeType(name);
}

const TypeTraits* FindTypeByName(std::string_view name) {
  const auto same = [](char a, char b) {
    return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
  };
  return FindType([&](const TypeTraits& type) { return std::ranges::equal(type.name, name, same); });
}

std::span<const TypeTraits> AllTypes() {
  return kTypes;
}

std::string TypeNames() {
  std::vector<std::string_view> names;
  for (const TypeTraits& type : kTypes) names.push_back(type.name);
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

Result<std::size_t> RowBytes(const TypeTraits& type, std::int64_t columns, std::string_view tensor_name) {
  if (columns < 0 || columns % type.block_elements != 0) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: rows of {} elements cannot be stored as {}, whose blocks hold {}",
                tensor_name, columns, type.name, type.block_elements);
  }
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(columns / type.block_elements),
                             static_cast<std::size_t>(type.block_bytes), &bytes)) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: the size of a row of {} elements overflows", tensor_name, columns);
  }
  return bytes;
}

}  // namespace quire::weights
