// Arithmetic on sizes that a file claims: an overflow is nothing, never a small number.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>

namespace quire::weights {

inline std::optional<std::uint64_t> CheckedAdd(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<std::uint64_t> CheckedMultiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The number of elements of a shape, if it and every dimension fit in 63 bits. The empty shape has one
// element.
template <std::integral T>
std::optional<std::int64_t> CheckedElements(std::span<const T> shape) {
  std::int64_t elements = 1;
  for (const T dimension : shape) {
    if (std::in_range<std::int64_t>(dimension) == false || dimension < T{0}) return std::nullopt;
    if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(dimension), &elements)) return std::nullopt;
  }
  return elements;
}

}  // namespace quire::weights
