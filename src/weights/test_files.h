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
  for (int i = 0; i < 8; ++i)
    file[static_cast<std::size_t>(i)] = static_cast<char>(header.size() >> (8 * i) & 255);
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

}  // namespace quire::weights
