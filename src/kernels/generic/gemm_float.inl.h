// out = activations · Wᵀ for the float formats: for every output one chain of Fma (or of BF16 pair dots) over
// the inner dimension from its beginning to its end, starting at 0, whatever the shape of the tile. `out`
// itself keeps the chain between two stretches of the inner dimension.
//
// A step is one load of 16 outputs: one inner element, or a pair of them for BF16.

struct F32Weights {
  static constexpr std::int64_t kInner = 1, kStepBytes = 64, kInputBytes = 4;
  using Weights = F32;
  using Input = F32;
  QUIRE_INLINE static Weights Load(const std::byte* p) { return LoadF(p); }
  QUIRE_INLINE static Input LoadInput(const std::byte* p) { return SetF(FloatAt(p, 0)); }
  QUIRE_INLINE static F32 Dot(F32 sum, Weights w, Input a) { return Fma(w, a, sum); }
};
struct F16Weights {
  static constexpr std::int64_t kInner = 1, kStepBytes = 32, kInputBytes = 4;
  using Weights = F32;
  using Input = F32;
  QUIRE_INLINE static Weights Load(const std::byte* p) { return LoadF16(p); }
  QUIRE_INLINE static Input LoadInput(const std::byte* p) { return SetF(FloatAt(p, 0)); }
  QUIRE_INLINE static F32 Dot(F32 sum, Weights w, Input a) { return Fma(w, a, sum); }
};
struct Bf16Weights {
  static constexpr std::int64_t kInner = 2, kStepBytes = 64, kInputBytes = 2 * sizeof(Element);
  using Weights = PairWeights;
  using Input = PairInput;
  QUIRE_INLINE static Weights Load(const std::byte* p) { return LoadPairs(p); }
  QUIRE_INLINE static Input LoadInput(const std::byte* p) { return LoadPairInput(reinterpret_cast<const Element*>(p)); }
  QUIRE_INLINE static F32 Dot(F32 sum, Weights w, Input a) { return DotPair(sum, w, a); }
};

// Two pairs a step, expanded with zeros where nothing is stored: the same sums as of kBf16.
struct Bf16SparseWeights {
  static constexpr std::int64_t kInner = 4, kStepBytes = kBf16SparseQuadBytes, kInputBytes = 4 * sizeof(Element);
  struct Weights {
    PairWeights lower, upper;
  };
  struct Input {
    PairInput lower, upper;
  };
  QUIRE_INLINE static Weights Load(const std::byte* p) {
    const I32 stored = LoadI(p), pattern = LoadUnsignedBytes(p + 64);
    return {PairsOf(PickBytes<4>(stored, kSparseLowerPair.data(), pattern)),
            PairsOf(PickBytes<4>(stored, kSparseUpperPair.data(), pattern))};
  }
  QUIRE_INLINE static Input LoadInput(const std::byte* p) {
    const auto* elements = reinterpret_cast<const Element*>(p);
    return {LoadPairInput(elements), LoadPairInput(elements + 2)};
  }
  QUIRE_INLINE static F32 Dot(F32 sum, Weights w, Input a) {
    return DotPair(DotPair(sum, w.lower, a.lower), w.upper, a.upper);
  }
};

struct FloatWalk {
  std::size_t row_bytes, panel_bytes;
  std::int64_t ld_out, num_steps, step_begin, step_end;
};

// R rows × P panels over the steps of `walk`; see Int8Tile.
template <typename Format, int R, int P, bool kStream>
[[gnu::noinline]] void FloatTile(const FloatWalk& walk, const std::byte* rows, const std::byte* panels, float* out,
                                 std::int64_t columns, const Prefetch& share) {
  Prefetch prefetch = share;
  F32 sum[R][P];
  QUIRE_UNROLL for (int r = 0; r < R; ++r) {
    QUIRE_UNROLL for (int p = 0; p < P; ++p) {
      const float* y = out + r * walk.ld_out + p * kPanelWidth;
      __builtin_prefetch(y, 1);  // see LoadTile
      sum[r][p] = walk.step_begin == 0 ? ZeroF() : LoadPartF(y, ColumnsOfPanel(columns, p));
    }
  }
  const std::byte* w = panels + walk.step_begin * Format::kStepBytes;
  const std::byte* a = rows + walk.step_begin * Format::kInputBytes;
  for (std::int64_t step = walk.step_begin; step < walk.step_end;
       ++step, w += Format::kStepBytes, a += Format::kInputBytes) {
    if constexpr (!kStream) prefetch.template Next<P>(walk.panel_bytes);
    if constexpr (R > 1) {  // an input serves all panels
      typename Format::Weights weights[P];
      QUIRE_UNROLL for (int p = 0; p < P; ++p) {
        weights[p] = Format::Load(w + p * walk.panel_bytes);
        if constexpr (kStream) PrefetchAhead<P>(w + p * walk.panel_bytes);
      }
      QUIRE_UNROLL for (int r = 0; r < R; ++r) {
        const auto input = Format::LoadInput(a + r * walk.row_bytes);
        QUIRE_UNROLL for (int p = 0; p < P; ++p) sum[r][p] = Format::Dot(sum[r][p], weights[p], input);
      }
    } else {  // one panel at a time keeps the registers free
      const auto input = Format::LoadInput(a);
      QUIRE_UNROLL for (int p = 0; p < P; ++p) {
        sum[0][p] = Format::Dot(sum[0][p], Format::Load(w + p * walk.panel_bytes), input);
        if constexpr (kStream) PrefetchAhead<P>(w + p * walk.panel_bytes);
      }
    }
  }
  QUIRE_UNROLL for (int r = 0; r < R; ++r) {
    QUIRE_UNROLL for (int p = 0; p < P; ++p) {
      StorePartF(out + r * walk.ld_out + p * kPanelWidth, sum[r][p], ColumnsOfPanel(columns, p));
    }
  }
}

// FloatTile with as many rows as `num_rows` says, kMinRows … R.
template <typename Format, int kMinRows, int R, int P, bool kStream>
inline void FloatTileOf(std::int64_t num_rows, const FloatWalk& walk, const std::byte* rows, const std::byte* panels,
                        float* out, std::int64_t columns, const Prefetch& prefetch) {
  if constexpr (R > kMinRows) {
    if (num_rows < R) {
      return FloatTileOf<Format, kMinRows, R - 1, P, kStream>(num_rows, walk, rows, panels, out, columns, prefetch);
    }
  }
  FloatTile<Format, R, P, kStream>(walk, rows, panels, out, columns, prefetch);
}

// Many rows against P panels; see Int8ManyRows.
template <typename Format, int R, int P>
inline void FloatManyRows(FloatWalk walk, const GemmArgs& args, const std::byte* panels, float* out,
                          std::int64_t columns, bool is_last) {
  constexpr std::int64_t kStepsPerStretch = 32 * 1024 / (2 * Format::kStepBytes);  // 32 KiB of two panels
  constexpr int kShortest = R / 2;  // of two tiles or more, none is below half of R
  const std::int64_t num_tiles = (args.num_rows + R - 1) / R;
  for (std::int64_t begin = 0; begin < walk.num_steps; begin += kStepsPerStretch) {
    walk.step_begin = begin;
    walk.step_end = begin + kStepsPerStretch < walk.num_steps ? begin + kStepsPerStretch : walk.num_steps;
    const bool wraps = walk.step_end == walk.num_steps;
    const std::byte* next = wraps ? panels + P * walk.panel_bytes : panels + walk.step_end * Format::kStepBytes;
    const std::int64_t next_bytes = wraps && is_last ? 0 : kStepsPerStretch * Format::kStepBytes;
    for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
      const std::int64_t row = args.num_rows * tile / num_tiles;
      const std::int64_t height = args.num_rows * (tile + 1) / num_tiles - row;
      const std::byte* rows = args.activations + row * static_cast<std::int64_t>(walk.row_bytes);
      const Prefetch prefetch = Prefetch::Part(next, next_bytes, tile, num_tiles, walk.step_end - begin);
      FloatTileOf<Format, kShortest, R, P, false>(height, walk, rows, panels, out + row * walk.ld_out, columns,
                                                  prefetch);
    }
  }
}

// Panels [begin, end) in groups of P; see Int8Panels.
template <typename Format, int kMinRows, int R, int P, bool kStream>
inline void FloatPanels(const FloatWalk& walk, const GemmArgs& args, std::int64_t begin) {
  for (; begin + P <= args.panel_end; begin += P) {
    const std::int64_t column = begin * kPanelWidth, columns = args.weights->n - column;
    const std::byte* panels = args.weights->data + begin * static_cast<std::int64_t>(walk.panel_bytes);
    if constexpr (kStream) {
      FloatTileOf<Format, kMinRows, R, P, true>(args.num_rows, walk, args.activations, panels, args.out + column,
                                                columns, {});
    } else {
      FloatManyRows<Format, R, P>(walk, args, panels, args.out + column, columns, begin + P >= args.panel_end);
    }
  }
  if constexpr (P > 1) FloatPanels<Format, kMinRows, R, P / 2, kStream>(walk, args, begin);
}

template <typename Format>
inline void GemmFloat(ActivationKind kind, const GemmArgs& args) {
  const std::int64_t k = args.weights->k;
  const std::int64_t num_steps = (k + Format::kInner - 1) / Format::kInner;
  const FloatWalk walk{.row_bytes = ActivationRowBytes(kind, k),
                       .panel_bytes = PanelBytes(args.weights->format, k),
                       .ld_out = args.ld_out,
                       .num_steps = num_steps,
                       .step_begin = 0,
                       .step_end = num_steps};
  if (args.num_rows == 1) return FloatPanels<Format, 1, 1, kGemvPanels, true>(walk, args, args.panel_begin);
  if (args.num_rows <= kFloatFewRows) {
    return FloatPanels<Format, 2, kFloatFewRows, kFloatFewRowsPanels, true>(walk, args, args.panel_begin);
  }
  if (args.num_rows <= kFloatRows) {
    return FloatPanels<Format, kFloatFewRows + 1, kFloatRows, kFloatPanels, true>(walk, args, args.panel_begin);
  }
  ForPortions(args, walk.row_bytes, kFloatRows, [&](const GemmArgs& part) {
    FloatPanels<Format, 0, kFloatRows, kFloatPanels, false>(walk, part, part.panel_begin);
  });
}
