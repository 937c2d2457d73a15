#include "server/trace_context.h"

#include <algorithm>

namespace quire::server {
namespace {

// Lower case only, as the specification has it; -1 for anything else.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool ReadHex(std::string_view text, std::span<std::uint8_t> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = HexDigit(text[2 * i]), low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

bool IsZero(std::span<const std::uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace

//   00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//   |  |                                |                |
//   0  3                                36               53    55: the end, or in later versions more after a hyphen
std::optional<TraceParent> ParseTraceParent(std::string_view traceparent, std::string_view tracestate) {
  constexpr std::size_t kSize = 55;
  if (traceparent.size() < kSize) return std::nullopt;
  if (traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') return std::nullopt;
  std::array<std::uint8_t, 1> version{}, flags{};
  TraceParent parent;
  if (!ReadHex(traceparent.substr(0, 2), version) || !ReadHex(traceparent.substr(3, 32), parent.trace) ||
      !ReadHex(traceparent.substr(36, 16), parent.span) || !ReadHex(traceparent.substr(53, 2), flags)) {
    return std::nullopt;
  }
  if (version[0] == 0xff || IsZero(parent.trace) || IsZero(parent.span)) return std::nullopt;
  if (traceparent.size() > kSize && (version[0] == 0 || traceparent[kSize] != '-')) return std::nullopt;
  parent.is_sampled = (flags[0] & 1) != 0;
  constexpr std::size_t kStateBytesMax = 512;
  const bool is_plain = std::ranges::all_of(tracestate, [](char c) { return c >= 0x20 && c < 0x7f; });
  if (tracestate.size() <= kStateBytesMax && is_plain) parent.state = tracestate;
  return parent;
}

std::string ToHex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace quire::server
