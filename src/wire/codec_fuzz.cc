// Any bytes: Decode must return, and what it accepts must survive being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "wire/codec.h"

namespace quire::wire {
namespace {

void CheckOnce(std::span<const std::byte> frame) {
  const Result<Message> first = Decode(frame);
  if (!first) return;
  Encoder encoder;
  const std::size_t kind = first->body.index();
  const auto again = std::visit(
      [&](const auto& body) {
        std::span<const std::byte> bytes = encoder.Encode(first->call, body);
        return std::vector<std::byte>(bytes.begin(), bytes.end());
      },
      first->body);
  const Result<Message> second = Decode(again);
  CHECK(second.has_value());
  CHECK(second->call == first->call);
  CHECK(second->body.index() == kind);
}

}  // namespace
}  // namespace quire::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The prefix is made right, so that the fuzzer spends its time behind it.
  if (size > 1 << 20) return 0;
  std::vector<std::byte> frame(quire::wire::kFramePrefixBytes + size);
  const auto length = static_cast<std::uint32_t>(size);
  std::memcpy(frame.data(), &length, sizeof length);
  if (size > 0) std::memcpy(frame.data() + quire::wire::kFramePrefixBytes, data, size);
  quire::wire::CheckOnce(frame);
  return 0;
}
