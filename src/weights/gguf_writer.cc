#include "weights/gguf_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace quire::weights {
namespace {

constexpr std::uint64_t kAlignment = 32;  // GGUF's default, so that the file need not say it
constexpr std::uint32_t kVersion = 3;

template <typename T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string Text(std::string_view text) {
  return Raw(std::uint64_t{text.size()}) + std::string(text);
}

std::uint64_t Padded(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<GgufWriter> GgufWriter::Create(const std::filesystem::path& path) {
  QUIRE_TRY(AtomicFile file, AtomicFile::Create(path));
  return GgufWriter(std::move(file));
}

void GgufWriter::PutRaw(std::string_view key, GgufType type, std::string_view value) {
  CHECK(keys_.emplace(key).second);
  metadata_ += Text(key);
  metadata_ += Raw(std::to_underlying(type));
  metadata_ += value;
}

void GgufWriter::PutArray(std::string_view key, GgufType type, std::uint64_t count, std::string_view elements) {
  PutRaw(key, GgufType::kArray, Raw(std::to_underlying(type)) + Raw(count) + std::string(elements));
}

void GgufWriter::PutString(std::string_view key, std::string_view value) {
  PutRaw(key, GgufType::kString, Text(value));
}
void GgufWriter::PutUint32(std::string_view key, std::uint32_t value) {
  PutRaw(key, GgufType::kUint32, Raw(value));
}
void GgufWriter::PutInt32(std::string_view key, std::int32_t value) {
  PutRaw(key, GgufType::kInt32, Raw(value));
}
void GgufWriter::PutFloat(std::string_view key, float value) {
  PutRaw(key, GgufType::kFloat32, Raw(value));
}
void GgufWriter::PutBool(std::string_view key, bool value) {
  PutRaw(key, GgufType::kBool, Raw(std::uint8_t{value}));
}

void GgufWriter::PutStrings(std::string_view key, std::span<const std::string> values) {
  std::string elements;
  for (const std::string& value : values) elements += Text(value);
  PutArray(key, GgufType::kString, values.size(), elements);
}

void GgufWriter::PutFloats(std::string_view key, std::span<const float> values) {
  PutArray(key, GgufType::kFloat32, values.size(), {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

void GgufWriter::PutInt32s(std::string_view key, std::span<const std::int32_t> values) {
  PutArray(key, GgufType::kInt32, values.size(), {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

void GgufWriter::PutBools(std::string_view key, const std::vector<bool>& values) {
  std::string elements;
  for (const bool value : values) elements.push_back(value ? '\1' : '\0');
  PutArray(key, GgufType::kBool, values.size(), elements);
}

void GgufWriter::Put(std::string_view key, const GgufValue& value) {
  if (Has(key)) return;
  const std::string_view bytes(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  value.is_array ? PutArray(key, value.type, value.count, bytes) : PutRaw(key, value.type, bytes);
}

Result<> GgufWriter::AddTensor(std::string_view name, const TypeTraits& type, std::span<const std::int64_t> shape) {
  QUIRE_TRY(const std::size_t row_bytes, RowBytes(type, shape.back(), name));
  std::uint64_t bytes = row_bytes;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) bytes *= static_cast<std::uint64_t>(shape[i]);
  tensor_infos_ += Text(name) + Raw(static_cast<std::uint32_t>(shape.size()));
  for (std::size_t i = shape.size(); i-- > 0;) tensor_infos_ += Raw(static_cast<std::uint64_t>(shape[i]));
  tensor_infos_ += Raw(static_cast<std::uint32_t>(type.gguf_id)) + Raw(data_bytes_);
  tensor_bytes_.push_back(bytes);
  data_bytes_ += Padded(bytes);
  return {};
}

Result<> GgufWriter::WriteHeader() {
  QUIRE_TRY_VOID(file_.Write("GGUF" + Raw(kVersion) + Raw(std::uint64_t{tensor_bytes_.size()}) +
                             Raw(std::uint64_t{keys_.size()})));
  QUIRE_TRY_VOID(file_.Write(std::exchange(metadata_, {})));
  QUIRE_TRY_VOID(file_.Write(std::exchange(tensor_infos_, {})));
  return Pad();
}

Result<> GgufWriter::Pad() {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  return file_.Write(std::span(kZeros).first(static_cast<std::size_t>(Padded(file_.size()) - file_.size())));
}

Result<> GgufWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    CHECK(current_ < tensor_bytes_.size());
    const std::uint64_t left = tensor_bytes_[current_] - current_bytes_;
    const auto now = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(left, bytes.size())));
    QUIRE_TRY_VOID(file_.Write(now));
    current_bytes_ += now.size();
    bytes = bytes.subspan(now.size());
    if (current_bytes_ == tensor_bytes_[current_]) {
      QUIRE_TRY_VOID(Pad());
      ++current_;
      current_bytes_ = 0;
    }
  }
  return {};
}

Result<> GgufWriter::Commit() {
  CHECK(current_ == tensor_bytes_.size() && current_bytes_ == 0);
  return file_.Commit();
}

}  // namespace quire::weights
