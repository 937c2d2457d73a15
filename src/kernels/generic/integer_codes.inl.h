// The integer weight formats as the GEMM reads them: in their panels (weight_layout.h), and unpacked.
//
// A format answers for one block of 256 inner elements of a panel: where the codes of a group begin, its scales and minima
// as floats, and quad q of its codes. With `kRun` quads of a group the sums of DotRun still fit in 16 bits.

// Quads whose products two 16-bit lanes can hold the sum of: 2 · code · 127 a quad.
constexpr int QuadsInRun(int code_max, int quads_in_group) {
  if (!kDotAccumulatesInHalves) return quads_in_group;
  int run = 1;
  while (2 * run <= quads_in_group && 2 * run * 2 * code_max * 127 <= 32767) run *= 2;
  return run;
}

template <WeightFormat kFormat>
struct PackedCodes {
  static constexpr const FormatTraits& kTraits = kFormatTraits[static_cast<int>(kFormat)];
  static constexpr int kGroup = kTraits.group, kQuads = kGroup / 4, kGroups = kWeightBlock / kGroup;
  static constexpr int kZeroPoint = kTraits.zero_point;
  static constexpr bool kHasMin = kTraits.min != ScaleType::kNone;
  static constexpr int kRun =
      kZeroPoint == 128 ? (kDotAccumulatesInHalves ? 1 : kQuads) : QuadsInRun(kTraits.code_max, kQuads);
  static constexpr std::int64_t kBlockBytes = BlockLayout(kTraits, kGroups).bytes;
  static constexpr std::int64_t kCodeBytes = GroupCodeBytes(kTraits);

  struct Layout : BlockLayout {
    explicit constexpr Layout(std::int64_t num_groups) : BlockLayout(kTraits, num_groups) {}
  };

  QUIRE_INLINE static const std::byte* Codes(const Layout& layout, const std::byte* block, std::int64_t group) {
    return block + layout.codes + group * kCodeBytes;
  }
  // Unsigned; with a table: its value + 128.
  QUIRE_INLINE static I32 Quad(const std::byte* codes, int q) {
    if constexpr (kTraits.sparse) {
      const I32 both = LoadUnsignedBytes(codes + kGroup * 8 + q / 2 * 16);
      const I32 pattern = q % 2 == 0 ? AndI(both, SetI(15)) : UpperNibbles(both);
      const I32 values = PickBytes<2>(SpreadQuarters(codes + q * 32), kSparseBytes.data(), pattern);
      return XorI(values, SetBytes(0x80));
    } else if constexpr (kTraits.code_bits == 8) {
      return LoadI(codes + q * 64);
    } else {
      const I32 both = LoadI(codes + q / 2 * 64);
      const I32 lower = AndI(q % 2 == 0 ? both : ShiftRight16<4>(both), SetBytes(15));
      if constexpr (kTraits.table != nullptr) return LookUpBytes(kTraits.table, lower);
      if constexpr (kTraits.code_bits == 4) return lower;
      return OrI(lower, UpperBits(LoadI(codes + kGroup * 8), q));
    }
  }
  QUIRE_INLINE static F32 Scale(const Layout& layout, const std::byte* block, std::int64_t group) {
    return LoadScale<kTraits.scale>(block + layout.block_scales, block + layout.scales, group);
  }
  QUIRE_INLINE static F32 Min(const Layout& layout, const std::byte* block, std::int64_t group) {
    return LoadScale<kTraits.min>(block + layout.block_mins, block + layout.mins, group);
  }

  // The lines of a group's codes that quad q is the first to touch, and of its scales, some way ahead.
  template <int P>
  QUIRE_INLINE static void PrefetchQuad(const std::byte* codes, int q) {
    constexpr std::int64_t kQuadBytes = kCodeBytes / kQuads;
    if (q * kQuadBytes / 64 != (q - 1) * kQuadBytes / 64 || q == 0) PrefetchAhead<P>(codes + q * kQuadBytes / 64 * 64);
  }
  template <int P>
  QUIRE_INLINE static void PrefetchScales(const Layout& layout, const std::byte* block, std::int64_t group) {
    // A block's scales take as many lines as half of its groups, or fewer; with F32 minima, as many or more.
    PrefetchAhead<P>(block + group * static_cast<std::int64_t>(layout.codes) / kGroups);
    if constexpr (kTraits.min == ScaleType::kF32) PrefetchAhead<P>(block + layout.mins + group * 64);
  }

 private:
  QUIRE_INLINE static I32 UpperBits(I32 plane, int q) {
    constexpr int kBits = kTraits.code_bits - 4;
    const I32 mask = SetBytes(((1 << kBits) - 1) << 4);
    switch (kBits * q) {  // to bit 4; q is known when the loop around is unrolled
      case 0:
        return AndI(ShiftLeft16<4>(plane), mask);
      case 1:
        return AndI(ShiftLeft16<3>(plane), mask);
      case 2:
        return AndI(ShiftLeft16<2>(plane), mask);
      case 3:
        return AndI(ShiftLeft16<1>(plane), mask);
      case 4:
        return AndI(plane, mask);
      case 5:
        return AndI(ShiftRight16<1>(plane), mask);
      case 6:
        return AndI(ShiftRight16<2>(plane), mask);
      default:
        return AndI(ShiftRight16<3>(plane), mask);
    }
  }
  template <ScaleType kType>
  QUIRE_INLINE static F32 LoadScale(const std::byte* block_values, const std::byte* group_values, std::int64_t group) {
    if constexpr (kType == ScaleType::kF16) return LoadF16(group_values + group * 32);
    if constexpr (kType == ScaleType::kF32) return LoadF(group_values + group * 64);
    if constexpr (kType == ScaleType::kSuper) {  // exact: 11 bits by 8
      return Mul(LoadF16(block_values), LoadSignedBytes(group_values + group * 16));
    }
    return ZeroF();
  }
};

// What all formats but Int8Group32 are unpacked to, a stretch at a time, when many rows follow: codes of 8 bits, scales
// and minima in F32, group by group. Unpacking costs a few operations for each 64 codes once, in registers it would cost
// them for every tile of rows.
template <int kGroupSize, int kZero, bool kMin, int kQuadsInRun>
struct UnpackedCodes {
  static constexpr int kGroup = kGroupSize, kQuads = kGroup / 4, kGroups = kWeightBlock / kGroup;
  static constexpr int kZeroPoint = kZero, kRun = kQuadsInRun;
  static constexpr bool kHasMin = kMin;
  static constexpr std::int64_t kCodeBytes = kGroup * 16, kGroupBytes = kCodeBytes + (kMin ? 128 : 64);
  static constexpr std::int64_t kBlockBytes = kGroups * kGroupBytes;

  struct Layout {
    explicit constexpr Layout(std::int64_t /*num_groups*/) {}
  };

  QUIRE_INLINE static const std::byte* Codes(Layout, const std::byte* block, std::int64_t group) {
    return block + group * kGroupBytes;
  }
  QUIRE_INLINE static I32 Quad(const std::byte* codes, int q) { return LoadI(codes + q * 64); }
  QUIRE_INLINE static F32 Scale(Layout, const std::byte* block, std::int64_t group) {
    return LoadF(block + group * kGroupBytes + kCodeBytes);
  }
  QUIRE_INLINE static F32 Min(Layout, const std::byte* block, std::int64_t group) {
    return LoadF(block + group * kGroupBytes + kCodeBytes + 64);
  }
};

template <typename Packed>
using Unpacked = UnpackedCodes<Packed::kGroup, Packed::kZeroPoint, Packed::kHasMin, Packed::kRun>;

// `num_groups` groups from the block at `block` on, whole blocks but for the last one, to `out`. Codes become signed when
// Out has no zero point.
template <typename Packed, typename Out = Unpacked<Packed>>
[[gnu::noinline]] void UnpackGroups(const std::byte* block, std::int64_t num_groups, std::byte* out) {
  for (; num_groups > 0; num_groups -= Packed::kGroups, block += Packed::kBlockBytes) {
    const std::int64_t in_block = num_groups < Packed::kGroups ? num_groups : Packed::kGroups;
    const typename Packed::Layout layout(in_block);
    for (std::int64_t group = 0; group < in_block; ++group, out += Out::kGroupBytes) {
      const std::byte* codes = Packed::Codes(layout, block, group);
      QUIRE_UNROLL for (int q = 0; q < Packed::kQuads; ++q) {
        if constexpr (Out::kZeroPoint == Packed::kZeroPoint) {
          StoreI(out + q * 64, Packed::Quad(codes, q));
        } else {
          StoreI(out + q * 64, SubBytes(Packed::Quad(codes, q), SetBytes(Packed::kZeroPoint)));
        }
      }
      StoreF(out + Out::kCodeBytes, Packed::Scale(layout, block, group));
      if constexpr (Packed::kHasMin) StoreF(out + Out::kCodeBytes + 64, Packed::Min(layout, block, group));
    }
  }
}
