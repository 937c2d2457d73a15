// Random weights in every packed format, and sequences with random keys and values, for the tests and the benchmark of
// the kernels: both run over the same kind of cases, the tests over small and awkward shapes, the benchmark over those
// of real models.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "kernels/kernel_table.h"

namespace quire::kernels {

inline constexpr auto kAllWeightFormats = [] {
  std::array<WeightFormat, kNumWeightFormats> formats{};
  for (std::size_t i = 0; i < formats.size(); ++i) formats[i] = static_cast<WeightFormat>(i);
  return formats;
}();

// What the inner dimension must be a multiple of.
inline std::int64_t InnerStep(WeightFormat format) {
  const FormatTraits& traits = Traits(format);
  if (!traits.integer) return traits.sparse ? 4 : 1;
  return traits.scale == ScaleType::kSuper ? 256 : traits.group;
}

// A packed matrix of random weights of the size that trained ones have, and its memory.
struct RandomMatrix {
  AlignedBuffer memory;
  PackedMatrix packed;
  // |scale · (code − zero_point)| + |min| (or |w|) of every weight: what error bounds are made of. [n, k], or
  // empty.
  std::vector<float> magnitudes;
};

// Fails only when the memory cannot be had. `k` is a multiple of InnerStep(format).
Result<RandomMatrix> MakeRandomMatrix(WeightFormat format, std::int64_t n, std::int64_t k, std::uint64_t seed,
                                      bool with_magnitudes);

// The sizes of a real model.
struct ModelShape {
  std::string_view name;
  std::int64_t hidden_size, intermediate_size;
  int num_heads, num_kv_heads, head_dim;
  std::int64_t vocab_size;

  constexpr std::int64_t q_size() const { return std::int64_t{num_heads} * head_dim; }
  constexpr std::int64_t qkv_size() const { return (std::int64_t{num_heads} + 2 * num_kv_heads) * head_dim; }
};
std::span<const ModelShape> RealModels();

// A projection of a real model: y [m, n] = x [m, k] Wᵀ.
struct ProjectionShape {
  std::string_view model, name;
  std::int64_t n, k;
};
std::span<const ProjectionShape> RealProjections();

// A sequence in a paged cache.
struct CachedSequence {
  std::int64_t shared_tokens = 0;  // with the sequence before it, in the same blocks as far as these are whole
  std::int64_t length = 0;
  std::int64_t num_queries = 1;  // its last tokens
};

// Where the sequences lie: ids of blocks in random order, each block used by one sequence or by those that share it.
struct BlockTables {
  std::vector<std::vector<std::int32_t>> blocks;  // of each sequence
  std::int32_t num_blocks = 0;
};
BlockTables MakeBlockTables(std::span<const CachedSequence> sequences, std::uint64_t seed);

// Random keys and values, −√3 … √3 (variance 1), in all blocks of a pool; every layer has those of the first.
void FillRandomBlocks(const KvLayout& layout, std::int32_t num_blocks, std::uint64_t seed, std::byte* pool);

}  // namespace quire::kernels
