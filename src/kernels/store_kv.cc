#include "kernels/store_kv.h"

#include <cstring>

#include "base/check.h"

namespace quire::kernels {
namespace {

constexpr std::int64_t kTokens = KvLayout::block_size;

void StoreBf16(const float* k, const float* v, std::int64_t token, std::int64_t head_dim, std::byte* k_tile,
               std::byte* v_tile) {
  // K tile [head_dim/2][16][2], V tile [8][head_dim][2].
  for (std::int64_t d = 0; d < head_dim; d += 2) {
    const std::uint16_t pair[2] = {ToBf16(k[d]).bits, ToBf16(k[d + 1]).bits};
    std::memcpy(k_tile + (d / 2 * kTokens + token) * 4, pair, 4);
  }
  std::byte* v_pair = v_tile + (token / 2 * head_dim * 2 + token % 2) * 2;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const std::uint16_t rounded = ToBf16(v[d]).bits;
    std::memcpy(v_pair + d * 4, &rounded, 2);
  }
}

void StoreF32(const float* k, const float* v, std::int64_t token, std::int64_t head_dim, std::byte* k_tile,
              std::byte* v_tile) {
  // K tile [head_dim][16], V tile [16][head_dim].
  for (std::int64_t d = 0; d < head_dim; ++d) std::memcpy(k_tile + (d * kTokens + token) * 4, k + d, 4);
  std::memcpy(v_tile + token * head_dim * 4, v, static_cast<std::size_t>(head_dim) * 4);
}

}  // namespace

void StoreKv(const StoreKvArgs& args) {
  const KvLayout& layout = *args.layout;
  CHECK(layout.head_dim % 2 == 0);
  const auto store = layout.dtype == KvDtype::kBf16 ? StoreBf16 : StoreF32;
  for (std::int64_t t = 0; t < args.num_tokens; ++t) {
    const std::int64_t slot = args.slots[t];
    std::byte* block = args.pool + static_cast<std::size_t>(slot / kTokens) * layout.block_bytes();
    for (int head = 0; head < layout.num_kv_heads; ++head) {
      const std::int64_t source = t * args.stride + std::int64_t{head} * layout.head_dim;
      std::byte* k_tile = block + layout.tile_offset(args.layer, head);
      store(args.k + source, args.v + source, slot % kTokens, layout.head_dim, k_tile, k_tile + layout.tile_bytes());
    }
  }
}

}  // namespace quire::kernels
