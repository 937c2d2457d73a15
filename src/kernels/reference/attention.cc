#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float8.h"
#include "kernels/reference/reference.h"

namespace quire::kernels::reference {
namespace {

constexpr std::int64_t kTokens = KvLayout::block_size;

// The keys and values of one sequence, layer and head, decoded from the stored bytes.
class CachedHead {
 public:
  CachedHead(const AttentionArgs& args, const std::int32_t* blocks)
      : args_(args), layout_(*args.layout), blocks_(blocks) {}

  double k(std::int64_t position, std::int64_t d) const {
    const std::byte* tile = KTile(position);
    const std::byte* scales = tile + k_scales_;
    const std::int64_t token = position % kTokens;
    switch (layout_.dtype) {
      case KvDtype::kBf16:
        return double{ToFloat(Bf16{At<std::uint16_t>(tile, d / 2 * kTokens * 2 + token * 2 + d % 2)})};
      case KvDtype::kF32:
        return double{At<float>(tile, d * kTokens + token)};
      case KvDtype::kFp8E4m3:
        return double{ToFloat(Fp8E4m3{At<std::uint8_t>(tile, d * kTokens + token)})};
      case KvDtype::kInt8:
        return double{At<float>(scales, token)} * At<std::int8_t>(tile, d * kTokens + token);
      case KvDtype::kInt4: {
        const unsigned pair = At<std::uint8_t>(tile, d / 2 * kTokens + token);
        return Int4(d % 2 == 0 ? pair & 15 : pair >> 4, scales + d / KvLayout::channels_group * kTokens * 4, token);
      }
    }
    return 0;
  }
  double v(std::int64_t position, std::int64_t d) const {
    const std::byte* tile = KTile(position) + v_tile_;
    const std::byte* scales = tile + v_scales_;
    const std::int64_t token = position % kTokens, head_dim = layout_.head_dim;
    const std::byte* row = tile + token * v_row_bytes_;
    switch (layout_.dtype) {
      case KvDtype::kBf16:
        return double{ToFloat(Bf16{At<std::uint16_t>(tile, (token / 2 * head_dim + d) * 2 + token % 2)})};
      case KvDtype::kF32:
        return double{At<float>(row, d)};
      case KvDtype::kFp8E4m3:
        return double{ToFloat(Fp8E4m3{At<std::uint8_t>(row, d)})};
      case KvDtype::kInt8:
        return double{At<float>(scales, token)} * At<std::int8_t>(row, d);
      case KvDtype::kInt4: {
        const unsigned pair = At<std::uint8_t>(row, d / 32 * 16 + d % 16);
        return Int4(d % 32 < 16 ? pair & 15 : pair >> 4, scales, token);
      }
    }
    return 0;
  }

 private:
  const std::byte* KTile(std::int64_t position) const {
    return args_.pool + blocks_[position / kTokens] * block_bytes_ + k_tile_;
  }
  template <typename T>
  static T At(const std::byte* base, std::int64_t index) {
    T value;
    std::memcpy(&value, base + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  static double Int4(unsigned code, const std::byte* scales, std::int64_t token) {
    const double scale{ToFloat(F16{At<std::uint16_t>(scales, token)})};
    const double min{ToFloat(F16{At<std::uint16_t>(scales, kTokens + token)})};
    return scale * code + min;
  }

  const AttentionArgs& args_;
  const KvLayout& layout_;
  const std::int32_t* blocks_;
  // Offsets in bytes: of the K tile in a block, of the V tile from it on, of scales from their tile on.
  const std::int64_t block_bytes_ = static_cast<std::int64_t>(layout_.block_bytes());
  const std::int64_t k_tile_ = static_cast<std::int64_t>(layout_.tile_offset(args_.layer, args_.kv_head));
  const std::int64_t k_scales_ = static_cast<std::int64_t>(layout_.k_codes_bytes());
  const std::int64_t v_tile_ = static_cast<std::int64_t>(layout_.k_tile_bytes());
  const std::int64_t v_scales_ = static_cast<std::int64_t>(layout_.v_codes_bytes());
  const std::int64_t v_row_bytes_ = static_cast<std::int64_t>(layout_.v_row_bytes());
};

// softmax(scale · q Kᵀ) V of one query head at `position`. `weighted` [head_dim] is scratch.
void AttendOne(const AttentionArgs& args, const CachedHead& cache, std::int64_t position, const float* q,
               double* weighted, float* out) {
  const std::int64_t head_dim = args.layout->head_dim;
  const std::int64_t first = args.window > 0 ? std::max<std::int64_t>(0, position - args.window + 1) : 0;
  const auto score = [&](std::int64_t key) {
    double dot = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) dot += double{q[d]} * cache.k(key, d);
    return dot * double{args.scale};
  };
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t key = first; key <= position; ++key) largest = std::max(largest, score(key));
  std::fill_n(weighted, head_dim, 0.0);
  double sum = 0;
  for (std::int64_t key = first; key <= position; ++key) {
    const double p = std::exp(score(key) - largest);  // computed twice: there is no room to keep a score per key
    sum += p;
    for (std::int64_t d = 0; d < head_dim; ++d) weighted[d] += p * cache.v(key, d);
  }
  for (std::int64_t d = 0; d < head_dim; ++d) out[d] = static_cast<float>(weighted[d] / sum);
}

}  // namespace

std::size_t AttentionScratchBytes(const KvLayout& layout, int /*group*/) {
  return (static_cast<std::size_t>(layout.head_dim) * sizeof(double) + 63) / 64 * 64;
}

void Attention(const AttentionArgs& args) {
  auto* weighted = reinterpret_cast<double*>(args.scratch);
  for (std::int64_t s = 0; s < args.num_sequences; ++s) {
    const AttentionQueries& queries = args.sequences[s];
    const CachedHead cache(args, queries.blocks);
    for (std::int64_t i = 0; i < queries.num_queries; ++i) {
      for (std::int64_t g = 0; g < args.group; ++g) {
        const std::int64_t head = g * args.layout->head_dim;
        AttendOne(args, cache, queries.first_position + i, queries.q + i * args.q_stride + head, weighted,
                  queries.out + i * args.out_stride + head);
      }
    }
  }
}

}  // namespace quire::kernels::reference
