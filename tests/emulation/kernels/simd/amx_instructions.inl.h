// Stands in for src/kernels/simd/amx_instructions.inl.h: the tiles of one thread in memory, and their products in plain code.

struct EmulatedTile {
  std::int64_t rows, row_bytes;
  alignas(64) std::uint8_t data[16][64];
};
inline thread_local EmulatedTile emulated_tiles[8];

class MatrixTiles {
 public:
  MatrixTiles(std::int64_t num_rows, int inner_bytes) {
    for (int tile = 0; tile < 8; ++tile) {
      emulated_tiles[tile] = {};
      emulated_tiles[tile].rows = tile < 6 ? num_rows : inner_bytes / 4;
      emulated_tiles[tile].row_bytes = tile == 4 || tile == 5 ? inner_bytes : 64;
    }
  }
  ~MatrixTiles() {
    for (EmulatedTile& tile : emulated_tiles) tile.rows = 0;  // a product after this would do nothing, and be seen
  }
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;
};

template <int kTile>
void MatrixZero() {
  __builtin_memset(emulated_tiles[kTile].data, 0, sizeof emulated_tiles[kTile].data);
}
template <int kTile>
void MatrixLoad(const void* p, std::int64_t stride_bytes) {
  EmulatedTile& tile = emulated_tiles[kTile];
  MatrixZero<kTile>();
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    __builtin_memcpy(tile.data[r], static_cast<const char*>(p) + r * stride_bytes, static_cast<std::size_t>(tile.row_bytes));
  }
}
template <int kTile>
void MatrixStore(void* p, std::int64_t stride_bytes) {
  const EmulatedTile& tile = emulated_tiles[kTile];
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    __builtin_memcpy(static_cast<char*>(p) + r * stride_bytes, tile.data[r], static_cast<std::size_t>(tile.row_bytes));
  }
}

// Calls product(sum, a, w) for every row and output; a and w are the row's and the output's 4 · kWords bytes, of which w lies
// in words of four bytes, one in each row of its tile.
template <int kSum, int kActivations, int kWeights, typename Sum, typename Product>
void EmulateProducts(Product product) {
  EmulatedTile& sums = emulated_tiles[kSum];
  const EmulatedTile &activations = emulated_tiles[kActivations], &weights = emulated_tiles[kWeights];
  for (std::int64_t r = 0; r < sums.rows; ++r) {
    for (int c = 0; c < 16; ++c) {
      std::uint8_t w[64] = {};
      for (std::int64_t word = 0; word < weights.rows; ++word) __builtin_memcpy(w + word * 4, &weights.data[word][c * 4], 4);
      Sum sum;
      __builtin_memcpy(&sum, &sums.data[r][c * 4], 4);
      sum = product(sum, activations.data[r], w, activations.row_bytes);
      __builtin_memcpy(&sums.data[r][c * 4], &sum, 4);
    }
  }
}
template <int kSum, int kActivations, int kWeights>
void MatrixDotInt8() {
  EmulateProducts<kSum, kActivations, kWeights, std::int32_t>(
      [](std::int32_t sum, const std::uint8_t* a, const std::uint8_t* w, std::int64_t bytes) {
        for (std::int64_t i = 0; i < bytes; ++i) {
          sum += std::int32_t{static_cast<std::int8_t>(a[i])} * static_cast<std::int8_t>(w[i]);
        }
        return sum;
      });
}
template <int kSum, int kActivations, int kWeights>
void MatrixDotBf16() {
  const auto flush = [](float v) { return __builtin_fabsf(v) < 0x1p-126f ? 0.0f : v; };
  EmulateProducts<kSum, kActivations, kWeights, float>(
      [&](float sum, const std::uint8_t* a, const std::uint8_t* w, std::int64_t bytes) {
        const auto element = [&](const std::uint8_t* p) {
          std::uint16_t half;
          __builtin_memcpy(&half, p, 2);
          return flush(__builtin_bit_cast(float, std::uint32_t{half} << 16));
        };
        float chains[2] = {0, 0};  // even and odd inner elements
        for (std::int64_t i = 0; i < bytes / 2; ++i) {
          chains[i % 2] = flush(__builtin_fmaf(element(a + i * 2), element(w + i * 2), chains[i % 2]));
        }
        return flush(flush(sum) + flush(chains[0] + chains[1]));
      });
}
