#include "kernels/store_kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/float8.h"

namespace quire::kernels {
namespace {

constexpr std::int64_t kTokens = KvLayout::block_size;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Where the key and the value of one token and head go.
struct Place {
  const KvLayout& layout;
  std::int64_t token;  // within the block
  std::byte* k_tile;
  std::byte* v_tile;

  std::byte* key_scales() const { return k_tile + layout.k_codes_bytes(); }
  std::byte* value_codes() const { return v_tile + static_cast<std::size_t>(token) * layout.v_row_bytes(); }
  std::byte* value_scales() const { return v_tile + layout.v_codes_bytes(); }
};

// To the nearest integer, half to even, for |x| < 2^22.
float RoundToInteger(float x) {
  return x + 0x1.8p23f - 0x1.8p23f;
}

bool AllFinite(const float* x, std::int64_t n) {
  bool finite = true;
  for (std::int64_t i = 0; i < n; ++i) finite &= std::isfinite(x[i]);
  return finite;
}

void StoreBf16(const float* k, const float* v, const Place& place) {
  const std::int64_t head_dim = place.layout.head_dim, token = place.token;
  for (std::int64_t d = 0; d < head_dim; d += 2) {
    const std::uint16_t pair[2] = {ToBf16(k[d]).bits, ToBf16(k[d + 1]).bits};
    std::memcpy(place.k_tile + (d / 2 * kTokens + token) * 4, pair, 4);
  }
  std::byte* v_pair = place.v_tile + (token / 2 * head_dim * 2 + token % 2) * 2;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const std::uint16_t rounded = ToBf16(v[d]).bits;
    std::memcpy(v_pair + d * 4, &rounded, 2);
  }
}

void StoreF32(const float* k, const float* v, const Place& place) {
  const std::int64_t head_dim = place.layout.head_dim;
  for (std::int64_t d = 0; d < head_dim; ++d) std::memcpy(place.k_tile + (d * kTokens + place.token) * 4, k + d, 4);
  std::memcpy(place.value_codes(), v, static_cast<std::size_t>(head_dim) * 4);
}

void StoreFp8(const float* k, const float* v, const Place& place) {
  const std::int64_t head_dim = place.layout.head_dim;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    place.k_tile[d * kTokens + place.token] = std::byte{ToFp8E4m3(k[d]).bits};
  }
  for (std::int64_t d = 0; d < head_dim; ++d) place.value_codes()[d] = std::byte{ToFp8E4m3(v[d]).bits};
}

// ---- INT8 ----------------------------------------------------------------------------------------------------------

float Int8Scale(const float* x, std::int64_t n) {
  if (!AllFinite(x, n)) return kNan;
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest / 127;
}

std::byte Int8Code(float x, float scale) {
  if (!(scale > 0)) return std::byte{0};
  // A subnormal scale is coarse: without bounds the quotient could reach 190.
  const float code = RoundToInteger(std::clamp(x / scale, -127.0f, 127.0f));
  return static_cast<std::byte>(static_cast<std::int8_t>(code));
}

void StoreInt8(const float* k, const float* v, const Place& place) {
  const std::int64_t head_dim = place.layout.head_dim;
  const float k_scale = Int8Scale(k, head_dim), v_scale = Int8Scale(v, head_dim);
  std::memcpy(place.key_scales() + place.token * 4, &k_scale, 4);
  std::memcpy(place.value_scales() + place.token * 4, &v_scale, 4);
  for (std::int64_t d = 0; d < head_dim; ++d) place.k_tile[d * kTokens + place.token] = Int8Code(k[d], k_scale);
  for (std::int64_t d = 0; d < head_dim; ++d) place.value_codes()[d] = Int8Code(v[d], v_scale);
}

// ---- INT4 ----------------------------------------------------------------------------------------------------------

struct Int4Range {
  F16 scale, min;

  unsigned Code(float x) const {
    if (!(ToFloat(scale) > 0)) return 0;
    return static_cast<unsigned>(RoundToInteger(std::clamp((x - ToFloat(min)) / ToFloat(scale), 0.0f, 15.0f)));
  }
};

Int4Range RangeOf(const float* x, std::int64_t n) {
  constexpr float kLargest = 65504;  // of F16
  if (!AllFinite(x, n)) return {ToF16(kNan), F16{}};
  const auto [least, most] = std::minmax_element(x, x + n);
  const float from = std::clamp(*least, -kLargest, kLargest), to = std::clamp(*most, -kLargest, kLargest);
  const F16 min = ToF16(from);
  return {ToF16(std::max(0.0f, (to - ToFloat(min)) / 15)), min};
}

// scales [16] and mins [16] of F16 at `scales`.
void PutRange(Int4Range range, std::int64_t token, std::byte* scales) {
  std::memcpy(scales + token * 2, &range.scale.bits, 2);
  std::memcpy(scales + (kTokens + token) * 2, &range.min.bits, 2);
}

void StoreInt4(const float* k, const float* v, const Place& place) {
  constexpr std::int64_t kGroup = KvLayout::channels_group, kHalf = kGroup / 2;
  const std::int64_t head_dim = place.layout.head_dim;
  for (std::int64_t begin = 0; begin < head_dim; begin += kGroup) {
    const std::int64_t end = std::min(begin + kGroup, head_dim);
    const Int4Range range = RangeOf(k + begin, end - begin);
    PutRange(range, place.token, place.key_scales() + begin / kGroup * kTokens * 4);
    for (std::int64_t d = begin; d < end; d += 2) {
      place.k_tile[d / 2 * kTokens + place.token] = std::byte(range.Code(k[d]) | range.Code(k[d + 1]) << 4);
    }
  }
  const Int4Range range = RangeOf(v, head_dim);
  PutRange(range, place.token, place.value_scales());
  for (std::int64_t d = 0; d < head_dim; ++d) {
    if (d / kHalf % 2 != 0) continue;  // it is the upper half of the byte of d − 16
    const unsigned upper = d + kHalf < head_dim ? range.Code(v[d + kHalf]) : 0;
    place.value_codes()[d / kGroup * kHalf + d % kHalf] = std::byte(range.Code(v[d]) | upper << 4);
  }
}

using Store = void (*)(const float* k, const float* v, const Place& place);

Store StoreOf(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kBf16:
      return StoreBf16;
    case KvDtype::kF32:
      return StoreF32;
    case KvDtype::kFp8E4m3:
      return StoreFp8;
    case KvDtype::kInt8:
      return StoreInt8;
    case KvDtype::kInt4:
      return StoreInt4;
  }
  return nullptr;
}

}  // namespace

void StoreKv(const StoreKvArgs& args) {
  const KvLayout& layout = *args.layout;
  CHECK(layout.head_dim % 2 == 0);
  const Store store = StoreOf(layout.dtype);
  for (std::int64_t t = 0; t < args.num_tokens; ++t) {
    const std::int64_t slot = args.slots[t];
    std::byte* block = args.pool + static_cast<std::size_t>(slot / kTokens) * layout.block_bytes();
    for (int head = 0; head < layout.num_kv_heads; ++head) {
      const std::int64_t source = t * args.stride + std::int64_t{head} * layout.head_dim;
      std::byte* k_tile = block + layout.tile_offset(args.layer, head);
      store(args.k + source, args.v + source, Place{layout, slot % kTokens, k_tile, k_tile + layout.k_tile_bytes()});
    }
  }
}

}  // namespace quire::kernels
