// What both GEMMs share: portions of rows, and the sums of a tile on their way to and from the output matrix.

// Calls body for portions of nearly equal numbers of rows whose activations stay in the L2 cache while all panels pass over
// them; each is at least four tiles of R rows high, unless all rows are fewer.
template <typename Body>
inline void ForPortions(const GemmArgs& args, std::size_t row_bytes, std::int64_t tile_rows, Body body) {
  constexpr std::int64_t kResidentBytes = 768 * 1024;
  const std::int64_t resident = kResidentBytes / static_cast<std::int64_t>(row_bytes);
  const std::int64_t most = resident > 8 * tile_rows ? resident : 8 * tile_rows;
  const std::int64_t count = (args.num_rows + most - 1) / most;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = args.num_rows * i / count, end = args.num_rows * (i + 1) / count;
    GemmArgs part = args;
    part.activations += begin * static_cast<std::int64_t>(row_bytes);
    part.out += begin * args.ld_out;
    part.num_rows = end - begin;
    body(part);
  }
}

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
