// The GGUF container, versions 2 and 3: typed metadata, a list of tensors, their bytes. Little endian.
//
//   "GGUF" | u32 version | u64 tensors | u64 pairs
//   pairs × ( string key | u32 type | value )             string: u64 bytes, then the bytes
//   tensors × ( string name | u32 dimensions | u64 × dimensions, innermost first | u32 type | u64 offset )
//   padding to general.alignment | the tensors' bytes, each at its offset from here, a multiple of the
//   alignment
//
// Nothing is copied: values and tensors are views into the mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "weights/tensor_source.h"

namespace quire::weights {

enum class GgufType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
inline constexpr std::uint32_t kNumGgufTypes = 13;
std::string_view GgufTypeName(GgufType type);

struct GgufValue {
  GgufType type = GgufType::kUint8;  // of the value, or of an array's elements
  bool is_array = false;
  std::uint64_t count = 1;           // elements of an array
  std::span<const std::byte> bytes;  // strings with their lengths, one after the other
};

class GgufFile {
 public:
  // Checks everything that can be checked without knowing what the keys mean (GGUF-02, GGUF-06): counts and
  // lengths against the bytes that are left before anything is allocated, duplicate keys and names, types,
  // dimensions, block sizes, alignment, offsets, and that no two tensors overlap. `file` and its bytes
  // outlive the result.
  static Result<GgufFile> Parse(std::span<const std::byte> file, std::string_view name);

  const std::string& name() const { return name_; }
  std::uint32_t version() const { return version_; }
  std::vector<TensorSource>& tensors() { return tensors_; }
  const std::vector<TensorSource>& tensors() const { return tensors_; }
  const TensorSource* FindTensor(std::string_view tensor) const;
  const GgufValue* Find(std::string_view key) const;
  const std::unordered_map<std::string_view, GgufValue>& metadata() const { return metadata_; }

  // Typed reading: absent is nothing, another type or a value out of range is an error that names the key
  // (GGUF-03). Integers may have any integer type, reals any float type.
  Result<std::optional<std::int64_t>> OptionalInt(std::string_view key, std::int64_t low, std::int64_t high) const;
  Result<std::int64_t> Int(std::string_view key, std::int64_t low, std::int64_t high) const;
  Result<std::optional<double>> OptionalReal(std::string_view key, double low, double high) const;
  Result<std::optional<bool>> OptionalBool(std::string_view key) const;
  Result<std::optional<std::string>> OptionalString(std::string_view key) const;
  // Arrays; absent: empty. Views into the file for strings, copies for numbers.
  Result<std::vector<std::string_view>> Strings(std::string_view key) const;
  Result<std::vector<float>> Floats(std::string_view key) const;
  Result<std::vector<std::int32_t>> Int32s(std::string_view key) const;
  Result<std::vector<bool>> Bools(std::string_view key) const;
  // An integer, or an array of `count` equal ones: what a file says once for all layers or for each of them.
  Result<std::optional<std::int64_t>> OptionalIntForEach(std::string_view key, std::int64_t count, std::int64_t low,
                                                         std::int64_t high) const;

 private:
  Result<const GgufValue*> FindArray(std::string_view key, GgufType type) const;

  std::string name_;
  std::uint32_t version_ = 0;
  std::unordered_map<std::string_view, GgufValue> metadata_;
  std::vector<TensorSource> tensors_;
};

}  // namespace quire::weights
