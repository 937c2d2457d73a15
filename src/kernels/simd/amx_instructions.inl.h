// Matrix tiles (Intel AMX): eight registers of up to 16 rows × 64 bytes, and dot products between them. Here tiles 0 … 3 are
// sums (16 lanes of 32 bits a row), 4 and 5 activations (one of their rows in each row) and 6 and 7 weights (16 outputs × 4
// bytes in each row: a panel as it lies in memory). 16 rows against 64 bytes of each output take 16 cycles.
//
// Written as assembly, since g++ makes its intrinsics from the text of their arguments. No instruction moves a tile to vector
// registers: it goes through memory. tests/emulation has a file of this name that computes the same in plain code.

// The shapes of the tiles, for as long as it lives. Tiles are zero in the beginning.
class MatrixTiles {
 public:
  // Sums and activations of num_rows ≤ 16 rows; inner_bytes ≤ 64 of each output at a time.
  QUIRE_INLINE MatrixTiles(std::int64_t num_rows, int inner_bytes) {
    struct alignas(64) {  // Intel's layout
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<std::uint8_t>(tile < 6 ? num_rows : inner_bytes / 4);
      config.row_bytes[tile] = static_cast<std::uint16_t>(tile == 4 || tile == 5 ? inner_bytes : 64);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  QUIRE_INLINE ~MatrixTiles() { __asm__ volatile("tilerelease"); }
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;
};

template <int kTile>
QUIRE_INLINE void MatrixZero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
QUIRE_INLINE void MatrixLoad(const void* p, std::int64_t stride_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride_bytes), "i"(kTile) : "memory");
}
template <int kTile>
QUIRE_INLINE void MatrixStore(void* p, std::int64_t stride_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride_bytes), "i"(kTile) : "memory");
}
// Each sum of tile kSum += Σ a · w, s8 · s8; exact.
template <int kSum, int kActivations, int kWeights>
QUIRE_INLINE void MatrixDotInt8() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kActivations), "i"(kWeights));
}
// Each sum of tile kSum += even + odd: two chains of Fma from 0 over the products of the even and of the odd inner elements.
// All in F32, half to even, subnormals taken as zero.
template <int kSum, int kActivations, int kWeights>
QUIRE_INLINE void MatrixDotBf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kActivations), "i"(kWeights));
}
