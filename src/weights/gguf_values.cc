// Typed reading of GGUF metadata.
#include <algorithm>
#include <cstring>
#include <limits>

#include "weights/byte_reader.h"
#include "weights/gguf_file.h"

namespace quire::weights {
namespace {

constexpr auto kInt64Max = std::numeric_limits<std::int64_t>::max();

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The integer at `from`, or nothing when the type is another. What does not fit in 63 bits is taken for the
// largest value, which is beyond every range.
std::optional<std::int64_t> IntAt(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kUint8:
      return Load<std::uint8_t>(from);
    case GgufType::kInt8:
      return Load<std::int8_t>(from);
    case GgufType::kUint16:
      return Load<std::uint16_t>(from);
    case GgufType::kInt16:
      return Load<std::int16_t>(from);
    case GgufType::kUint32:
      return Load<std::uint32_t>(from);
    case GgufType::kInt32:
      return Load<std::int32_t>(from);
    case GgufType::kUint64:
      return static_cast<std::int64_t>(std::min(Load<std::uint64_t>(from), static_cast<std::uint64_t>(kInt64Max)));
    case GgufType::kInt64:
      return Load<std::int64_t>(from);
    case GgufType::kFloat32:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
    case GgufType::kFloat64:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string TypeOf(const GgufValue& value) {
  return value.is_array ? fmt::format("ARRAY of {}", GgufTypeName(value.type)) : std::string(GgufTypeName(value.type));
}

std::unexpected<Error> WrongType(const GgufFile& file, std::string_view key, const GgufValue& value,
                                 std::string_view wanted) {
  return Fail(ErrorCode::kCorrupt, "{}: {} has the type {}; {} is wanted", file.name(), key, TypeOf(value), wanted);
}

}  // namespace

Result<std::optional<std::int64_t>> GgufFile::OptionalInt(std::string_view key, std::int64_t low,
                                                          std::int64_t high) const {
  const GgufValue* value = Find(key);
  if (!value) return std::nullopt;
  const auto integer = value->is_array ? std::nullopt : IntAt(value->type, value->bytes.data());
  if (!integer) return WrongType(*this, key, *value, "an integer");
  if (*integer < low || *integer > high) {
    return Fail(ErrorCode::kCorrupt, "{}: {} is {}; it must lie between {} and {}", name_, key, *integer, low, high);
  }
  return integer;
}

Result<std::int64_t> GgufFile::Int(std::string_view key, std::int64_t low, std::int64_t high) const {
  QUIRE_TRY(const auto integer, OptionalInt(key, low, high));
  if (!integer) return Fail(ErrorCode::kCorrupt, "{}: the key {} is missing", name_, key);
  return *integer;
}

Result<std::optional<std::int64_t>> GgufFile::OptionalIntForEach(std::string_view key, std::int64_t count,
                                                                 std::int64_t low, std::int64_t high) const {
  const GgufValue* value = Find(key);
  if (!value || !value->is_array) return OptionalInt(key, low, high);
  if (value->count != static_cast<std::uint64_t>(count)) {
    return Fail(ErrorCode::kCorrupt, "{}: {} has {} elements; {} are wanted, one for each layer", name_, key,
                value->count, count);
  }
  std::optional<std::int64_t> first;
  const std::size_t stride = value->bytes.size() / static_cast<std::size_t>(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto integer = IntAt(value->type, value->bytes.data() + static_cast<std::size_t>(i) * stride);
    if (!integer) return WrongType(*this, key, *value, "an integer, or an array of them,");
    if (*integer < low || *integer > high) {
      return Fail(ErrorCode::kCorrupt, "{}: {}[{}] is {}; it must lie between {} and {}", name_, key, i, *integer, low,
                  high);
    }
    if (first && *integer != *first) {
      return Fail(ErrorCode::kUnsupported, "{}: {} differs between layers ({} and {})", name_, key, *first, *integer);
    }
    first = integer;
  }
  return first;
}

Result<std::optional<double>> GgufFile::OptionalReal(std::string_view key, double low, double high) const {
  const GgufValue* value = Find(key);
  if (!value) return std::nullopt;
  double real = 0;
  if (!value->is_array && value->type == GgufType::kFloat32) {
    real = static_cast<double>(Load<float>(value->bytes.data()));
  } else if (!value->is_array && value->type == GgufType::kFloat64) {
    real = Load<double>(value->bytes.data());
  } else {
    return WrongType(*this, key, *value, "a float");
  }
  if (!(real >= low) || !(real <= high)) {
    return Fail(ErrorCode::kCorrupt, "{}: {} is {}; it must lie between {} and {}", name_, key, real, low, high);
  }
  return real;
}

Result<std::optional<bool>> GgufFile::OptionalBool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (!value) return std::nullopt;
  if (value->is_array || value->type != GgufType::kBool) return WrongType(*this, key, *value, "BOOL");
  const auto byte = Load<std::uint8_t>(value->bytes.data());
  if (byte > 1) return Fail(ErrorCode::kCorrupt, "{}: {} is {}; a BOOL is 0 or 1", name_, key, byte);
  return byte == 1;
}

Result<std::optional<std::string>> GgufFile::OptionalString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (!value) return std::nullopt;
  if (value->is_array || value->type != GgufType::kString) return WrongType(*this, key, *value, "STRING");
  return std::string(reinterpret_cast<const char*>(value->bytes.data()) + 8, value->bytes.size() - 8);
}

Result<const GgufValue*> GgufFile::FindArray(std::string_view key, GgufType type) const {
  const GgufValue* value = Find(key);
  if (value && (!value->is_array || value->type != type)) {
    return WrongType(*this, key, *value, fmt::format("ARRAY of {}", GgufTypeName(type)));
  }
  return value;
}

Result<std::vector<std::string_view>> GgufFile::Strings(std::string_view key) const {
  QUIRE_TRY(const GgufValue* value, FindArray(key, GgufType::kString));
  std::vector<std::string_view> strings;
  if (!value) return strings;
  strings.reserve(static_cast<std::size_t>(value->count));  // Parse saw that many
  ByteReader reader(value->bytes, name_);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    QUIRE_TRY(const std::string_view text, reader.ReadString(key, value->bytes.size()));
    strings.push_back(text);
  }
  return strings;
}

Result<std::vector<float>> GgufFile::Floats(std::string_view key) const {
  QUIRE_TRY(const GgufValue* value, FindArray(key, GgufType::kFloat32));
  std::vector<float> floats(value ? value->count : 0);
  if (!floats.empty()) std::memcpy(floats.data(), value->bytes.data(), value->bytes.size());
  return floats;
}

Result<std::vector<std::int32_t>> GgufFile::Int32s(std::string_view key) const {
  QUIRE_TRY(const GgufValue* value, FindArray(key, GgufType::kInt32));
  std::vector<std::int32_t> integers(value ? value->count : 0);
  if (!integers.empty()) std::memcpy(integers.data(), value->bytes.data(), value->bytes.size());
  return integers;
}

Result<std::vector<bool>> GgufFile::Bools(std::string_view key) const {
  QUIRE_TRY(const GgufValue* value, FindArray(key, GgufType::kBool));
  std::vector<bool> bools;
  if (!value) return bools;
  for (const std::byte byte : value->bytes) {
    if (std::to_integer<int>(byte) > 1) {
      return Fail(ErrorCode::kCorrupt, "{}: an element of {} is {}; a BOOL is 0 or 1", name_, key,
                  std::to_integer<int>(byte));
    }
    bools.push_back(byte == std::byte{1});
  }
  return bools;
}

}  // namespace quire::weights
