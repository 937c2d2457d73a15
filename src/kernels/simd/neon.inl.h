// The vocabulary of the tier of 64-bit ARM: sixteen lanes are four registers. Included inside the namespace and the target
// region of the tier; simd/avx2.inl.h gives the same names the same meaning. Results of all functions are the same bits
// as on the tiers of x86-64, for every input; of a NaN only that it is one (x86 makes it negative, ARM positive).

struct F32 {  // lanes 4i … 4i + 3
  float32x4_t v[4];
};
struct I32 {
  int32x4_t v[4];
};
struct Mask {  // all bits of a lane, or none
  uint32x4_t v[4];
};
struct F64 {  // lanes 2i, 2i + 1
  float64x2_t v[8];
};

inline constexpr std::int64_t kLanes = 16;

// Four registers from function(0) … function(3).
template <typename Vector, typename Function>
QUIRE_INLINE Vector Make(Function function) {
  return {{function(0), function(1), function(2), function(3)}};
}

// ---- Views of registers and memory -----------------------------------------------------------------------------------
QUIRE_INLINE const std::uint8_t* Bytes(const void* p) {
  return static_cast<const std::uint8_t*>(p);
}
QUIRE_INLINE std::uint8_t* Bytes(void* p) {
  return static_cast<std::uint8_t*>(p);
}
QUIRE_INLINE uint8x16_t BytesOf(int32x4_t a) {
  return vreinterpretq_u8_s32(a);
}
QUIRE_INLINE int32x4_t LanesOf(uint8x16_t a) {
  return vreinterpretq_s32_u8(a);
}
QUIRE_INLINE float32x4_t WidenF16(uint16x4_t bits) {
  return vcvt_f32_f16(vreinterpret_f16_u16(bits));
}
// 0x3210 … of four lanes that each hold an index: the places of the index's four bytes in a table of 32-bit values.
QUIRE_INLINE uint8x16_t PlacesInTable(int32x4_t index) {
  return BytesOf(vmlaq_s32(vdupq_n_s32(0x03020100), index, vdupq_n_s32(0x04040404)));
}

// ---- Float lanes -----------------------------------------------------------------------------------------------------
QUIRE_INLINE F32 SetF(float x) {
  return Make<F32>([&](int) { return vdupq_n_f32(x); });
}
QUIRE_INLINE F32 ZeroF() {
  return SetF(0);
}
QUIRE_INLINE F32 LoadF(const void* p) {
  return Make<F32>([&](int i) { return vreinterpretq_f32_u8(vld1q_u8(Bytes(p) + i * 16)); });
}
QUIRE_INLINE void StoreF(void* p, F32 x) {
  QUIRE_UNROLL for (int i = 0; i < 4; ++i) vst1q_u8(Bytes(p) + i * 16, vreinterpretq_u8_f32(x.v[i]));
}
QUIRE_INLINE Mask FirstLanes(std::int64_t n) {  // 0 ≤ n ≤ 16
  const int32x4_t lane = {0, 1, 2, 3};
  return Make<Mask>([&](int i) { return vcltq_s32(lane, vdupq_n_s32(static_cast<std::int32_t>(n) - 4 * i)); });
}
// The first n lanes of memory, the others zero and not touched.
QUIRE_INLINE F32 LoadPartF(const void* p, std::int64_t n) {
  if (n == 16) return LoadF(p);
  float lanes[16] = {};
  __builtin_memcpy(lanes, p, static_cast<std::size_t>(n) * 4);
  return LoadF(lanes);
}
QUIRE_INLINE void StorePartF(void* p, F32 x, std::int64_t n) {
  if (n == 16) return StoreF(p, x);
  float lanes[16];
  StoreF(lanes, x);
  __builtin_memcpy(p, lanes, static_cast<std::size_t>(n) * 4);
}
QUIRE_INLINE F32 LoadF16(const void* p) {  // 16 FP16 values
  return Make<F32>([&](int i) { return WidenF16(vreinterpret_u16_u8(vld1_u8(Bytes(p) + i * 8))); });
}
QUIRE_INLINE F32 Add(F32 a, F32 b) {
  return Make<F32>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
QUIRE_INLINE F32 Sub(F32 a, F32 b) {
  return Make<F32>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
QUIRE_INLINE F32 Mul(F32 a, F32 b) {
  return Make<F32>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
QUIRE_INLINE F32 Div(F32 a, F32 b) {
  return Make<F32>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
QUIRE_INLINE F32 Fma(F32 a, F32 b, F32 c) {  // a·b + c
  return Make<F32>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
QUIRE_INLINE F32 Fnma(F32 a, F32 b, F32 c) {  // c − a·b
  return Make<F32>([&](int i) { return vfmsq_f32(c.v[i], a.v[i], b.v[i]); });
}
// ARM's own maximum is NaN when either is, and knows that −0 is below 0; here, as on x86, b wins whenever a is not greater.
QUIRE_INLINE float32x4_t MaxOf(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
QUIRE_INLINE F32 Max(F32 a, F32 b) {  // b when either is NaN
  return Make<F32>([&](int i) { return MaxOf(a.v[i], b.v[i]); });
}
QUIRE_INLINE F32 Min(F32 a, F32 b) {  // b when either is NaN
  return Make<F32>([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
QUIRE_INLINE F32 RoundF(F32 a) {  // to the nearest integer, half to even
  return Make<F32>([&](int i) { return vrndnq_f32(a.v[i]); });
}

// ---- Integer lanes ---------------------------------------------------------------------------------------------------
QUIRE_INLINE I32 SetI(std::int32_t x) {
  return Make<I32>([&](int) { return vdupq_n_s32(x); });
}
QUIRE_INLINE I32 ZeroI() {
  return SetI(0);
}
QUIRE_INLINE I32 AddI(I32 a, I32 b) {
  return Make<I32>([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
}
QUIRE_INLINE I32 SubI(I32 a, I32 b) {
  return Make<I32>([&](int i) { return vsubq_s32(a.v[i], b.v[i]); });
}
QUIRE_INLINE I32 AndI(I32 a, I32 b) {
  return Make<I32>([&](int i) { return vandq_s32(a.v[i], b.v[i]); });
}
QUIRE_INLINE I32 OrI(I32 a, I32 b) {
  return Make<I32>([&](int i) { return vorrq_s32(a.v[i], b.v[i]); });
}
QUIRE_INLINE I32 XorI(I32 a, I32 b) {
  return Make<I32>([&](int i) { return veorq_s32(a.v[i], b.v[i]); });
}
QUIRE_INLINE I32 MaxU(I32 a, I32 b) {  // as unsigned
  return Make<I32>([&](int i) {
    return vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a.v[i]), vreinterpretq_u32_s32(b.v[i])));
  });
}
template <int n>
QUIRE_INLINE I32 ShiftRightI(I32 a) {  // arithmetic, 32-bit lanes
  return Make<I32>([&](int i) { return vshrq_n_s32(a.v[i], n); });
}
QUIRE_INLINE I32 HalfI(I32 a) {
  return ShiftRightI<1>(a);
}
QUIRE_INLINE I32 ToExponent(I32 a) {
  return Make<I32>([&](int i) { return vshlq_n_s32(a.v[i], 23); });
}
QUIRE_INLINE I32 LowerHalvesUp(I32 a) {  // the lower 16 bits of a lane in the place of the upper ones
  return Make<I32>([&](int i) { return vshlq_n_s32(a.v[i], 16); });
}
QUIRE_INLINE F32 ToFloat(I32 a) {
  return Make<F32>([&](int i) { return vcvtq_f32_s32(a.v[i]); });
}
QUIRE_INLINE I32 RoundToInt(F32 a) {  // half to even; what does not fit is another integer than on x86
  return Make<I32>([&](int i) { return vcvtnq_s32_f32(a.v[i]); });
}
QUIRE_INLINE I32 BitsOf(F32 a) {
  return Make<I32>([&](int i) { return vreinterpretq_s32_f32(a.v[i]); });
}
QUIRE_INLINE F32 FloatOf(I32 a) {
  return Make<F32>([&](int i) { return vreinterpretq_f32_s32(a.v[i]); });
}
QUIRE_INLINE void StoreCodes(std::int8_t* p, I32 a) {  // 16 integers that fit as 16 bytes
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

// ---- Bytes of integer lanes ------------------------------------------------------------------------------------------
QUIRE_INLINE I32 LoadI(const void* p) {
  return Make<I32>([&](int i) { return LanesOf(vld1q_u8(Bytes(p) + i * 16)); });
}
QUIRE_INLINE void StoreI(void* p, I32 a) {
  QUIRE_UNROLL for (int i = 0; i < 4; ++i) vst1q_u8(Bytes(p) + i * 16, BytesOf(a.v[i]));
}
QUIRE_INLINE I32 SetBytes(int x) {
  return Make<I32>([&](int) { return LanesOf(vdupq_n_u8(static_cast<std::uint8_t>(x))); });
}
// Of 16-bit lanes: bits move from byte to byte, and whoever shifts masks them.
template <int n>
QUIRE_INLINE I32 ShiftLeft16(I32 a) {
  return Make<I32>([&](int i) { return vreinterpretq_s32_u16(vshlq_n_u16(vreinterpretq_u16_s32(a.v[i]), n)); });
}
template <int n>
QUIRE_INLINE I32 ShiftRight16(I32 a) {
  return Make<I32>([&](int i) { return vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(a.v[i]), n)); });
}
// table[index] + 128 for every byte; indices are below 16.
QUIRE_INLINE I32 LookUpBytes(const std::int8_t* table, I32 index) {
  const uint8x16_t values = veorq_u8(vreinterpretq_u8_s8(vld1q_s8(table)), vdupq_n_u8(0x80));
  return Make<I32>([&](int i) { return LanesOf(vqtbl1q_u8(values, BytesOf(index.v[i]))); });
}

// ---- Masks -----------------------------------------------------------------------------------------------------------
QUIRE_INLINE Mask Less(F32 a, F32 b) {
  return Make<Mask>([&](int i) { return vcltq_f32(a.v[i], b.v[i]); });
}
QUIRE_INLINE Mask Equal(F32 a, F32 b) {
  return Make<Mask>([&](int i) { return vceqq_f32(a.v[i], b.v[i]); });
}
QUIRE_INLINE F32 Select(Mask m, F32 yes, F32 no) {
  return Make<F32>([&](int i) { return vbslq_f32(m.v[i], yes.v[i], no.v[i]); });
}
QUIRE_INLINE Mask LanesBetween(std::int64_t begin, std::int64_t end) {  // 0 ≤ begin ≤ end ≤ 16
  const Mask below_begin = FirstLanes(begin), below_end = FirstLanes(end);
  return Make<Mask>([&](int i) { return vbicq_u32(below_end.v[i], below_begin.v[i]); });
}
QUIRE_INLINE unsigned MaskBits(Mask m) {
  const uint32x4_t bit = {1, 2, 4, 8};
  unsigned bits = 0;
  QUIRE_UNROLL for (int i = 0; i < 4; ++i) bits |= vaddvq_u32(vandq_u32(m.v[i], bit)) << (4 * i);
  return bits;
}

// ---- Across lanes: halves are folded onto each other, 16 → 8 → 4 → 2 → 1 ---------------------------------------------
QUIRE_INLINE float ReduceAdd(F32 x) {
  const float32x4_t b = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  return vpadds_f32(vadd_f32(vget_low_f32(b), vget_high_f32(b)));
}
QUIRE_INLINE float ReduceMax(F32 x) {
  const float32x4_t b = MaxOf(MaxOf(x.v[0], x.v[2]), MaxOf(x.v[1], x.v[3]));
  const float32x4_t c = MaxOf(b, vextq_f32(b, b, 2));
  return vgetq_lane_f32(MaxOf(c, vextq_f32(c, c, 1)), 0);
}
QUIRE_INLINE std::uint32_t ReduceMaxU(I32 x) {
  const auto unsigned_lanes = [&](int i) { return vreinterpretq_u32_s32(x.v[i]); };
  return vmaxvq_u32(
      vmaxq_u32(vmaxq_u32(unsigned_lanes(0), unsigned_lanes(1)), vmaxq_u32(unsigned_lanes(2), unsigned_lanes(3))));
}
QUIRE_INLINE std::int32_t ReduceAddI(I32 x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3])));
}

// ---- Double lanes ----------------------------------------------------------------------------------------------------
QUIRE_INLINE F64 ZeroD() {
  const float64x2_t zero = vdupq_n_f64(0);
  return {{zero, zero, zero, zero, zero, zero, zero, zero}};
}
QUIRE_INLINE F64 AddWidened(F64 sum, F32 x) {
  QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
    sum.v[2 * i] = vaddq_f64(sum.v[2 * i], vcvt_f64_f32(vget_low_f32(x.v[i])));
    sum.v[2 * i + 1] = vaddq_f64(sum.v[2 * i + 1], vcvt_high_f64_f32(x.v[i]));
  }
  return sum;
}
QUIRE_INLINE double ReduceAddD(F64 x) {
  const float64x2_t low = vaddq_f64(vaddq_f64(x.v[0], x.v[4]), vaddq_f64(x.v[2], x.v[6]));
  const float64x2_t high = vaddq_f64(vaddq_f64(x.v[1], x.v[5]), vaddq_f64(x.v[3], x.v[7]));
  return vpaddd_f64(vaddq_f64(low, high));
}

// ---- Shapes of register tiles ----------------------------------------------------------------------------------------
// 32 registers, and a panel is four of them. INT8: six rows of dot products, and four registers of codes; the sums of a
// block live in memory, as on AVX-512. Float: a pair of BF16 weights takes eight registers beside the twenty of sums.
inline constexpr int kInt8Rows = 6, kSmallCodeRows = 6, kInt8Panels = 1;
inline constexpr int kInt8FewRows = 6, kInt8FewRowsPanels = 1;
inline constexpr int kSmallCodeFewRows = 6, kSmallCodeFewRowsPanels = 1;
inline constexpr int kFloatRows = 5, kFloatPanels = 1;
inline constexpr int kFloatFewRows = 2, kFloatFewRowsPanels = 2;
inline constexpr int kGemvPanels = 4;     // for a single row
inline constexpr int kAttentionRows = 3;  // two vectors of keys or values at a time: 24 registers

// ---- Bytes of quantised keys and values ------------------------------------------------------------------------------
QUIRE_INLINE I32 LoadUnsignedBytes(const std::byte* p) {  // 16 bytes
  const uint8x16_t bytes = vld1q_u8(Bytes(p));
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_high_u16(low)),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_high_u16(high))}};
}
QUIRE_INLINE F32 LoadSignedBytes(const std::byte* p) {  // 16 bytes as floats
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(Bytes(p)));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return ToFloat(
      I32{{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}});
}
QUIRE_INLINE I32 UpperNibbles(I32 bytes) {
  return Make<I32>([&](int i) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(bytes.v[i]), 4)); });
}
QUIRE_INLINE F32 FloatsOfF16(uint16x8_t low, uint16x8_t high) {
  return {{WidenF16(vget_low_u16(low)), WidenF16(vget_high_u16(low)), WidenF16(vget_low_u16(high)),
           WidenF16(vget_high_u16(high))}};
}
// Eight bytes of FP8 E4M3 as F16s that are worth 2^-8 of them: sign, exponent and mantissa stand in the place of an F16's,
// whose bias is 8 more. Of a NaN (all seven bits set) the sum carries into bit 14, which makes it a NaN of F16.
QUIRE_INLINE uint16x8_t PlaceFp8(uint8x8_t bytes) {
  const uint16x8_t wide = vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_u8(bytes)));
  const uint16x8_t half = vandq_u16(vshlq_n_u16(wide, 7), vdupq_n_u16(0xBF80));
  return vorrq_u16(half, vandq_u16(vaddq_u16(half, vdupq_n_u16(0x0080)), vdupq_n_u16(0x4000)));
}
QUIRE_INLINE F32 LoadFp8(const std::byte* p) {  // 16 bytes of FP8 E4M3, times 2^-8
  return FloatsOfF16(PlaceFp8(vld1_u8(Bytes(p))), PlaceFp8(vld1_u8(Bytes(p) + 8)));
}
// 16 bytes that are the upper halves of F16s: FP8 E5M2.
QUIRE_INLINE F32 LoadUpperHalves(const std::byte* p) {
  const uint8x16_t bytes = vld1q_u8(Bytes(p));
  return FloatsOfF16(vshll_n_u8(vget_low_u8(bytes), 8), vshll_high_n_u8(bytes, 8));
}
// table[index] of 16 floats, for every lane.
QUIRE_INLINE F32 LookUp16(const float* table, I32 index) {
  const uint8x16x4_t values = {
      {vld1q_u8(Bytes(table)), vld1q_u8(Bytes(table) + 16), vld1q_u8(Bytes(table) + 32), vld1q_u8(Bytes(table) + 48)}};
  return Make<F32>([&](int i) { return vreinterpretq_f32_u8(vqtbl4q_u8(values, PlacesInTable(index.v[i]))); });
}

// ---- Two of four -----------------------------------------------------------------------------------------------------
// 32 bytes, eight to the lower half of each 128 bits.
QUIRE_INLINE I32 SpreadQuarters(const std::byte* p) {
  return Make<I32>([&](int i) { return LanesOf(vcombine_u8(vld1_u8(Bytes(p) + i * 8), vdup_n_u8(0))); });
}
// Four bytes for every lane, of the 128 bits that it lies in: those that table[index] names (index < 8), kStep further for
// each lane in its 128 bits; zero where it names 0x80.
template <int kStep>
QUIRE_INLINE I32 PickBytes(I32 source, const std::uint32_t* table, I32 index) {
  const uint8x16x2_t values = {{vld1q_u8(Bytes(table)), vld1q_u8(Bytes(table) + 16)}};
  constexpr std::uint32_t kFour = 0x01010101 * kStep;
  const uint32x4_t steps = {0, kFour, 2 * kFour, 3 * kFour};
  return Make<I32>([&](int i) {
    const uint8x16_t picked = vqtbl2q_u8(values, PlacesInTable(index.v[i]));
    return LanesOf(vqtbl1q_u8(BytesOf(source.v[i]), vaddq_u8(picked, vreinterpretq_u8_u32(steps))));
  });
}

// ---- Dot products of codes -------------------------------------------------------------------------------------------
// sdot multiplies signed bytes, four to a lane, and adds to 32-bit sums. Codes with the zero point 128 become signed when
// their upper bit is flipped; all others are below 128 (weight_layout.h), the same number either way.
inline constexpr bool kDotSubtractsZeroPoint = true, kDotAccumulatesInHalves = false;

QUIRE_INLINE I32 OffsetCodes(I32 codes) {
  return XorI(codes, SetBytes(0x80));
}
QUIRE_INLINE int8x16_t LoadQuad(const std::byte* p) {  // four activations in every lane
  std::int32_t quad;
  __builtin_memcpy(&quad, p, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(quad));
}
using DotSum = I32;
QUIRE_INLINE DotSum BeginRun(I32 dot) {
  return dot;
}
QUIRE_INLINE DotSum DotRun(DotSum sum, I32 codes, int8x16_t a) {
  return Make<I32>([&](int i) { return vdotq_s32(sum.v[i], vreinterpretq_s8_s32(codes.v[i]), a); });
}
QUIRE_INLINE I32 EndRun(I32 /*dot*/, DotSum sum) {
  return sum;
}
