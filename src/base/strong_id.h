// An integer that knows what it counts: a BlockId cannot be passed where a TokenId belongs.
// It has the size and the bytes of its representation, so arrays of ids can be copied and sent as they are.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>

namespace quire {

template <typename Tag, typename Representation>
class StrongId {
 public:
  using Rep = Representation;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }

  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Rep value_ = Rep{};
};

// A row of the embedding table; what tokenizers produce and models consume.
using TokenId = StrongId<struct TokenIdTag, std::int32_t>;
// A block of the KV pool.
using BlockId = StrongId<struct BlockIdTag, std::int32_t>;
// One request to one engine; chosen by the front end, unique while the request lives.
using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;

}  // namespace quire

template <typename Tag, typename Rep>
struct std::hash<quire::StrongId<Tag, Rep>> {
  std::size_t operator()(quire::StrongId<Tag, Rep> id) const noexcept { return std::hash<Rep>()(id.value()); }
};

template <typename Tag, typename Rep>
struct fmt::formatter<quire::StrongId<Tag, Rep>> : fmt::formatter<Rep> {
  template <typename Context>
  auto format(quire::StrongId<Tag, Rep> id, Context& context) const {
    return fmt::formatter<Rep>::format(id.value(), context);
  }
};
