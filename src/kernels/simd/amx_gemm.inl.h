// The GEMMs of the tier with matrix tiles.
//
// Integer formats give the same bits as GemmInt8: a tile holds the exact dot products of one group of 16 rows with the 16
// outputs of a panel; they go through memory to vector registers, where the scales are applied in the same order. That, not the
// dot product, is what takes the time: 32 operations on the 16 rows, 16 stores and 16 loads against 8 cycles of products.
//
// BF16 has sums of its own, whatever the number of rows: for each 32 inner elements MatrixDotBf16, from 0 upwards. They stay in
// the tiles until the inner dimension ends.

// Rows [begin, begin + height) of the activations as a tile reads them; those before `first` belong to another tile. A tile of
// fewer than 16 rows would want other shapes, so the last one begins early instead.
struct MatrixWindow {
  std::int64_t begin, first, end;

  MatrixWindow(std::int64_t index, std::int64_t num_rows)
      : begin(16 * index + 16 <= num_rows ? 16 * index
              : num_rows > 16             ? num_rows - 16
                                          : 0),
        first(16 * index),
        end(16 * index + 16 < num_rows ? 16 * index + 16 : num_rows) {}
};

// ---- Integer codes ---------------------------------------------------------------------------------------------------

template <typename Packed>
using SignedCodes = UnpackedCodes<Packed::kGroup, 0, Packed::kHasMin, Packed::kQuads>;

// Where dot products lie between their tile and the sums: four groups are on their way at once.
template <int R>
struct MatrixDots {
  alignas(64) std::int32_t group[4][R][16] = {};
};

// The blocks of `walk` of one panel against a window of at most R rows. Each round begins the dot products of one group,
// stores those of the group before, and adds up those of two groups before that.
template <typename Codes, int R, bool kAllRows>
[[gnu::noinline]] void Int8MatrixTile(const Int8Walk& walk, const MatrixWindow& window, const std::byte* activations,
                                      const std::byte* codes, float* out, std::int64_t columns, MatrixDots<R>* dots,
                                      const Prefetch& share) {
  Prefetch prefetch = share;
  const auto row_bytes = static_cast<std::int64_t>(walk.row_bytes);
  const std::byte* const rows = activations + window.begin * row_bytes;
  const std::int64_t first = walk.block_begin * Codes::kGroups;
  const std::int64_t left = walk.k / Codes::kGroup - first, most = (walk.block_end - walk.block_begin) * Codes::kGroups;
  const std::int64_t num_groups = left < most ? left : most, last_row = window.end - window.begin - 1;
  const auto row_of = [&](int r) QUIRE_LAMBDA {  // rows that are not there are the last one again
    return kAllRows || r < last_row ? r : last_row;
  };
  alignas(64) float total[R][16];  // of the blocks before; memory, since the registers are taken
  QUIRE_UNROLL for (int r = 0; r < R; ++r) {
    const float* y = out + (window.begin + row_of(r)) * walk.ld_out;
    __builtin_prefetch(y, 1);  // see LoadTile
    StoreF(total[r], walk.block_begin == 0 ? ZeroF() : LoadPartF(y, columns));
  }
  const typename Codes::Layout layout(num_groups);
  F32 sum[R];
  QUIRE_UNROLL for (int r = 0; r < R; ++r) sum[r] = ZeroF();

  const auto add_group = [&](const std::int32_t(&dot)[R][16], std::int64_t group) QUIRE_LAMBDA {
    const F32 scale = Codes::Scale(layout, codes, group);
    QUIRE_UNROLL for (int r = 0; r < R; ++r) sum[r] = Fma(ToFloat(LoadI(dot[r])), scale, sum[r]);
    if constexpr (Codes::kHasMin) {
      const F32 min = Codes::Min(layout, codes, group);
      QUIRE_UNROLL for (int r = 0; r < R; ++r) {
        sum[r] = Fnma(min, SetF(GroupSum<Codes>(walk.layout, rows + row_of(r) * row_bytes, first + group)), sum[r]);
      }
    }
  };
  const auto end_block = [&](std::int64_t block) QUIRE_LAMBDA {
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      const F32 scale = SetF(FloatAt(rows + row_of(r) * row_bytes + walk.layout.scales, block));
      StoreF(total[r], Fma(sum[r], scale, LoadF(total[r])));
      sum[r] = ZeroF();
    }
  };
  for (std::int64_t round = 0; round < num_groups + 3; round += 4) {
    ForConstants<4>([&](auto i) QUIRE_LAMBDA {
      constexpr int kTile = decltype(i)::value;
      const std::int64_t begun = round + kTile, stored = begun - 1, added = begun - 3;
      if (begun < num_groups) {
        prefetch.template Next<1>(walk.panel_bytes);
        MatrixZero<kTile>();
        MatrixLoad<4>(rows + (first + begun) * Codes::kGroup, row_bytes);
        MatrixLoad<6>(codes + begun * Codes::kGroupBytes, 64);
        MatrixDotInt8<kTile, 4, 6>();
      }
      if (stored >= 0 && stored < num_groups) MatrixStore<(kTile + 3) % 4>(dots->group[(kTile + 3) % 4], 64);
      if (added >= 0 && added < num_groups) {
        add_group(dots->group[(kTile + 1) % 4], added);
        const std::int64_t next = first + added + 1;
        if (next % Codes::kGroups == 0 || added + 1 == num_groups) end_block((next - 1) / Codes::kGroups);
      }
    });
  }
  for (std::int64_t r = window.first; r < window.end; ++r) {
    StorePartF(out + r * walk.ld_out, LoadF(total[r - window.begin]), columns);
  }
}

// All panels of the call, one after the other; see Int8ManyRows.
template <typename Packed, int R>
inline void Int8MatrixPanels(Int8Walk walk, const GemmArgs& args) {
  using Codes = SignedCodes<Packed>;
  constexpr std::int64_t kBlocksPerStretch =
      4;  // 18 KiB of codes and scales, 16 KiB of activations, 4 KiB of dot products
  alignas(64) std::byte unpacked[kBlocksPerStretch * Codes::kBlockBytes];
  MatrixDots<R> dots;
  const MatrixTiles tiles(args.num_rows < 16 ? args.num_rows : 16, Codes::kGroup);
  const std::int64_t num_tiles = (args.num_rows + 15) / 16, num_blocks = walk.layout.num_blocks;
  const auto panel_bytes = static_cast<std::int64_t>(walk.panel_bytes);
  for (std::int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    const std::byte* panel = args.weights->data + p * panel_bytes;
    for (std::int64_t begin = 0; begin < num_blocks; begin = walk.block_end) {
      walk.block_begin = begin;
      walk.block_end = begin + kBlocksPerStretch < num_blocks ? begin + kBlocksPerStretch : num_blocks;
      const std::int64_t left = walk.k / Packed::kGroup - begin * Packed::kGroups;
      const std::int64_t most = (walk.block_end - begin) * Packed::kGroups, num_groups = left < most ? left : most;
      UnpackGroups<Packed, Codes>(panel + begin * Packed::kBlockBytes, num_groups, unpacked);
      const bool wraps = walk.block_end == num_blocks;
      const std::byte* next = wraps ? panel + panel_bytes : panel + walk.block_end * Packed::kBlockBytes;
      const std::int64_t next_bytes = wraps && p + 1 == args.panel_end ? 0 : kBlocksPerStretch * Packed::kBlockBytes;
      for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
        const auto run = args.num_rows < R ? &Int8MatrixTile<Codes, R, false> : &Int8MatrixTile<Codes, R, true>;
        run(walk, MatrixWindow(tile, args.num_rows), args.activations, unpacked, args.out + p * kPanelWidth,
            ColumnsOfPanel(args.weights->n - p * kPanelWidth, 0), &dots,
            Prefetch::Part(next, next_bytes, tile, num_tiles, num_groups));
      }
    }
  }
}

template <typename Packed>
inline void GemmInt8Matrix(const Int8Walk& walk, const GemmArgs& args) {
  if (args.num_rows <= 8) return Int8MatrixPanels<Packed, 8>(walk, args);
  ForPortions(args, walk.row_bytes, 16, [&](const GemmArgs& part) { Int8MatrixPanels<Packed, 16>(walk, part); });
}

// ---- BF16 --------------------------------------------------------------------------------------------------------------

// Steps of 32 inner elements, which a panel keeps in 1 KiB. A tile walks over all of them: beginning and ending costs it a
// quarter of a microsecond, more than reading its weights from the L2 cache again does.
struct MatrixWalk {
  std::int64_t row_bytes, panel_bytes, ld_out, num_pairs;
};

// T windows of rows × P panels. Rows that two windows share are stored twice, the same.
template <int T, int P, bool kStream>
[[gnu::noinline]] void Bf16MatrixTile(const MatrixWalk& walk, const MatrixWindow* windows, const std::byte* activations,
                                      const std::byte* panels, float* out, std::int64_t columns,
                                      const Prefetch& share) {
  Prefetch prefetch = share;
  const std::byte* rows[T];
  for (int t = 0; t < T; ++t) rows[t] = activations + windows[t].begin * walk.row_bytes;
  ForConstants<T * P>([&](auto i) QUIRE_LAMBDA { MatrixZero<i / P * 2 + i % P>(); });

  const auto dot = [&](std::int64_t step, const auto& weights) QUIRE_LAMBDA {
    ForConstants<T>([&](auto t) QUIRE_LAMBDA { MatrixLoad<4 + t>(rows[t] + step * 64, walk.row_bytes); });
    ForConstants<P>([&](auto p) QUIRE_LAMBDA { MatrixLoad<6 + p>(weights(p), 64); });
    ForConstants<T * P>([&](auto i) QUIRE_LAMBDA { MatrixDotBf16<i / P * 2 + i % P, 4 + i / P, 6 + i % P>(); });
  };
  const std::int64_t whole = walk.num_pairs / 16;
  for (std::int64_t step = 0; step < whole; ++step) {
    const std::byte* weights = panels + step * 1024;
    dot(step, [&](int p) { return weights + p * walk.panel_bytes; });
    if constexpr (kStream) {
      for (int line = 0; line < 1024; line += 64) {
        for (int p = 0; p < P; ++p) PrefetchAhead<P>(weights + p * walk.panel_bytes + line);
      }
    } else {
      prefetch.template Next<P>(static_cast<std::size_t>(walk.panel_bytes));
    }
  }
  if (walk.num_pairs % 16 != 0) {  // pairs that do not fill a step, and zeros
    alignas(64) std::byte rest[P][1024] = {};
    for (int p = 0; p < P; ++p) {
      const std::byte* pairs = panels + p * walk.panel_bytes + whole * 1024;
      for (std::int64_t i = 0; i < walk.num_pairs % 16; ++i) StoreI(rest[p] + i * 64, LoadI(pairs + i * 64));
    }
    dot(whole, [&](int p) { return rest[p]; });
  }

  ForConstants<T * P>([&](auto i) QUIRE_LAMBDA {
    constexpr int t = i / P, p = i % P, kSum = t * 2 + p;
    float* y = out + windows[t].begin * walk.ld_out + p * kPanelWidth;
    const std::int64_t present = ColumnsOfPanel(columns, p);
    if (present == kPanelWidth) return MatrixStore<kSum>(y, walk.ld_out * 4);
    alignas(64) float sums[16][16];
    MatrixStore<kSum>(sums, 64);
    for (std::int64_t r = 0; r < windows[t].end - windows[t].begin; ++r) {
      StorePartF(y + r * walk.ld_out, LoadF(sums[r]), present);
    }
  });
}

// P panels against all rows, two windows at a time where there are two.
template <int P, bool kStream>
inline void Bf16MatrixRows(const MatrixWalk& walk, const GemmArgs& args, std::int64_t panel) {
  const std::byte* panels = args.weights->data + panel * walk.panel_bytes;
  float* out = args.out + panel * kPanelWidth;
  const std::int64_t columns = args.weights->n - panel * kPanelWidth;
  const std::int64_t num_windows = (args.num_rows + 15) / 16, num_tiles = (num_windows + 1) / 2;
  const std::int64_t next_bytes = panel + P < args.panel_end ? walk.panel_bytes : 0;
  for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
    const MatrixWindow windows[] = {{2 * tile, args.num_rows}, {2 * tile + 1, args.num_rows}};
    const auto prefetch = kStream ? Prefetch()
                                  : Prefetch::Part(panels + P * walk.panel_bytes, next_bytes, tile, num_tiles,
                                                   (walk.num_pairs + 15) / 16);
    if (2 * tile + 1 < num_windows) {
      Bf16MatrixTile<2, P, kStream>(walk, windows, args.activations, panels, out, columns, prefetch);
    } else {
      Bf16MatrixTile<1, P, kStream>(walk, windows, args.activations, panels, out, columns, prefetch);
    }
  }
}

template <bool kStream>
inline void Bf16MatrixPanels(const MatrixWalk& walk, const GemmArgs& args) {
  const MatrixTiles tiles(args.num_rows < 16 ? args.num_rows : 16, 64);
  std::int64_t panel = args.panel_begin;
  for (; panel + 2 <= args.panel_end; panel += 2) Bf16MatrixRows<2, kStream>(walk, args, panel);
  if (panel < args.panel_end) Bf16MatrixRows<1, kStream>(walk, args, panel);
}

// One row of activations × P panels with vector registers, which take weights from memory faster than tiles do: the operations
// of MatrixDotBf16, one by one.
template <int P>
[[gnu::noinline]] void Bf16RowTile(const MatrixWalk& walk, const std::byte* row, const std::byte* panels, float* out,
                                   std::int64_t columns) {
  F32 sum[P];
  QUIRE_UNROLL for (int p = 0; p < P; ++p) sum[p] = ZeroF();
  for (std::int64_t begin = 0; begin < walk.num_pairs; begin += 16) {
    const std::int64_t left = walk.num_pairs - begin, count = left < 16 ? left : 16;
    F32 even[P], odd[P];
    QUIRE_UNROLL for (int p = 0; p < P; ++p) even[p] = odd[p] = ZeroF();
    for (std::int64_t pair = begin; pair < begin + count; ++pair) {
      std::int32_t bits;
      __builtin_memcpy(&bits, row + pair * 4, 4);
      const PairWeights a = PairsOf(SetI(bits));
      QUIRE_UNROLL for (int p = 0; p < P; ++p) {
        const std::byte* line = panels + p * walk.panel_bytes + pair * 64;
        const PairWeights w = LoadPairs(line);
        even[p] = Fma(w.even, a.even, even[p]);
        odd[p] = Fma(w.odd, a.odd, odd[p]);
        PrefetchAhead<P>(line);
      }
    }
    QUIRE_UNROLL for (int p = 0; p < P; ++p) sum[p] = Add(sum[p], Add(even[p], odd[p]));
  }
  QUIRE_UNROLL for (int p = 0; p < P; ++p) StorePartF(out + p * kPanelWidth, sum[p], ColumnsOfPanel(columns, p));
}

template <int P>
inline void Bf16RowPanels(const MatrixWalk& walk, const GemmArgs& args, std::int64_t begin) {
  for (; begin + P <= args.panel_end; begin += P) {
    Bf16RowTile<P>(walk, args.activations, args.weights->data + begin * walk.panel_bytes,
                   args.out + begin * kPanelWidth, args.weights->n - begin * kPanelWidth);
  }
  if constexpr (P > 1) Bf16RowPanels<P / 2>(walk, args, begin);
}

template <typename Format>
inline void GemmPairsMatrix(const GemmArgs& args) {
  static_assert(std::is_same_v<Format, Bf16Weights>);
  const std::int64_t k = args.weights->k;
  const MatrixWalk walk{.row_bytes = static_cast<std::int64_t>(ActivationRowBytes(ActivationKind::kBf16, k)),
                        .panel_bytes = static_cast<std::int64_t>(PanelBytes(args.weights->format, k)),
                        .ld_out = args.ld_out,
                        .num_pairs = (k + 1) / 2};
  if (args.num_rows == 1) {
    const SubnormalsAreZero subnormals_are_zero;
    return Bf16RowPanels<kGemvPanels>(walk, args, args.panel_begin);
  }
  if (args.num_rows <= 32) return Bf16MatrixPanels<true>(walk, args);  // one tile: weights are read once, from memory
  ForPortions(args, static_cast<std::size_t>(walk.row_bytes), 32,
              [&](const GemmArgs& part) { Bf16MatrixPanels<false>(walk, part); });
}
