// out = activations · Wᵀ for the integer formats. For every output, in this order and in no other, whatever the
// shape of the tile it is computed in, and whether its weights were unpacked first:
//
//   for each block of 256 inner elements
//     sum = 0
//     for each group of the block
//       dot = start + Σ code · a                      exact, in 32 bits: |dot| ≤ 32 · 255 · 127
//       sum = dot · scale + sum                       one Fma
//       sum = sum − min · Σ a                         one Fnma, formats with a minimum
//     out = sum · activation_scale + out              one Fma, out starts at 0
//
// `out` itself is where the running sum lives between blocks, so the inner dimension can be cut anywhere
// between blocks without changing a bit.

// What all tiles of one call share, and where in the inner dimension the call is.
struct Int8Walk {
  Int8RowLayout layout;
  std::size_t row_bytes, panel_bytes;
  std::int64_t k, ld_out, block_begin, block_end;
};

// The weights that a tile reads: those of block `block_begin` of its first panel, and the way to the next panel.
struct Int8Weights {
  const std::byte* block;
  std::int64_t panel_bytes;
};

// Where the accumulator of a group starts: −zero_point · Σ a, unless the dot product has taken care of it.
template <typename Format>
QUIRE_INLINE I32 GroupStart(const Int8RowLayout& layout, const std::byte* row, std::int64_t group) {
  if constexpr (Format::kZeroPoint == 0 || (Format::kZeroPoint == 128 && kDotSubtractsZeroPoint)) {
    return ZeroI();
  } else {
    const std::byte* starts = row + (Format::kGroup == 16 ? layout.start16 : layout.start32);
    std::int32_t start;  // −128 · Σ a
    __builtin_memcpy(&start, starts + group * 4, 4);
    if constexpr (Format::kZeroPoint == 128) return SetI(start);
    if constexpr (Format::kZeroPoint == 32) return ShiftRightI<2>(SetI(start));
    if constexpr (Format::kZeroPoint == 16) return ShiftRightI<3>(SetI(start));
    if constexpr (Format::kZeroPoint == 8) return ShiftRightI<4>(SetI(start));
  }
}

QUIRE_INLINE float FloatAt(const std::byte* p, std::int64_t index) {
  float value;
  __builtin_memcpy(&value, p + index * 4, 4);
  return value;
}

// Σ a of a group, for the minima.
template <typename Format>
QUIRE_INLINE float GroupSum(const Int8RowLayout& layout, const std::byte* row, std::int64_t group) {
  if constexpr (Format::kGroup == 32) {
    return FloatAt(row + layout.sums32, group);
  } else {
    std::int32_t start;
    __builtin_memcpy(&start, row + layout.start16 + group * 4, 4);
    return static_cast<float>(start / -128);
  }
}

// Codes in the form that DotRun takes.
template <typename Format>
QUIRE_INLINE auto DotCodes(const std::byte* codes, int q) {
  if constexpr (Format::kZeroPoint == 128) {
    return OffsetCodes(Format::Quad(codes, q));
  } else {
    return Format::Quad(codes, q);
  }
}

// The dot products of one group, R rows × P panels: dot[r][p] += Σ code · a.
template <typename Format, int R, int P, bool kStream>
QUIRE_INLINE void DotGroup(const std::byte* const (&codes)[P], const std::byte* a, std::size_t row_bytes,
                           I32 (&dot)[R][P]) {
  QUIRE_UNROLL for (int run = 0; run < Format::kQuads / Format::kRun; ++run) {
    DotSum sums[R][P];
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = BeginRun(dot[r][p]);
    }
    QUIRE_UNROLL for (int i = 0; i < Format::kRun; ++i) {
      const int q = run * Format::kRun + i;
      if constexpr (R > 1) {  // a broadcast serves all panels
        decltype(DotCodes<Format>(codes[0], q)) quads[P];
        QUIRE_UNROLL for (int p = 0; p < P; ++p) {
          quads[p] = DotCodes<Format>(codes[p], q);
          if constexpr (kStream) Format::template PrefetchQuad<P>(codes[p], q);
        }
        QUIRE_UNROLL for (int r = 0; r < R; ++r) {
          const auto quad = LoadQuad(a + r * row_bytes + q * 4);
          QUIRE_UNROLL for (int p = 0; p < P; ++p) sums[r][p] = DotRun(sums[r][p], quads[p], quad);
        }
      } else {  // one panel at a time keeps the registers free
        const auto quad = LoadQuad(a + q * 4);
        QUIRE_UNROLL for (int p = 0; p < P; ++p) {
          sums[0][p] = DotRun(sums[0][p], DotCodes<Format>(codes[p], q), quad);
          if constexpr (kStream) Format::template PrefetchQuad<P>(codes[p], q);
        }
      }
    }
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int p = 0; p < P; ++p) dot[r][p] = EndRun(dot[r][p], sums[r][p]);
    }
  }
}

// R rows × P panels over the blocks of `walk`. `rows` is the first row, `out` the first output; `columns` counts the
// columns from there that exist. Not inlined: each shape gets the registers for itself.
template <typename Format, int R, int P, bool kStream>
[[gnu::noinline]] void Int8Tile(const Int8Walk& walk, const std::byte* rows, Int8Weights weights, float* out,
                                std::int64_t columns, const Prefetch& share) {
  Prefetch prefetch = share;
  const std::int64_t num_groups = walk.k / Format::kGroup;
  alignas(64) float total[R][P][16];  // in memory: used once a block, and the registers are taken
  LoadTile<R, P>(walk.block_begin == 0, out, walk.ld_out, columns, total);
  for (std::int64_t block = walk.block_begin; block < walk.block_end; ++block, weights.block += Format::kBlockBytes) {
    F32 sum[R][P];
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int p = 0; p < P; ++p) sum[r][p] = ZeroF();
    }
    const std::int64_t first = block * Format::kGroups, left = num_groups - first;
    const std::int64_t in_block = left < Format::kGroups ? left : Format::kGroups;
    const typename Format::Layout layout(in_block);
    for (std::int64_t g = 0; g < in_block; ++g) {
      const std::int64_t group = first + g;
      if constexpr (!kStream) prefetch.template Next<P>(walk.panel_bytes);
      I32 dot[R][P];
      QUIRE_UNROLL for (int r = 0; r < R; ++r) {
        const I32 start = GroupStart<Format>(walk.layout, rows + r * walk.row_bytes, group);
        QUIRE_UNROLL for (int p = 0; p < P; ++p) dot[r][p] = start;
      }
      const std::byte* codes[P];
      QUIRE_UNROLL for (int p = 0; p < P; ++p) {
        const std::byte* in_panel = weights.block + p * weights.panel_bytes;
        codes[p] = Format::Codes(layout, in_panel, g);
        if constexpr (kStream) Format::template PrefetchScales<P>(layout, in_panel, g);
      }
      DotGroup<Format, R, P, kStream>(codes, rows + group * Format::kGroup, walk.row_bytes, dot);
      QUIRE_UNROLL for (int p = 0; p < P; ++p) {
        const std::byte* in_panel = weights.block + p * weights.panel_bytes;
        const F32 scale = Format::Scale(layout, in_panel, g);
        QUIRE_UNROLL for (int r = 0; r < R; ++r) sum[r][p] = Fma(ToFloat(dot[r][p]), scale, sum[r][p]);
        if constexpr (Format::kHasMin) {
          const F32 min = Format::Min(layout, in_panel, g);
          QUIRE_UNROLL for (int r = 0; r < R; ++r) {
            const float activations = GroupSum<Format>(walk.layout, rows + r * walk.row_bytes, group);
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
inline void Int8TileOf(std::int64_t num_rows, const Int8Walk& walk, const std::byte* rows, Int8Weights weights,
                       float* out, std::int64_t columns, const Prefetch& prefetch) {
  if constexpr (R > kMinRows) {
    if (num_rows < R) {
      return Int8TileOf<Format, kMinRows, R - 1, P, kStream>(num_rows, walk, rows, weights, out, columns, prefetch);
    }
  }
  Int8Tile<Format, R, P, kStream>(walk, rows, weights, out, columns, prefetch);
}

// Whether codes lie in the panels as DotRun takes them: tiles of any number of rows read them there.
template <typename Packed>
inline constexpr bool kReadsPacked = Packed::kTraits.code_bits == 8 && !Packed::kTraits.sparse;

// Where there are matrix tiles: from so many rows on they are faster. Before, reading packed codes as they are saves unpacking.
template <typename Packed>
inline constexpr int kMatrixMinRows = kReadsPacked<Packed> ? 32 : 8;

// Rows of a tile, and panels of one that reads the weights from memory: fewer where the signs of the codes take registers.
template <typename Packed>
inline constexpr int kTileRows = Packed::kZeroPoint == 128 ? kInt8Rows : kSmallCodeRows;
template <typename Packed>
inline constexpr int kFewRows = Packed::kZeroPoint == 128 ? kInt8FewRows : kSmallCodeFewRows;
template <typename Packed>
inline constexpr int kFewRowsPanels = Packed::kZeroPoint == 128 ? kInt8FewRowsPanels : kSmallCodeFewRowsPanels;

// So many tiles of kFewRows unpack the codes in registers, each for itself; for more of them, unpacking once into memory
// costs less. Codes of 6 bits are put together from two loads.
template <typename Packed>
inline constexpr int kUnpackingTiles = Packed::kTraits.code_bits == 6 ? 2 : 3;

// Many rows against P panels. The rows are split into tiles of nearly equal height, and the weights into stretches of the
// inner dimension that stay in the L1 cache while the tiles pass over them. Each tile also fetches a part of the next
// stretch, so that memory and arithmetic overlap.
template <typename Packed, typename Codes, int R, int P>
inline void Int8ManyRows(Int8Walk walk, const GemmArgs& args, const std::byte* panels, float* out, std::int64_t columns,
                         bool is_last) {
  constexpr bool kUnpack = !std::is_same_v<Codes, Packed>;
  // P panels · 4 blocks of 256 · 17 bytes are 34 KiB for the two panels of the wide tile, of 48 KiB (and 17 of 32 KiB for
  // one); three unpacked blocks are 27 KiB, 30 with minima.
  constexpr std::int64_t kBlocksPerStretch = kUnpack ? 3 : 4;
  constexpr std::int64_t kStretchBytes = kBlocksPerStretch * Codes::kBlockBytes;
  constexpr int kShortest = R > 1 ? R / 2 : 1;  // of two tiles or more, none is below half of R
  alignas(64) std::byte unpacked[kUnpack ? P * kStretchBytes : 1];
  const std::int64_t num_tiles = (args.num_rows + R - 1) / R;
  const std::int64_t num_blocks = walk.layout.num_blocks;
  for (std::int64_t begin = 0; begin < num_blocks; begin += kBlocksPerStretch) {
    walk.block_begin = begin;
    walk.block_end = begin + kBlocksPerStretch < num_blocks ? begin + kBlocksPerStretch : num_blocks;
    const bool wraps = walk.block_end == num_blocks;
    const std::byte* next = wraps ? panels + P * walk.panel_bytes : panels + walk.block_end * Packed::kBlockBytes;
    const std::int64_t num_groups = (walk.block_end - begin) * Packed::kGroups;
    const std::int64_t next_bytes = wraps && is_last ? 0 : kBlocksPerStretch * Packed::kBlockBytes;
    Int8Weights weights{panels + begin * Packed::kBlockBytes, static_cast<std::int64_t>(walk.panel_bytes)};
    if constexpr (kUnpack) {
      const std::int64_t left = walk.k / Packed::kGroup - begin * Packed::kGroups;
      for (int p = 0; p < P; ++p) {
        UnpackGroups<Packed>(weights.block + p * weights.panel_bytes, left < num_groups ? left : num_groups,
                             unpacked + p * kStretchBytes);
      }
      weights = {unpacked, kStretchBytes};
    }
    for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
      const std::int64_t row = args.num_rows * tile / num_tiles;
      const std::int64_t height = args.num_rows * (tile + 1) / num_tiles - row;
      const std::byte* rows = args.activations + row * static_cast<std::int64_t>(walk.row_bytes);
      const Prefetch prefetch = Prefetch::Part(next, next_bytes, tile, num_tiles, num_groups);
      Int8TileOf<Codes, kShortest, R, P, false>(height, walk, rows, weights, out + row * walk.ld_out, columns,
                                                prefetch);
    }
  }
}

// Panels [begin, end) in groups of P, and what is left over in smaller groups. With kStream all rows fit in one tile of R
// rows, and the weights are read once, from memory.
template <typename Packed, typename Codes, int R, int P, bool kStream>
inline void Int8Panels(const Int8Walk& walk, const GemmArgs& args, std::int64_t begin) {
  for (; begin + P <= args.panel_end; begin += P) {
    const std::int64_t column = begin * kPanelWidth, columns = args.weights->n - column;
    const std::byte* panels = args.weights->data + begin * static_cast<std::int64_t>(walk.panel_bytes);
    if constexpr (kStream) {
      const Int8Weights weights{panels, static_cast<std::int64_t>(walk.panel_bytes)};
      Int8TileOf<Packed, R == 1 ? 1 : 2, R, P, true>(args.num_rows, walk, args.activations, weights, args.out + column,
                                                     columns, {});
    } else {
      Int8ManyRows<Packed, Codes, R, P>(walk, args, panels, args.out + column, columns, begin + P >= args.panel_end);
    }
  }
  if constexpr (P > 1) Int8Panels<Packed, Codes, R, P / 2, kStream>(walk, args, begin);
}

// Of tiers with matrix tiles.
template <typename Packed>
void GemmInt8Matrix(const Int8Walk& walk, const GemmArgs& args);

template <WeightFormat kFormat>
inline void GemmInt8(const GemmArgs& args) {
  using Packed = PackedCodes<kFormat>;
  const std::int64_t k = args.weights->k;
  const Int8RowLayout layout(k);
  const Int8Walk walk{.layout = layout,
                      .row_bytes = ActivationRowBytes(ActivationKind::kInt8, k),
                      .panel_bytes = PanelBytes(args.weights->format, k),
                      .k = k,
                      .ld_out = args.ld_out,
                      .block_begin = 0,
                      .block_end = layout.num_blocks};
  if (args.num_rows == 1) return Int8Panels<Packed, Packed, 1, kGemvPanels, true>(walk, args, args.panel_begin);
  if constexpr (kMatrixTiles) {
    if (args.num_rows >= kMatrixMinRows<Packed>) return GemmInt8Matrix<Packed>(walk, args);
  }
  constexpr int kFew = kFewRows<Packed>, kMany = kTileRows<Packed>;
  static_assert(kFew >= kMany / 2);  // so that more rows make two tiles at least, or one of more than half of the rows
  if (args.num_rows <= kFew) {
    return Int8Panels<Packed, Packed, kFew, kFewRowsPanels<Packed>, true>(walk, args, args.panel_begin);
  }
  if constexpr (!kReadsPacked<Packed>) {
    if (args.num_rows <= kUnpackingTiles<Packed> * kFew) {
      return Int8Panels<Packed, Packed, kFew, kInt8Panels, false>(walk, args, args.panel_begin);
    }
  }
  using Codes = std::conditional_t<kReadsPacked<Packed>, Packed, Unpacked<Packed>>;
  ForPortions(args, walk.row_bytes, kMany, [&](const GemmArgs& part) {
    Int8Panels<Packed, Codes, kMany, kInt8Panels, false>(walk, part, part.panel_begin);
  });
}
