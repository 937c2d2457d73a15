// out = activations · Wᵀ for the INT8 formats. For every output, in this order and in no other, whatever the
// shape of the tile it is computed in:
//
//   for each block of 256 inner elements
//     sum = 0
//     for each group of the block
//       dot = start + Σ code · a                      exact, in 32 bits: |dot| ≤ 32 · 128 · 127
//       sum = dot · scale + sum                       one Fma
//       sum = sum − min · Σ a                         one Fnma, formats with a minimum
//     out = sum · activation_scale + out              one Fma, out starts at 0
//
// `out` itself is where the running sum lives between blocks, so the inner dimension can be cut anywhere
// between blocks without changing a bit.

struct Group32 {
  static constexpr int kGroup = 32, kGroupBytes = 16 * 32 + 16 * 2;
  static constexpr bool kHasZeroPoint = true, kHasMin = false;
  QUIRE_INLINE static F32 Scale(const std::byte* scales) { return LoadF16(scales); }
};
struct Group32Min {
  static constexpr int kGroup = 32, kGroupBytes = 16 * 32 + 16 * 8;
  static constexpr bool kHasZeroPoint = false, kHasMin = true;
  QUIRE_INLINE static F32 Scale(const std::byte* scales) { return LoadF(scales); }
};
struct Group16 {
  static constexpr int kGroup = 16, kGroupBytes = 16 * 16 + 16 * 4;
  static constexpr bool kHasZeroPoint = true, kHasMin = false;
  QUIRE_INLINE static F32 Scale(const std::byte* scales) { return LoadF(scales); }
};

// What all tiles of one call share, and where in the inner dimension the call is.
struct Int8Walk {
  Int8RowLayout layout;
  std::size_t row_bytes, panel_bytes;
  std::int64_t k, ld_out, block_begin, block_end;
};

template <typename Format>
QUIRE_INLINE auto LoadFormatCodes(const std::byte* p) {
  if constexpr (Format::kHasZeroPoint) {
    return LoadCodes(p);
  } else {
    return LoadSmallCodes(p);
  }
}

// Where the accumulator of a group starts: −128 · Σ a, unless the dot product or the format has no such
// offset.
template <typename Format>
QUIRE_INLINE I32 GroupStart(const Int8RowLayout& layout, const std::byte* row, std::int64_t group) {
  if constexpr (!Format::kHasZeroPoint || kDotSubtractsZeroPoint) {
    return ZeroI();
  } else {
    const std::byte* starts = row + (Format::kGroup == 16 ? layout.start16 : layout.start32);
    std::int32_t start;
    __builtin_memcpy(&start, starts + group * 4, 4);
    return SetI(start);
  }
}

QUIRE_INLINE float FloatAt(const std::byte* p, std::int64_t index) {
  float value;
  __builtin_memcpy(&value, p + index * 4, 4);
  return value;
}

// R rows × P panels over the blocks of `walk`. `rows` is the first row, `panels` the first panel (its beginning), `out`
// the first output; `columns` counts the columns from there that exist. Not inlined: each shape gets the registers for
// itself.
template <typename Format, int R, int P, bool kStream>
[[gnu::noinline]] void Int8Tile(const Int8Walk& walk, const std::byte* rows, const std::byte* panels, float* out,
                                std::int64_t columns, Prefetch prefetch) {
  constexpr std::int64_t kGroupsPerBlock = kActivationBlock / Format::kGroup;
  const std::int64_t num_groups = walk.k / Format::kGroup;
  const std::byte* w = panels + walk.block_begin * kGroupsPerBlock * Format::kGroupBytes;
  alignas(64) float total[R][P][16];  // in memory: used once a block, and the registers are taken
  LoadTile<R, P>(walk.block_begin == 0, out, walk.ld_out, columns, total);
  for (std::int64_t block = walk.block_begin; block < walk.block_end; ++block) {
    F32 sum[R][P];
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int p = 0; p < P; ++p) sum[r][p] = ZeroF();
    }
    const std::int64_t first = block * kGroupsPerBlock;
    const std::int64_t last = first + kGroupsPerBlock < num_groups ? first + kGroupsPerBlock : num_groups;
    for (std::int64_t group = first; group < last; ++group, w += Format::kGroupBytes) {
      if constexpr (!kStream) prefetch.template Next<P>(walk.panel_bytes);
      I32 dot[R][P];
      QUIRE_UNROLL for (int r = 0; r < R; ++r) {
        const I32 start = GroupStart<Format>(walk.layout, rows + r * walk.row_bytes, group);
        QUIRE_UNROLL for (int p = 0; p < P; ++p) dot[r][p] = start;
      }
      QUIRE_UNROLL for (int q = 0; q < Format::kGroup / 4; ++q) {
        const std::byte* quad = rows + group * Format::kGroup + q * 4;
        if constexpr (R > 1) {  // a broadcast serves all panels
          decltype(LoadFormatCodes<Format>(w)) codes[P];
          QUIRE_UNROLL for (int p = 0; p < P; ++p) {
            codes[p] = LoadFormatCodes<Format>(w + p * walk.panel_bytes + q * 64);
            if constexpr (kStream) PrefetchAhead<P>(w + p * walk.panel_bytes + q * 64);
          }
          QUIRE_UNROLL for (int r = 0; r < R; ++r) {
            const auto a = LoadQuad(quad + r * walk.row_bytes);
            QUIRE_UNROLL for (int p = 0; p < P; ++p) dot[r][p] = Dot(dot[r][p], codes[p], a);
          }
        } else {  // one panel at a time keeps the registers free
          const auto a = LoadQuad(quad);
          QUIRE_UNROLL for (int p = 0; p < P; ++p) {
            dot[0][p] = Dot(dot[0][p], LoadFormatCodes<Format>(w + p * walk.panel_bytes + q * 64), a);
            if constexpr (kStream) PrefetchAhead<P>(w + p * walk.panel_bytes + q * 64);
          }
        }
      }
      QUIRE_UNROLL for (int p = 0; p < P; ++p) {
        const std::byte* scales = w + p * walk.panel_bytes + 16 * Format::kGroup;
        const F32 scale = Format::Scale(scales);
        QUIRE_UNROLL for (int r = 0; r < R; ++r) sum[r][p] = Fma(ToFloat(dot[r][p]), scale, sum[r][p]);
        if constexpr (Format::kHasMin) {
          const F32 min = LoadF(scales + 64);
          QUIRE_UNROLL for (int r = 0; r < R; ++r) {
            const float activations = FloatAt(rows + r * walk.row_bytes + walk.layout.sums32, group);
            sum[r][p] = Fnma(min, SetF(activations), sum[r][p]);
          }
        }
      }
    }
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      const F32 scale = SetF(FloatAt(rows + r * walk.row_bytes + walk.layout.scales, block));
      QUIRE_UNROLL for (int p = 0; p < P; ++p) {
        StoreF(total[r][p], Fma(sum[r][p], scale, LoadF(total[r][p])));
      }
    }
  }
  StoreTile<R, P>(total, out, walk.ld_out, columns);
}

// Int8Tile with as many rows as `num_rows` says, kMinRows … R.
template <typename Format, int kMinRows, int R, int P, bool kStream>
inline void Int8TileOf(std::int64_t num_rows, const Int8Walk& walk, const std::byte* rows, const std::byte* panels,
                       float* out, std::int64_t columns, const Prefetch& prefetch) {
  if constexpr (R > kMinRows) {
    if (num_rows < R) {
      return Int8TileOf<Format, kMinRows, R - 1, P, kStream>(num_rows, walk, rows, panels, out, columns, prefetch);
    }
  }
  Int8Tile<Format, R, P, kStream>(walk, rows, panels, out, columns, prefetch);
}

// Many rows against P panels. The rows are split into tiles of nearly equal height, and the weights into stretches of the
// inner dimension that stay in the L1 cache while the tiles pass over them. Each tile also fetches a part of the next
// stretch, so that memory and arithmetic overlap.
template <typename Format, int R, int P>
inline void Int8ManyRows(Int8Walk walk, const GemmArgs& args, const std::byte* panels, float* out, std::int64_t columns,
                         bool is_last) {
  // P panels · 1024 · 17 bytes are 35 KiB for the two panels of the wide tile, of 48 KiB (and of 32 KiB, for one).
  constexpr std::int64_t kBlocksPerStretch = 4;
  constexpr std::int64_t kBlockBytes = kActivationBlock / Format::kGroup * Format::kGroupBytes;
  constexpr int kShortest = R > 1 ? R / 2 : 1;  // of two tiles or more, none is below half of R
  const std::int64_t num_tiles = (args.num_rows + R - 1) / R;
  const std::int64_t num_blocks = walk.layout.num_blocks;
  for (std::int64_t begin = 0; begin < num_blocks; begin += kBlocksPerStretch) {
    walk.block_begin = begin;
    walk.block_end = begin + kBlocksPerStretch < num_blocks ? begin + kBlocksPerStretch : num_blocks;
    const bool wraps = walk.block_end == num_blocks;
    const std::byte* next = wraps ? panels + P * walk.panel_bytes : panels + walk.block_end * kBlockBytes;
    const std::int64_t num_groups = (walk.block_end - begin) * (kActivationBlock / Format::kGroup);
    const std::int64_t next_bytes = wraps && is_last ? 0 : kBlocksPerStretch * kBlockBytes;
    for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
      const std::int64_t row = args.num_rows * tile / num_tiles;
      const std::int64_t height = args.num_rows * (tile + 1) / num_tiles - row;
      const std::byte* rows = args.activations + row * static_cast<std::int64_t>(walk.row_bytes);
      const Prefetch prefetch = Prefetch::Part(next, next_bytes, tile, num_tiles, num_groups);
      Int8TileOf<Format, kShortest, R, P, false>(height, walk, rows, panels, out + row * walk.ld_out, columns,
                                                 prefetch);
    }
  }
}

// Panels [begin, end) in groups of P, and what is left over in smaller groups. With kStream all rows fit in one tile of R
// rows, and the weights are read once, from memory.
template <typename Format, int R, int P, bool kStream>
inline void Int8Panels(const Int8Walk& walk, const GemmArgs& args, std::int64_t begin) {
  for (; begin + P <= args.panel_end; begin += P) {
    const std::int64_t column = begin * kPanelWidth, columns = args.weights->n - column;
    const std::byte* panels = args.weights->data + begin * static_cast<std::int64_t>(walk.panel_bytes);
    if constexpr (kStream) {
      Int8TileOf<Format, R == 1 ? 1 : 2, R, P, true>(args.num_rows, walk, args.activations, panels, args.out + column,
                                                     columns, {});
    } else {
      Int8ManyRows<Format, R, P>(walk, args, panels, args.out + column, columns, begin + P >= args.panel_end);
    }
  }
  if constexpr (P > 1) Int8Panels<Format, R, P / 2, kStream>(walk, args, begin);
}

template <typename Format>
inline void GemmInt8(const GemmArgs& args) {
  const std::int64_t k = args.weights->k;
  const Int8RowLayout layout(k);
  const Int8Walk walk{.layout = layout,
                      .row_bytes = ActivationRowBytes(ActivationKind::kInt8, k),
                      .panel_bytes = PanelBytes(args.weights->format, k),
                      .k = k,
                      .ld_out = args.ld_out,
                      .block_begin = 0,
                      .block_end = layout.num_blocks};
  if (args.num_rows == 1) return Int8Panels<Format, 1, kGemvPanels, true>(walk, args, args.panel_begin);
  if (args.num_rows <= kInt8FewRows) {
    return Int8Panels<Format, kInt8FewRows, kInt8FewRowsPanels, true>(walk, args, args.panel_begin);
  }
  static_assert(kInt8FewRows >= kInt8Rows);  // so that more rows make two tiles at least
  ForPortions(args, walk.row_bytes, kInt8Rows, [&](const GemmArgs& part) {
    Int8Panels<Format, kInt8Rows, kInt8Panels, false>(walk, part, part.panel_begin);
  });
}
