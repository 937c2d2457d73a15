// What the two halves of the codec share, and nobody else sees: the FlatBuffers code of protocol.fbs, and how ids and texts
// stand in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/strong_id.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "wire/protocol_generated.h"
#pragma GCC diagnostic pop

namespace quire::wire {

// A TokenId has the bytes of its number, so that arrays of ids go over as they are.
static_assert(sizeof(TokenId) == sizeof(std::int32_t) && std::is_trivially_copyable_v<TokenId>);

inline constexpr std::size_t kTextBytesMax = 64 << 10;  // paths, names, error messages
inline std::string_view Shortened(std::string_view text) {
  return text.substr(0, kTextBytesMax);
}

}  // namespace quire::wire
