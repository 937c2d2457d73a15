// A file that appears under its name whole or not at all: it is written beside its place under another name, flushed
// to the disk, and renamed. Move-only; what was not committed is removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace quire::weights {

class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Appends; small pieces are gathered. Errors (a full disk) name the file.
  Result<> Write(std::span<const std::byte> bytes);
  Result<> Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }
  std::uint64_t size() const { return size_; }  // bytes appended so far
  const std::filesystem::path& path() const { return path_; }

  Result<> Commit();

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path temporary, UniqueFd fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}
  Result<> Flush();
  Result<> WriteAll(std::span<const std::byte> bytes);

  std::filesystem::path path_, temporary_;  // temporary_ is empty when there is nothing to remove
  UniqueFd fd_;
  std::vector<std::byte> pending_;
  std::uint64_t size_ = 0;
};

}  // namespace quire::weights
