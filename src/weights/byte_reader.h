// Reads little-endian values from the front of a buffer and never past its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/result.h"

namespace quire::weights {

class ByteReader {
 public:
  // `name` (of the file) stands in errors.
  ByteReader(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  std::size_t position() const { return position_; }
  std::size_t left() const { return bytes_.size() - position_; }

  template <typename T>
  Result<T> Read(std::string_view what) {
    QUIRE_TRY(const auto taken, Take(sizeof(T), what));
    T value;
    std::memcpy(&value, taken.data(), sizeof value);
    return value;
  }

  Result<std::span<const std::byte>> Take(std::uint64_t count, std::string_view what) {
    if (count > left()) {
      return Fail(ErrorCode::kCorrupt, "{}: {} needs {} bytes at byte {}; the file has {} left (truncated?)", name_,
                  what, count, position_, left());
    }
    const auto taken = bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += taken.size();
    return taken;
  }

  // A length of 64 bits, then the bytes; at most `bytes_max` of them.
  Result<std::string_view> ReadString(std::string_view what, std::uint64_t bytes_max) {
    QUIRE_TRY(const auto length, Read<std::uint64_t>(what));
    if (length > bytes_max) {
      return Fail(ErrorCode::kCorrupt, "{}: {} is {} bytes long; at most {} are allowed", name_, what, length,
                  bytes_max);
    }
    QUIRE_TRY(const auto taken, Take(length, what));
    return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view name_;
  std::size_t position_ = 0;
};

}  // namespace quire::weights
