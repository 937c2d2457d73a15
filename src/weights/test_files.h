// Files for this module's tests: a folder that cleans up behind itself, and small safetensors files built by
// hand.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::weights {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quire_weights_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(std::string_view name, std::string_view bytes) const {
    std::ofstream file(path_ / name, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// The header's length as it stands in the file, the header, the data.
inline std::string SafetensorsFile(std::string_view header, std::size_t data_bytes, char fill = 0) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[static_cast<std::size_t>(i)] = static_cast<char>(header.size() >> (8 * i) & 255);
  file += header;
  file.append(data_bytes, fill);
  return file;
}

// One F32 tensor a name, each of one element with the value given.
inline std::string ScalarSafetensors(const std::vector<std::pair<std::string, float>>& tensors) {
  std::string header = "{", data;
  for (const auto& [name, value] : tensors) {
    header += (data.empty() ? "\"" : ",\"") + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + 4) + "]}";
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return SafetensorsFile(header + "}", 0) + data;
}

// A GGUF file put together field by field, so that every field can be wrong.
class GgufBytes {
 public:
  template <typename T>
  static std::string Raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  static std::string Text(std::string_view text) { return Raw(std::uint64_t{text.size()}) + std::string(text); }

  GgufBytes& Pair(std::string_view key, std::uint32_t type, std::string_view value) {
    pairs_ += Text(key) + Raw(type) + std::string(value);
    ++num_pairs_;
    return *this;
  }
  GgufBytes& String(std::string_view key, std::string_view value) { return Pair(key, 8, Text(value)); }
  GgufBytes& Uint32(std::string_view key, std::uint32_t value) { return Pair(key, 4, Raw(value)); }
  GgufBytes& Float(std::string_view key, float value) { return Pair(key, 6, Raw(value)); }
  GgufBytes& Array(std::string_view key, std::uint32_t type, std::uint64_t count, std::string_view elements) {
    return Pair(key, 9, Raw(type) + Raw(count) + std::string(elements));
  }
  GgufBytes& Strings(std::string_view key, const std::vector<std::string>& values) {
    std::string elements;
    for (const std::string& value : values) elements += Text(value);
    return Array(key, 8, values.size(), elements);
  }
  // `shape` innermost first, as the file has it.
  GgufBytes& Tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
                    std::uint64_t offset) {
    infos_ += Text(name) + Raw(static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t dimension : shape) infos_ += Raw(dimension);
    infos_ += Raw(type) + Raw(offset);
    ++num_tensors_;
    return *this;
  }
  std::string File(std::size_t data_bytes, std::uint32_t version = 3) const {
    std::string file = "GGUF" + Raw(version) + Raw(num_tensors_) + Raw(num_pairs_) + pairs_ + infos_;
    file.resize((file.size() + 31) / 32 * 32 + data_bytes);
    return file;
  }

 private:
  std::string pairs_, infos_;
  std::uint64_t num_pairs_ = 0, num_tensors_ = 0;
};

}  // namespace quire::weights
