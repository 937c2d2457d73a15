#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "weights/checked_math.h"

namespace quire::weights {
namespace {

constexpr std::size_t kPrefixBytes = 8;
constexpr std::size_t kDimensionsMax = 8;

struct Extent {
  std::uint64_t begin = 0, end = 0;
};

Result<std::uint64_t> UnsignedItem(const json::value& value, std::string_view file, std::string_view tensor,
                                   std::string_view what) {
  if (const auto* integer = value.if_int64(); integer && *integer >= 0) return static_cast<std::uint64_t>(*integer);
  if (const auto* integer = value.if_uint64()) return *integer;
  return Fail(ErrorCode::kCorrupt, "{}: tensor {}: {} is {}; a number of elements or bytes is wanted", file, tensor,
              what, ToJson(value));
}

Result<std::vector<std::int64_t>> ParseShape(const json::object& entry, std::string_view file,
                                             std::string_view tensor) {
  const json::value* value = entry.if_contains("shape");
  if (!value || !value->is_array()) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} has no \"shape\" array", file, tensor);
  }
  const json::array& dimensions = value->get_array();
  if (dimensions.size() > kDimensionsMax) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} has {} dimensions; at most {} are allowed", file, tensor,
                dimensions.size(), kDimensionsMax);
  }
  std::vector<std::int64_t> shape;
  for (const json::value& dimension : dimensions) {
    QUIRE_TRY(const std::uint64_t size, UnsignedItem(dimension, file, tensor, "a dimension"));
    if (!std::in_range<std::int64_t>(size)) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {}: a dimension of {} is out of range", file, tensor, size);
    }
    shape.push_back(static_cast<std::int64_t>(size));
  }
  return shape;
}

Result<Extent> ParseOffsets(const json::object& entry, std::string_view file, std::string_view tensor) {
  const json::value* value = entry.if_contains("data_offsets");
  if (!value || !value->is_array() || value->get_array().size() != 2) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} has no \"data_offsets\" pair", file, tensor);
  }
  Extent extent;
  QUIRE_TRY(extent.begin, UnsignedItem(value->get_array()[0], file, tensor, "the begin offset"));
  QUIRE_TRY(extent.end, UnsignedItem(value->get_array()[1], file, tensor, "the end offset"));
  if (extent.begin > extent.end) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} ends at byte {}, before it begins at {}", file, tensor, extent.end,
                extent.begin);
  }
  return extent;
}

Result<const TypeTraits*> ParseType(const json::object& entry, std::string_view file, std::string_view tensor) {
  const json::value* value = entry.if_contains("dtype");
  if (!value || !value->is_string()) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} has no \"dtype\"", file, tensor);
  }
  const std::string_view dtype = value->get_string();
  if (const TypeTraits* type = FindTypeBySafetensorsName(dtype)) return type;
  return Fail(ErrorCode::kUnsupported,
              "{}: tensor {} has the type {}; F32, F16, BF16, F8_E4M3, F8_E5M2, I8, U8, I32 and I64 can be read", file,
              tensor, dtype);
}

// One entry of the header; its bytes lie in `data`, the file behind the header.
Result<TensorSource> ParseEntry(std::string_view name, const json::value& value, std::span<const std::byte> data,
                                std::string_view file) {
  const json::object* entry = value.if_object();
  if (!entry) return Fail(ErrorCode::kCorrupt, "{}: the header's entry {} is not an object", file, name);
  TensorSource tensor;
  tensor.name = name;
  QUIRE_TRY(tensor.type, ParseType(*entry, file, name));
  QUIRE_TRY(tensor.shape, ParseShape(*entry, file, name));
  QUIRE_TRY(const Extent extent, ParseOffsets(*entry, file, name));
  const auto elements = CheckedElements(std::span<const std::int64_t>(tensor.shape));
  const auto bytes = elements ? CheckedMultiply(static_cast<std::uint64_t>(*elements),
                                                static_cast<std::uint64_t>(tensor.type->block_bytes))
                              : std::nullopt;
  if (!bytes) return Fail(ErrorCode::kCorrupt, "{}: tensor {}: the size of its shape overflows", file, name);
  if (*bytes != extent.end - extent.begin) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {}: its shape needs {} bytes, its offsets span {}", file, name, *bytes,
                extent.end - extent.begin);
  }
  if (extent.end > data.size()) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} ends at byte {} of the data; the file holds {} (truncated?)", file,
                name, extent.end, data.size());
  }
  tensor.data = data.subspan(extent.begin, extent.end - extent.begin);
  return tensor;
}

Result<std::string_view> FindHeader(std::span<const std::byte> file, std::string_view name) {
  if (file.size() < kPrefixBytes) {
    return Fail(ErrorCode::kCorrupt, "{}: {} bytes are too few for a safetensors file", name, file.size());
  }
  std::uint64_t header_bytes;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  if (header_bytes > kSafetensorsHeaderBytesMax) {
    return Fail(ErrorCode::kCorrupt, "{}: the header says it is {} bytes long; at most {} are allowed", name,
                header_bytes, kSafetensorsHeaderBytesMax);
  }
  if (header_bytes > file.size() - kPrefixBytes) {
    return Fail(ErrorCode::kCorrupt, "{}: the header says it is {} bytes long; the file has {} (truncated?)", name,
                header_bytes, file.size() - kPrefixBytes);
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kPrefixBytes, header_bytes);
  if (!header.starts_with('{')) return Fail(ErrorCode::kCorrupt, "{}: the header does not begin with '{{'", name);
  return header;
}

Result<> CheckMetadata(const json::value& metadata, std::string_view file) {
  const json::object* object = metadata.if_object();
  if (!object) return Fail(ErrorCode::kCorrupt, "{}: \"__metadata__\" is not an object", file);
  for (const auto& [key, value] : *object) {
    if (!value.is_string()) {
      return Fail(ErrorCode::kCorrupt, "{}: \"__metadata__\": the value of \"{}\" is not a string", file,
                  std::string_view(key));
    }
  }
  return {};
}

// Sorted, the tensors must follow each other from the first byte of the data to the last.
Result<> CheckCoverage(std::span<const TensorSource> tensors, std::span<const std::byte> data, std::string_view file) {
  std::size_t end = 0;
  for (const TensorSource& tensor : tensors) {
    const auto begin = static_cast<std::size_t>(tensor.data.data() - data.data());
    if (begin != end) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} begins at byte {} of the data, where byte {} was expected ({})",
                  file, tensor.name, begin, end, begin < end ? "tensors overlap" : "there is a gap");
    }
    end = begin + tensor.data.size();
  }
  if (end != data.size()) {
    return Fail(ErrorCode::kCorrupt, "{}: {} bytes follow the last tensor", file, data.size() - end);
  }
  return {};
}

}  // namespace

Result<std::vector<TensorSource>> ParseSafetensors(std::span<const std::byte> file, std::string_view name) {
  QUIRE_TRY(const std::string_view header, FindHeader(file, name));
  QUIRE_TRY(const json::value root,
            ParseJson(header, name,
                      {.bytes_max = kSafetensorsHeaderBytesMax, .depth_max = 8, .refuse_duplicate_keys = true}));
  const std::span<const std::byte> data = file.subspan(kPrefixBytes + header.size());
  std::vector<TensorSource> tensors;
  tensors.reserve(root.get_object().size());
  for (const auto& [key, value] : root.get_object()) {
    if (key == "__metadata__") {
      QUIRE_TRY_VOID(CheckMetadata(value, name));
      continue;
    }
    QUIRE_TRY(TensorSource tensor, ParseEntry(key, value, data, name));
    tensors.push_back(std::move(tensor));
  }
  // Empty tensors share their begin with the next one, and go first.
  std::ranges::sort(tensors, {}, [](const TensorSource& tensor) {
    return std::pair(tensor.data.data(), tensor.data.data() + tensor.data.size());
  });
  QUIRE_TRY_VOID(CheckCoverage(tensors, data, name));
  return tensors;
}

}  // namespace quire::weights
