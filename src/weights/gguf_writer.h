// Writes a GGUF file (version 3) from front to back: metadata, then tensors in the order they were declared, each
// streamed in pieces, so that memory does not grow with the model. The file appears when Commit succeeds.
//
//   writer.PutString("general.architecture", "llama"); … writer.AddTensor("token_embd.weight", type, shape); …
//   WriteHeader(); Append(bytes of the first tensor) …; Commit();
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "weights/atomic_file.h"
#include "weights/gguf_file.h"
#include "weights/tensor_source.h"

namespace quire::weights {

class GgufWriter {
 public:
  static Result<GgufWriter> Create(const std::filesystem::path& path);

  // Metadata. A key that stands there already is a bug, but for Put, which copies foreign keys and skips it.
  void PutString(std::string_view key, std::string_view value);
  void PutUint32(std::string_view key, std::uint32_t value);
  void PutInt32(std::string_view key, std::int32_t value);
  void PutFloat(std::string_view key, float value);
  void PutBool(std::string_view key, bool value);
  void PutStrings(std::string_view key, std::span<const std::string> values);
  void PutFloats(std::string_view key, std::span<const float> values);
  void PutInt32s(std::string_view key, std::span<const std::int32_t> values);
  void PutBools(std::string_view key, const std::vector<bool>& values);
  void Put(std::string_view key, const GgufValue& value);
  bool Has(std::string_view key) const { return keys_.contains(std::string(key)); }

  // `shape` outermost first. Fails when the type's blocks do not divide the last dimension.
  Result<> AddTensor(std::string_view name, const TypeTraits& type, std::span<const std::int64_t> shape);
  Result<> WriteHeader();
  // The next bytes of the tensors; padding between them is added here.
  Result<> Append(std::span<const std::byte> bytes);
  // All bytes must have been appended.
  Result<> Commit();
  std::uint64_t size() const { return file_.size(); }

 private:
  explicit GgufWriter(AtomicFile file) : file_(std::move(file)) {}
  void PutRaw(std::string_view key, GgufType type, std::string_view value);
  void PutArray(std::string_view key, GgufType type, std::uint64_t count, std::string_view elements);
  Result<> Pad();

  AtomicFile file_;
  std::unordered_set<std::string> keys_;
  std::string metadata_, tensor_infos_;
  std::vector<std::uint64_t> tensor_bytes_;
  std::uint64_t data_bytes_ = 0;     // of all declared tensors, each padded
  std::size_t current_ = 0;          // the tensor being appended
  std::uint64_t current_bytes_ = 0;  // how many of its bytes are there
};

}  // namespace quire::weights
