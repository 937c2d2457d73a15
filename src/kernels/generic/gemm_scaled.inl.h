// out = activations · Wᵀ for weights of 8 or 4 bits that stand for floats, with a scale for each group of the inner
// dimension (weight_layout.h, ScaledGroup). For every output, whatever the shape of the tile:
//
//   for each group      dot = one chain of Fma over its elements, from 0;   out = dot · scale + out
//
// Codes become floats in registers, a few operations for sixteen weights, which a tile of many rows shares.

// E4M3 in the place of an F16 is worth 2^-8 of itself; the packer multiplied the scales by 2^8.
struct Fp8E4m3Codes {
  static constexpr WeightFormat kFormat = WeightFormat::kFp8E4m3;
  QUIRE_INLINE static F32 Load(const std::byte* codes, std::int64_t i) { return LoadFp8(codes + i * 16); }
};
struct Fp8E5m2Codes {
  static constexpr WeightFormat kFormat = WeightFormat::kFp8E5m2;
  QUIRE_INLINE static F32 Load(const std::byte* codes, std::int64_t i) { return LoadUpperHalves(codes + i * 16); }
};
struct Nf4Codes {
  static constexpr WeightFormat kFormat = WeightFormat::kNf4;
  QUIRE_INLINE static F32 Load(const std::byte* codes, std::int64_t i) {
    const I32 both = LoadUnsignedBytes(codes + i / 2 * 16);
    return LookUp16(kNf4Values, i % 2 == 0 ? AndI(both, SetI(15)) : UpperNibbles(both));
  }
};

struct ScaledWalk {
  std::size_t row_bytes;
  std::int64_t panel_bytes, k, ld_out;
};

// R rows × P panels over the whole inner dimension. The panels need not fit in the L1 cache: a tile reads 16 or 32 bytes
// for its R · P multiplications.
template <typename Codes, int R, int P>
[[gnu::noinline]] void ScaledTile(const ScaledWalk& walk, const std::byte* rows, const std::byte* panels, float* out,
                                  std::int64_t columns) {
  constexpr ScaledGroup kGroup(Codes::kFormat);
  alignas(64) float total[R][P][16];  // in memory: used once a group, and the registers are taken
  LoadTile<R, P>(true, out, walk.ld_out, columns, total);
  for (std::int64_t begin = 0; begin < walk.k; begin += kGroup.elements, panels += kGroup.bytes) {
    const std::int64_t left = walk.k - begin, count = left < kGroup.elements ? left : kGroup.elements;
    F32 dot[R][P];
    QUIRE_UNROLL for (int r = 0; r < R; ++r) {
      QUIRE_UNROLL for (int p = 0; p < P; ++p) dot[r][p] = ZeroF();
    }
    const std::byte* codes = panels + kGroup.codes;
    for (std::int64_t i = 0; i < count; i += 2, codes += kGroup.pair_bytes) {
      QUIRE_UNROLL for (std::int64_t j = 0; j < 2; ++j) {
        if (i + j == count) break;  // an odd inner dimension
        F32 weights[P];
        QUIRE_UNROLL for (int p = 0; p < P; ++p) weights[p] = Codes::Load(codes + p * walk.panel_bytes, j);
        QUIRE_UNROLL for (int r = 0; r < R; ++r) {
          const F32 a = SetF(FloatAt(rows + r * walk.row_bytes, begin + i + j));
          QUIRE_UNROLL for (int p = 0; p < P; ++p) dot[r][p] = Fma(weights[p], a, dot[r][p]);
        }
      }
      QUIRE_UNROLL for (int p = 0; p < P; ++p) PrefetchAhead<P>(codes + p * walk.panel_bytes);
    }
    QUIRE_UNROLL for (int p = 0; p < P; ++p) {
      const F32 scale = LoadF(panels + p * walk.panel_bytes);
      QUIRE_UNROLL for (int r = 0; r < R; ++r) StoreF(total[r][p], Fma(dot[r][p], scale, LoadF(total[r][p])));
    }
  }
  StoreTile<R, P>(total, out, walk.ld_out, columns);
}

template <typename Codes, int R, int P>
inline void ScaledTileOf(std::int64_t num_rows, const ScaledWalk& walk, const std::byte* rows, const std::byte* panels,
                         float* out, std::int64_t columns) {
  if constexpr (R > 1) {
    if (num_rows < R) return ScaledTileOf<Codes, R - 1, P>(num_rows, walk, rows, panels, out, columns);
  }
  ScaledTile<Codes, R, P>(walk, rows, panels, out, columns);
}

// Panels [begin, end) in groups of P, and what is left over in smaller groups; rows in tiles of nearly equal height.
template <typename Codes, int R, int P>
inline void ScaledPanels(const ScaledWalk& walk, const GemmArgs& args, std::int64_t begin) {
  const std::int64_t num_tiles = (args.num_rows + R - 1) / R;
  for (; begin + P <= args.panel_end; begin += P) {
    const std::int64_t column = begin * kPanelWidth;
    for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
      const std::int64_t row = args.num_rows * tile / num_tiles, end = args.num_rows * (tile + 1) / num_tiles;
      ScaledTileOf<Codes, R, P>(end - row, walk, args.activations + row * static_cast<std::int64_t>(walk.row_bytes),
                                args.weights->data + begin * walk.panel_bytes, args.out + row * args.ld_out + column,
                                args.weights->n - column);
    }
  }
  if constexpr (P > 1) ScaledPanels<Codes, R, P / 2>(walk, args, begin);
}

template <typename Codes>
inline void GemmScaled(const GemmArgs& args) {
  const std::int64_t k = args.weights->k;
  const ScaledWalk walk{.row_bytes = ActivationRowBytes(ActivationKind::kF32, k),
                        .panel_bytes = static_cast<std::int64_t>(PanelBytes(Codes::kFormat, k)),
                        .k = k,
                        .ld_out = args.ld_out};
  if (args.num_rows == 1) return ScaledPanels<Codes, 1, kGemvPanels>(walk, args, args.panel_begin);
  ForPortions(args, walk.row_bytes, kFloatRows, [&](const GemmArgs& part) {
    ScaledPanels<Codes, kFloatRows, kFloatPanels>(walk, part, part.panel_begin);
  });
}
