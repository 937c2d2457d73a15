// A part of a text by its byte offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire::text {

// The longest text that is encoded. Normalizers and pre-tokenizers make it up to 16 times as long, and
// offsets must still fit in 32 bits.
inline constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;

struct Span {
  std::uint32_t begin = 0, end = 0;

  std::string_view Of(std::string_view text) const { return text.substr(begin, end - begin); }
  friend bool operator==(const Span&, const Span&) = default;
};

}  // namespace quire::text
