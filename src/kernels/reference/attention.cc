#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/reference/reference.h"

namespace quire::kernels::reference {
namespace {

constexpr std::int64_t kTokens = KvLayout::block_size;

// The keys and values of one sequence, layer and head.
class CachedHead {
 public:
  explicit CachedHead(const AttentionArgs& args) : args_(args), layout_(*args.layout) {}

  float k(std::int64_t position, std::int64_t d) const {
    const std::int64_t token = position % kTokens;
    return bf16() ? Bf16At(d / 2 * kTokens * 2 + token * 2 + d % 2, KTile(position))
                  : F32At(d * kTokens + token, KTile(position));
  }
  float v(std::int64_t position, std::int64_t d) const {
    const std::int64_t token = position % kTokens, head_dim = layout_.head_dim;
    const std::byte* tile = KTile(position) + layout_.tile_bytes();
    return bf16() ? Bf16At((token / 2 * head_dim + d) * 2 + token % 2, tile) : F32At(token * head_dim + d, tile);
  }

 private:
  bool bf16() const { return layout_.dtype == KvDtype::kBf16; }
  const std::byte* KTile(std::int64_t position) const {
    const auto block = static_cast<std::size_t>(args_.blocks[position / kTokens]);
    return args_.pool + block * layout_.block_bytes() + layout_.tile_offset(args_.layer, args_.kv_head);
  }
  static float Bf16At(std::int64_t index, const std::byte* tile) {
    Bf16 value;
    std::memcpy(&value.bits, tile + index * 2, 2);
    return ToFloat(value);
  }
  static float F32At(std::int64_t index, const std::byte* tile) {
    float value;
    std::memcpy(&value, tile + index * 4, 4);
    return value;
  }

  const AttentionArgs& args_;
  const KvLayout& layout_;
};

// softmax(scale · q Kᵀ) V of one query head at `position`. `weighted` [head_dim] is scratch.
void AttendOne(const AttentionArgs& args, std::int64_t position, const float* q, double* weighted, float* out) {
  const CachedHead cache(args);
  const std::int64_t head_dim = args.layout->head_dim;
  const std::int64_t first = args.window > 0 ? std::max<std::int64_t>(0, position - args.window + 1) : 0;
  const auto score = [&](std::int64_t key) {
    double dot = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) dot += double{q[d]} * double{cache.k(key, d)};
    return dot * double{args.scale};
  };
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t key = first; key <= position; ++key) largest = std::max(largest, score(key));
  std::fill_n(weighted, head_dim, 0.0);
  double sum = 0;
  for (std::int64_t key = first; key <= position; ++key) {
    const double p = std::exp(score(key) - largest);  // computed twice: there is no room to keep a score per key
    sum += p;
    for (std::int64_t d = 0; d < head_dim; ++d) weighted[d] += p * double{cache.v(key, d)};
  }
  for (std::int64_t d = 0; d < head_dim; ++d) out[d] = static_cast<float>(weighted[d] / sum);
}

}  // namespace

std::size_t AttentionScratchBytes(const KvLayout& layout, int /*group*/) {
  return (static_cast<std::size_t>(layout.head_dim) * sizeof(double) + 63) / 64 * 64;
}

void Attention(const AttentionArgs& args) {
  auto* weighted = reinterpret_cast<double*>(args.scratch);
  for (std::int64_t i = 0; i < args.num_queries; ++i) {
    for (std::int64_t g = 0; g < args.group; ++g) {
      const std::int64_t head = g * args.layout->head_dim;
      AttendOne(args, args.first_position + i, args.q + i * args.q_stride + head, weighted,
                args.out + i * args.out_stride + head);
    }
  }
}

}  // namespace quire::kernels::reference
