// The vocabulary of the AVX-512 tiers (F, BW, VL, DQ): sixteen lanes are one register. Included inside the
// namespace and the target region of a tier; simd/avx2.inl.h gives the same names the same meaning, and
// docs/kernels.md lists them. Results of all functions are the same bits on every tier, for every input.

using F32 = __m512;
using I32 = __m512i;
using Mask = __mmask16;  // one bit a lane
struct F64 {             // lanes 0–7, 8–15
  __m512d lo, hi;
};

inline constexpr std::int64_t kLanes = 16;

// ---- Float lanes
// ---------------------------------------------------------------------------------------------------
QUIRE_INLINE F32 ZeroF() {
  return _mm512_setzero_ps();
}
QUIRE_INLINE F32 SetF(float x) {
  return _mm512_set1_ps(x);
}
QUIRE_INLINE F32 LoadF(const void* p) {
  return _mm512_loadu_ps(p);
}
QUIRE_INLINE void StoreF(void* p, F32 x) {
  _mm512_storeu_ps(p, x);
}
QUIRE_INLINE Mask FirstLanes(std::int64_t n) {  // 0 ≤ n ≤ 16
  return static_cast<Mask>((1u << n) - 1);
}
// The first n lanes of memory, the others zero and not touched.
QUIRE_INLINE F32 LoadPartF(const void* p, std::int64_t n) {
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
QUIRE_INLINE void StorePartF(void* p, F32 x, std::int64_t n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), x);
}
QUIRE_INLINE F32 LoadF16(const void* p) {  // 16 FP16 values
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
QUIRE_INLINE F32 Add(F32 a, F32 b) {
  return _mm512_add_ps(a, b);
}
QUIRE_INLINE F32 Sub(F32 a, F32 b) {
  return _mm512_sub_ps(a, b);
}
QUIRE_INLINE F32 Mul(F32 a, F32 b) {
  return _mm512_mul_ps(a, b);
}
QUIRE_INLINE F32 Div(F32 a, F32 b) {
  return _mm512_div_ps(a, b);
}
QUIRE_INLINE F32 Fma(F32 a, F32 b, F32 c) {
  return _mm512_fmadd_ps(a, b, c);
}  // a·b + c
QUIRE_INLINE F32 Fnma(F32 a, F32 b, F32 c) {
  return _mm512_fnmadd_ps(a, b, c);
}  // c − a·b
QUIRE_INLINE F32 Max(F32 a, F32 b) {
  return _mm512_max_ps(a, b);
}  // b when either is NaN
QUIRE_INLINE F32 Min(F32 a, F32 b) {
  return _mm512_min_ps(a, b);
}  // b when either is NaN
QUIRE_INLINE F32 RoundF(F32 a) {  // to the nearest integer, half to even
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// ---- Integer lanes
// -------------------------------------------------------------------------------------------------
QUIRE_INLINE I32 ZeroI() {
  return _mm512_setzero_si512();
}
QUIRE_INLINE I32 SetI(std::int32_t x) {
  return _mm512_set1_epi32(x);
}
QUIRE_INLINE I32 AddI(I32 a, I32 b) {
  return _mm512_add_epi32(a, b);
}
QUIRE_INLINE I32 SubI(I32 a, I32 b) {
  return _mm512_sub_epi32(a, b);
}
QUIRE_INLINE I32 AndI(I32 a, I32 b) {
  return _mm512_and_si512(a, b);
}
QUIRE_INLINE I32 OrI(I32 a, I32 b) {
  return _mm512_or_si512(a, b);
}
QUIRE_INLINE I32 MaxU(I32 a, I32 b) {
  return _mm512_max_epu32(a, b);
}  // as unsigned
QUIRE_INLINE I32 HalfI(I32 a) {
  return _mm512_srai_epi32(a, 1);
}
QUIRE_INLINE I32 ToExponent(I32 a) {
  return _mm512_slli_epi32(a, 23);
}
QUIRE_INLINE I32 LowerHalvesUp(I32 a) {  // the lower 16 bits of a lane in the place of the upper ones
  return _mm512_slli_epi32(a, 16);
}
QUIRE_INLINE F32 ToFloat(I32 a) {
  return _mm512_cvtepi32_ps(a);
}
QUIRE_INLINE I32 RoundToInt(F32 a) {
  return _mm512_cvtps_epi32(a);
}  // half to even
QUIRE_INLINE I32 BitsOf(F32 a) {
  return _mm512_castps_si512(a);
}
QUIRE_INLINE F32 FloatOf(I32 a) {
  return _mm512_castsi512_ps(a);
}
QUIRE_INLINE void StoreCodes(std::int8_t* p, I32 a) {  // 16 integers that fit as 16 bytes
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}

// ---- Bytes of integer lanes
// -----------------------------------------------------------------------------------------
QUIRE_INLINE I32 LoadI(const void* p) {
  return _mm512_loadu_si512(p);
}
QUIRE_INLINE void StoreI(void* p, I32 a) {
  _mm512_storeu_si512(p, a);
}
QUIRE_INLINE I32 SetBytes(int x) {
  return _mm512_set1_epi8(static_cast<char>(x));
}
// Of 16-bit lanes: bits move from byte to byte, and whoever shifts masks them.
template <int n>
QUIRE_INLINE I32 ShiftLeft16(I32 a) {
  return _mm512_slli_epi16(a, n);
}
template <int n>
QUIRE_INLINE I32 ShiftRight16(I32 a) {
  return _mm512_srli_epi16(a, n);
}
template <int n>
QUIRE_INLINE I32 ShiftRightI(I32 a) {  // arithmetic, 32-bit lanes
  return _mm512_srai_epi32(a, n);
}
// table[index] + 128 for every byte; indices are below 16.
QUIRE_INLINE I32 LookUpBytes(const std::int8_t* table, I32 index) {
  const __m512i values =
      _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))),
                       _mm512_set1_epi8(static_cast<char>(0x80)));
  return _mm512_shuffle_epi8(values, index);
}

// ---- Masks
// ---------------------------------------------------------------------------------------------------------
QUIRE_INLINE Mask Less(F32 a, F32 b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
QUIRE_INLINE Mask Equal(F32 a, F32 b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
QUIRE_INLINE F32 Select(Mask m, F32 yes, F32 no) {
  return _mm512_mask_blend_ps(m, no, yes);
}
QUIRE_INLINE Mask LanesBetween(std::int64_t begin, std::int64_t end) {  // 0 ≤ begin ≤ end ≤ 16
  return static_cast<Mask>(FirstLanes(end) & ~FirstLanes(begin));
}
QUIRE_INLINE unsigned MaskBits(Mask m) {
  return m;
}

// ---- Across lanes: halves are folded onto each other, 16 → 8 → 4 → 2 → 1
// ---------------------------------------------
QUIRE_INLINE float ReduceAdd(F32 x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
QUIRE_INLINE float ReduceMax(F32 x) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
QUIRE_INLINE std::uint32_t ReduceMaxU(I32 x) {
  const __m256i a = _mm256_max_epu32(_mm512_castsi512_si256(x), _mm512_extracti32x8_epi32(x, 1));
  const __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i c = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4E));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(c, _mm_shuffle_epi32(c, 0xB1))));
}
QUIRE_INLINE std::int32_t ReduceAddI(I32 x) {
  const __m256i a = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti32x8_epi32(x, 1));
  const __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i c = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

// ---- Double lanes
// --------------------------------------------------------------------------------------------------
QUIRE_INLINE F64 ZeroD() {
  return {_mm512_setzero_pd(), _mm512_setzero_pd()};
}
QUIRE_INLINE F64 AddWidened(F64 sum, F32 x) {
  return {_mm512_add_pd(sum.lo, _mm512_cvtps_pd(_mm512_castps512_ps256(x))),
          _mm512_add_pd(sum.hi, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)))};
}
QUIRE_INLINE double ReduceAddD(F64 x) {
  const __m512d a = _mm512_add_pd(x.lo, x.hi);
  const __m256d b = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
  const __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
  return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}

// ---- Shapes of register tiles ----------------------------------------------------------------------------------------
// 32 registers. A tile's dot products or float sums take 24 of them, weights and a broadcast the others; the INT8 sums of
// a block, which are touched once for eight dots, then live in memory.
inline constexpr int kInt8Rows = 6, kSmallCodeRows = 6, kInt8Panels = 2;
inline constexpr int kInt8FewRows = 6, kInt8FewRowsPanels = 4;            // weights come from memory: more streams
inline constexpr int kSmallCodeFewRows = 8, kSmallCodeFewRowsPanels = 2;  // 8 × 2 dots, all sums in memory
inline constexpr int kFloatRows = 12, kFloatPanels = 2;
inline constexpr int kFloatFewRows = 4, kFloatFewRowsPanels = 4;
inline constexpr int kGemvPanels = 8;  // for a single row
inline constexpr int kAttentionRows = 8;

// ---- Bytes of quantised keys and values
// ----------------------------------------------------------------------------
QUIRE_INLINE I32 LoadUnsignedBytes(const std::byte* p) {  // 16 bytes
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
QUIRE_INLINE F32 LoadSignedBytes(const std::byte* p) {  // 16 bytes as floats
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
QUIRE_INLINE I32 UpperNibbles(I32 bytes) {
  return _mm512_srli_epi32(bytes, 4);
}
// 16 bytes of FP8 E4M3, times 2^-8: sign, exponent and mantissa stand in the place of an F16's, whose bias is 8 more.
// Of a NaN (all seven bits set) the sum carries into bit 14, which makes it a NaN of F16.
QUIRE_INLINE F32 LoadFp8(const std::byte* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xBF80)));
  const __m256i nan = _mm256_and_si256(_mm256_add_epi16(half, _mm256_set1_epi16(0x0080)), _mm256_set1_epi16(0x4000));
  return _mm512_cvtph_ps(_mm256_or_si256(half, nan));
}
// 16 bytes that are the upper halves of F16s: FP8 E5M2.
QUIRE_INLINE F32 LoadUpperHalves(const std::byte* p) {
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(_mm256_slli_epi16(bytes, 8));
}
// table[index] of 16 floats, for every lane.
QUIRE_INLINE F32 LookUp16(const float* table, I32 index) {
  return _mm512_permutexvar_ps(index, _mm512_loadu_ps(table));
}

// ---- Two of four
// -----------------------------------------------------------------------------------------------------
QUIRE_INLINE I32 XorI(I32 a, I32 b) {
  return _mm512_xor_si512(a, b);
}
// 32 bytes, eight to the lower half of each 128 bits.
QUIRE_INLINE I32 SpreadQuarters(const std::byte* p) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m512i places = _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0);
  return _mm512_permutexvar_epi64(places, _mm512_castsi256_si512(bytes));
}
// Four bytes for every lane, of the 128 bits that it lies in: those that table[index] names (index < 8), kStep further for
// each lane in its 128 bits; zero where it names 0x80.
template <int kStep>
QUIRE_INLINE I32 PickBytes(I32 source, const std::uint32_t* table, I32 index) {
  const __m512i picked = _mm512_permutexvar_epi32(index, _mm512_loadu_si512(table));
  constexpr int kFour = 0x01010101 * kStep;
  return _mm512_shuffle_epi8(source, _mm512_add_epi8(picked, _mm512_set4_epi32(3 * kFour, 2 * kFour, kFour, 0)));
}
