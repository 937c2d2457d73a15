// Blocks of storage types for tests, byte by byte.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "weights/tensor_source.h"

namespace quire::weights {

using Bytes = std::vector<std::byte>;

inline void Append(int value, int count, Bytes* out) {
  out->insert(out->end(), static_cast<std::size_t>(count), static_cast<std::byte>(value));
}

inline void Append16(std::uint16_t bits, Bytes* out) {
  out->push_back(static_cast<std::byte>(bits & 255));
  out->push_back(static_cast<std::byte>(bits >> 8));
}

inline std::vector<float> Dequantize(std::string_view type, const Bytes& row, std::int64_t columns) {
  EXPECT_EQ(*RowBytes(*FindTypeByName(type), columns, "t"), row.size());
  std::vector<float> values(static_cast<std::size_t>(columns));
  FindTypeByName(type)->dequantize_row(row.data(), columns, values.data());
  return values;
}

inline RowBuffer Decode(std::string_view type, const Bytes& row, std::int64_t columns) {
  RowBuffer buffer;
  FindTypeByName(type)->decode_row(row.data(), columns, &buffer);
  return buffer;
}

}  // namespace quire::weights
