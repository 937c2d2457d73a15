// The running sums of a tile, to and from the output matrix. `columns` counts the columns from the tile's first on that
// exist; those of the last panel's padding are not touched.

QUIRE_INLINE std::int64_t ColumnsOfPanel(std::int64_t columns, int panel) {
  const std::int64_t left = columns - panel * kPanelWidth;
  return left < kPanelWidth ? left : kPanelWidth;
}

// Zeros for a tile that begins its sums, and else what an earlier stretch of the inner dimension left. The output's lines
// are asked for either way: they are written a thousand cycles later, and mostly are in no cache.
template <int R, int P>
QUIRE_INLINE void LoadTile(bool begins, const float* out, std::int64_t ld_out, std::int64_t columns,
                           float (*total)[P][16]) {
  QUIRE_UNROLL for (int r = 0; r < R; ++r) {
    QUIRE_UNROLL for (int p = 0; p < P; ++p) {
      const float* y = out + r * ld_out + p * kPanelWidth;
      __builtin_prefetch(y, 1);
      StoreF(total[r][p], begins ? ZeroF() : LoadPartF(y, ColumnsOfPanel(columns, p)));
    }
  }
}

template <int R, int P>
QUIRE_INLINE void StoreTile(const float (*total)[P][16], float* out, std::int64_t ld_out, std::int64_t columns) {
  QUIRE_UNROLL for (int r = 0; r < R; ++r) {
    QUIRE_UNROLL for (int p = 0; p < P; ++p) {
      StorePartF(out + r * ld_out + p * kPanelWidth, LoadF(total[r][p]), ColumnsOfPanel(columns, p));
    }
  }
}
