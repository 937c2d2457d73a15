// Preparing rows of activations; the bytes are those of PrepareActivationsReference (activation_layout.h),
// except that a tier with BF16 instructions rounds with them.

inline void QuantizeBlock(const float* x, std::int64_t count, const BlockScale& scale, std::int8_t* codes,
                          std::int32_t* start16) {
  const F32 inverse = SetF(scale.inverse);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const I32 rounded = scale.inverse == 0 ? ZeroI() : RoundToInt(Mul(LoadF(x + i), inverse));
    StoreCodes(codes + i, rounded);
    start16[i / kLanes] = -128 * ReduceAddI(rounded);
  }
}

inline void QuantizeRow(const float* x, std::int64_t k, std::byte* row) {
  const Int8RowLayout layout(k);
  auto* codes = reinterpret_cast<std::int8_t*>(row);
  auto* scales = reinterpret_cast<float*>(row + layout.scales);
  auto* start16 = reinterpret_cast<std::int32_t*>(row + layout.start16);
  auto* start32 = reinterpret_cast<std::int32_t*>(row + layout.start32);
  auto* sums32 = reinterpret_cast<float*>(row + layout.sums32);
  const I32 magnitude = SetI(0x7FFFFFFF);
  for (std::int64_t block = 0; block < layout.num_blocks; ++block) {
    const std::int64_t begin = block * kActivationBlock;
    const std::int64_t count = k - begin < kActivationBlock ? k - begin : kActivationBlock;
    I32 largest = ZeroI();
    for (std::int64_t i = 0; i < count; i += kLanes) {
      largest = MaxU(largest, AndI(BitsOf(LoadF(x + begin + i)), magnitude));
    }
    const BlockScale scale = QuantizationScale(ReduceMaxU(largest));
    scales[block] = scale.scale;
    QuantizeBlock(x + begin, count, scale, codes + begin, start16 + begin / kLanes);
  }
  for (std::int64_t g = 0; g < layout.num_groups32; ++g) {
    const bool whole = 2 * g + 1 < layout.num_groups16;
    start32[g] = start16[2 * g] + (whole ? start16[2 * g + 1] : 0);
    sums32[g] = static_cast<float>(start32[g] / -128);
  }
  for (std::int64_t i = k; i < static_cast<std::int64_t>(layout.scales); ++i) codes[i] = 0;
}

// What the rows of kBf16 are made of.
using RoundedElement = std::conditional_t<kMatrixTiles, std::uint16_t, Element>;

inline void RoundRow(const float* x, std::int64_t k, RoundedElement* row) {
  std::int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) StoreElements(row + i, LoadF(x + i));
  if (i < k) StoreElements(row + i, LoadPartF(x + i, k - i));  // rows end at a multiple of 64 bytes: there is room
}

inline void PrepareActivations(ActivationKind kind, const float* x, std::int64_t num_rows, std::int64_t k,
                               std::int64_t ld_x, std::byte* out) {
  const bool rounded = kind == ActivationKind::kBf16 && (kBf16Activations || kMatrixTiles);
  if (kind != ActivationKind::kInt8 && !rounded) {
    return PrepareActivationsReference(kind, x, num_rows, k, ld_x, out);
  }
  const std::size_t row_bytes = ActivationRowBytes(kind, k);
  for (std::int64_t r = 0; r < num_rows; ++r, x += ld_x, out += row_bytes) {
    if (row_bytes >= 64) StoreF(out + row_bytes - 64, ZeroF());  // padding is zero
    if (row_bytes >= 128) StoreF(out + row_bytes - 128, ZeroF());
    if (rounded) {
      RoundRow(x, k, reinterpret_cast<RoundedElement*>(out));
    } else {
      QuantizeRow(x, k, out);
    }
  }
}
