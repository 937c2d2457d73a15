// A file, mapped read-only. The mapping holds a shared lock-free view: if another process truncates the file while
// it is mapped, reading past its new end raises SIGBUS, so loaders copy (pack) what they need and let go.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace quire {

class MappedFile {
 public:
  // An empty file is an empty span. Directories, sockets and the like are refused.
  static Result<MappedFile> Open(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Asks the kernel to read the file ahead; returns at once.
  void ReadAhead() const;
  // Gives back the pages of `part`, which must lie in bytes(); they are read again from the file when touched.
  void Release(std::span<const std::byte> part) const;

 private:
  struct Unmap {
    std::size_t size;
    void operator()(const std::byte* data) const;
  };

  std::filesystem::path path_;
  std::unique_ptr<const std::byte, Unmap> data_{nullptr, Unmap{0}};
  std::size_t size_ = 0;
};

// A small text file as a string; refused when it is larger than `bytes_max`.
Result<std::string> ReadFile(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace quire
