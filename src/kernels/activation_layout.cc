#include "kernels/activation_layout.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace quire::kernels {
namespace {

void QuantizeRow(const float* x, std::int64_t k, std::byte* row) {
  const Int8RowLayout layout(k);
  auto* codes = reinterpret_cast<std::int8_t*>(row);
  for (std::int64_t block = 0; block < layout.num_blocks; ++block) {
    const std::int64_t begin = block * kActivationBlock, end = std::min(k, begin + kActivationBlock);
    std::uint32_t largest = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFF);
    }
    const BlockScale scale = QuantizationScale(largest);
    std::memcpy(row + layout.scales + block * 4, &scale.scale, 4);
    for (std::int64_t i = begin; i < end; ++i) {
      // Infinity times an inverse of zero would be NaN: codes of a spoilt block are 0.
      codes[i] = scale.inverse == 0 ? std::int8_t{0} : static_cast<std::int8_t>(std::nearbyint(x[i] * scale.inverse));
    }
  }
  for (std::int64_t i = k; i < static_cast<std::int64_t>(layout.scales); ++i) codes[i] = 0;
  const auto sum_of = [&](std::int64_t begin, std::int64_t count) {
    std::int32_t sum = 0;
    for (std::int64_t i = begin; i < begin + count; ++i) sum += codes[i];
    return sum;
  };
  for (std::int64_t g = 0; g < layout.num_groups16; ++g) {
    const std::int32_t start = -128 * sum_of(g * 16, 16);
    std::memcpy(row + layout.start16 + g * 4, &start, 4);
  }
  for (std::int64_t g = 0; g < layout.num_groups32; ++g) {
    const std::int32_t sum = sum_of(g * 32, std::min<std::int64_t>(32, k - g * 32));
    const std::int32_t start = -128 * sum;
    const auto as_float = static_cast<float>(sum);
    std::memcpy(row + layout.start32 + g * 4, &start, 4);
    std::memcpy(row + layout.sums32 + g * 4, &as_float, 4);
  }
}

}  // namespace

std::size_t ActivationRowBytes(ActivationKind kind, std::int64_t k) {
  // An odd number of cache lines: the rows of a tile would share one set of the L1 cache if they were 4 KiB apart.
  const auto round_up = [](std::size_t bytes) { return bytes == 0 ? 0 : ((bytes + 63) / 64 | 1) * 64; };
  switch (kind) {
    case ActivationKind::kF32:
      return round_up(static_cast<std::size_t>(k) * 4);
    case ActivationKind::kBf16:
      return round_up(static_cast<std::size_t>(k) * 2);
    case ActivationKind::kInt8:
      CHECK(k % 16 == 0);
      return round_up(Int8RowLayout(k).end);
  }
  return 0;
}

BlockScale QuantizationScale(std::uint32_t max_magnitude_bits) {
  if (max_magnitude_bits >= 0x7F800000) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const float largest = std::bit_cast<float>(max_magnitude_bits);
  if (largest < 1e-36f) return {0, 0};
  return {largest / 127.0f, 127.0f / largest};
}

void PrepareActivationsReference(ActivationKind kind, const float* x, std::int64_t num_rows, std::int64_t k,
                                 std::int64_t ld_x, std::byte* out) {
  const std::size_t row_bytes = ActivationRowBytes(kind, k);
  for (std::int64_t r = 0; r < num_rows; ++r, x += ld_x, out += row_bytes) {
    // The end of the row may be padding; whatever is not written below is zero.
    const std::size_t padded = std::min<std::size_t>(row_bytes, 128);
    std::memset(out + row_bytes - padded, 0, padded);
    if (kind == ActivationKind::kInt8) {
      QuantizeRow(x, k, out);
    } else if (kind == ActivationKind::kF32) {
      std::memcpy(out, x, static_cast<std::size_t>(k) * 4);
    } else {
      for (std::int64_t i = 0; i < k; ++i) {
        const Bf16 rounded = ToBf16(x[i]);
        std::memcpy(out + i * 2, &rounded.bits, 2);
      }
    }
  }
}

}  // namespace quire::kernels
