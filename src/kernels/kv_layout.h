// How keys and values lie in memory: the types they are stored as, and the bytes of one block of the KV pool.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::kernels {

// What is stored for a token is a function of that token's key and value alone, so that neither chunks nor
// preemption nor sharing of blocks can change a bit. Rounding is half to even. A token whose key or value is not
// finite is stored as NaN (INT8 and INT4 in its scales) in every type, and spoils exactly the queries that see it.
//
//   kFp8E4m3  one byte a value, no scale; beyond ±448 it saturates
//   kInt8     per token and head one scale, max |x| / 127:  x = scale · code, |code| ≤ 127
//   kInt4     x = scale · code + min, code 0 … 15, scale and min F16 (values beyond ±65504 saturate): one pair for 32
//             channels of a token's key, one pair for a token's value
enum class KvDtype : std::uint8_t { kBf16, kF32, kFp8E4m3, kInt8, kInt4 };
inline constexpr KvDtype kKvDtypes[] = {KvDtype::kBf16, KvDtype::kF32, KvDtype::kFp8E4m3, KvDtype::kInt8,
                                        KvDtype::kInt4};

// The bytes of one block of the KV pool: all layers of `block_size` tokens, contiguous.
//   block = [num_layers][num_kv_heads][ K tile | V tile ]
//
//          K tile                                           V tile
//   BF16   [head_dim/2][16][2]                              [16/2][head_dim][2]
//   F32    [head_dim][16]                                   [16][head_dim]
//   FP8    [head_dim][16]                                   [16][head_dim up to a multiple of 16]
//   INT8   [head_dim][16], scales F32 [16]                  [16][head_dim up to a multiple of 16], scales F32 [16]
//   INT4   [head_dim/2][16] bytes,                          [16][head_dim up to a multiple of 32, /2] bytes,
//          for each group of 32 channels                    scales F16 [16], mins F16 [16]
//          scales F16 [16], mins F16 [16]
//
// 16 tokens' scores accumulate in one register, and so do 16 dimensions of the output. A byte of INT4 holds
// channels 2i (low) and 2i+1 (high) of a key, and of a value the dimensions 32j+i (low) and 32j+16+i (high).
// Padding is zero for ever. head_dim is even; odd-sized pairs do not occur.
struct KvLayout {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  KvDtype dtype = KvDtype::kBf16;
  static constexpr int block_size = 16;      // tokens
  static constexpr int channels_group = 32;  // of INT4 keys

  // Bytes of the codes of 16 keys; scales follow them.
  std::size_t k_codes_bytes() const {
    const std::size_t dims = size(head_dim);
    switch (dtype) {
      case KvDtype::kBf16:
        return dims * 32;
      case KvDtype::kF32:
        return dims * 64;
      case KvDtype::kFp8E4m3:
      case KvDtype::kInt8:
        return dims * 16;
      case KvDtype::kInt4:
        return dims * 8;
    }
    return 0;
  }
  // Bytes of the codes of one value; those of 16 values are followed by their scales.
  std::size_t v_row_bytes() const {
    const std::size_t dims = size(head_dim);
    switch (dtype) {
      case KvDtype::kBf16:
        return dims * 2;
      case KvDtype::kF32:
        return dims * 4;
      case KvDtype::kFp8E4m3:
      case KvDtype::kInt8:
        return (dims + 15) / 16 * 16;
      case KvDtype::kInt4:
        return (dims + 31) / 32 * 16;
    }
    return 0;
  }
  std::size_t v_codes_bytes() const { return v_row_bytes() * size(block_size); }
  int num_key_groups() const { return dtype == KvDtype::kInt4 ? (head_dim + channels_group - 1) / channels_group : 1; }

  std::size_t k_tile_bytes() const { return k_codes_bytes() + scale_bytes() * size(num_key_groups()); }
  std::size_t v_tile_bytes() const { return v_codes_bytes() + scale_bytes(); }
  std::size_t block_bytes() const { return (k_tile_bytes() + v_tile_bytes()) * size(num_layers * num_kv_heads); }
  // Offset of the K tile inside a block; the V tile follows it at k_tile_bytes().
  std::size_t tile_offset(int layer, int kv_head) const {
    return (k_tile_bytes() + v_tile_bytes()) * size(layer * num_kv_heads + kv_head);
  }

 private:
  static constexpr std::size_t size(int n) { return static_cast<std::size_t>(n); }
  // Of 16 tokens and one group: an F32 each, or two F16.
  std::size_t scale_bytes() const {
    return dtype == KvDtype::kInt8 || dtype == KvDtype::kInt4 ? 4 * size(block_size) : 0;
  }
};

}  // namespace quire::kernels
