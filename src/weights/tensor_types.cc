// The table of storage types, and what follows from it.
#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.h"
#include "weights/tensor_codecs.h"
#include "weights/tensor_source.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;

// clang-format off
constexpr std::array<TypeTraits, 7> kTypes = {{
    // name   ggml  safetensors elements bytes         packed as
    {"F32",   0,    "F32",  1,   4,               WeightFormat::kF32,            DecodeF32,  DequantizeF32,  QuantizeF32},
    {"F16",   1,    "F16",  1,   2,               WeightFormat::kF16,            DecodeF16,  DequantizeF16,  QuantizeF16},
    {"BF16",  30,   "BF16", 1,   2,               WeightFormat::kBf16,           DecodeBf16, DequantizeBf16, QuantizeBf16},
    {"Q8_0",  8,    "",     32,  kQ8_0BlockBytes, WeightFormat::kInt8Group32,    DecodeQ8_0, DequantizeQ8_0, QuantizeQ8_0},
    {"Q4_0",  2,    "",     32,  kQ4_0BlockBytes, WeightFormat::kInt8Group32,    DecodeQ4_0, DequantizeQ4_0, QuantizeQ4_0},
    {"Q4_K",  12,   "",     256, kQ4KBlockBytes,  WeightFormat::kInt8Group32Min, DecodeQ4K,  DequantizeQ4K,  QuantizeQ4K},
    {"Q6_K",  14,   "",     256, kQ6KBlockBytes,  WeightFormat::kInt8Group16,    DecodeQ6K,  DequantizeQ6K,  QuantizeQ6K},
}};
// clang-format on

template <typename Matches>
const TypeTraits* FindType(Matches matches) {
  const auto found = std::ranges::find_if(kTypes, matches);
  return found == kTypes.end() ? nullptr : &*found;
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
  return {pointer(values), pointer(codes), pointer(scales), pointer(mins)};
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
