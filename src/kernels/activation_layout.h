// How prepared activations lie in memory, and what quantising them means. The layout is the same on every
// tier; the vector versions in generic/activations.inl.h produce the same bytes as the scalar ones here.
//
// A row takes an odd number of cache lines.
//
//   kF32   row [k] floats, then zeros
//   kBf16  row [k] BF16, then zeros likewise (so the last pair of an odd k has a zero half)
//   kInt8  row
//            codes     s8  [k], zeros up to a multiple of 64
//            scales    f32 [ceil(k / 256)]
//            start16   i32 [k / 16]         −128 · Σ codes of each 16: where an accumulator starts, so that
//            the start32   i32 [ceil(k / 32)]   dot of unsigned codes with zero point 128 comes out right
//            sums32    f32 [ceil(k / 32)]   Σ codes of each 32, for the minima
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace quire::kernels {

struct Int8RowLayout {
  std::int64_t num_blocks, num_groups16, num_groups32;
  std::size_t scales, start16, start32, sums32, end;  // offsets in bytes

  explicit constexpr Int8RowLayout(std::int64_t k)
      : num_blocks((k + kActivationBlock - 1) / kActivationBlock),
        num_groups16(k / 16),
        num_groups32((k + 31) / 32),
        scales(static_cast<std::size_t>((k + 63) / 64 * 64)),
        start16(scales + static_cast<std::size_t>(num_blocks) * 4),
        start32(start16 + static_cast<std::size_t>(num_groups16) * 4),
        sums32(start32 + static_cast<std::size_t>(num_groups32) * 4),
        end(sums32 + static_cast<std::size_t>(num_groups32) * 4) {}
};

// KernelTable::activation_row_bytes of every tier. kInt8 needs k to be a multiple of 16.
std::size_t ActivationRowBytes(ActivationKind kind, std::int64_t k);

// The scale of a block whose largest magnitude has these bits (of a float), and what its elements are
// multiplied with before they are rounded. A block with NaN or infinity has the scale NaN and codes 0, so
// that it spoils its own row and nothing else; a block below 1e-36, where 127 / max would overflow, is zero.
struct BlockScale {
  float scale, inverse;
};
BlockScale QuantizationScale(std::uint32_t max_magnitude_bits);

// KernelTable::prepare_activations of the reference.
void PrepareActivationsReference(ActivationKind kind, const float* x, std::int64_t num_rows, std::int64_t k,
                                 std::int64_t ld_x, std::byte* out);

}  // namespace quire::kernels
