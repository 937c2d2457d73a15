// The vocabulary of the AVX2 tier (with FMA and F16C): sixteen lanes are two registers. Included inside the
// namespace and the target region of the tier; simd/avx512.inl.h gives the same names the same meaning, and
// docs/kernels.md lists them. Results of all functions are the same bits on every tier, for every input.

struct F32 {  // lanes 0–7, 8–15
  __m256 lo, hi;
};
struct I32 {
  __m256i lo, hi;
};
struct Mask {  // all bits of a lane, or none
  __m256i lo, hi;
};
struct F64 {  // lanes 0–3, 4–7, 8–11, 12–15
  __m256d a, b, c, d;
};

inline constexpr std::int64_t kLanes = 16;

// ---- Float lanes
// ---------------------------------------------------------------------------------------------------
QUIRE_INLINE const float* Floats(const void* p) {
  return static_cast<const float*>(p);
}
QUIRE_INLINE float* Floats(void* p) {
  return static_cast<float*>(p);
}
QUIRE_INLINE F32 ZeroF() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
QUIRE_INLINE F32 SetF(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
QUIRE_INLINE F32 LoadF(const void* p) {
  return {_mm256_loadu_ps(Floats(p)),
          _mm256_loadu_ps(reinterpret_cast<const float*>(static_cast<const std::byte*>(p) + 32))};
}
QUIRE_INLINE void StoreF(void* p, F32 x) {
  _mm256_storeu_ps(Floats(p), x.lo);
  _mm256_storeu_ps(reinterpret_cast<float*>(static_cast<std::byte*>(p) + 32), x.hi);
}
QUIRE_INLINE Mask FirstLanes(std::int64_t n) {  // 0 ≤ n ≤ 16
  const __m256i count = _mm256_set1_epi32(static_cast<std::int32_t>(n));
  return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
          _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
// The first n lanes of memory, the others zero and not touched.
QUIRE_INLINE F32 LoadPartF(const void* p, std::int64_t n) {
  if (n == 16) return LoadF(p);
  const Mask m = FirstLanes(n);
  return {_mm256_maskload_ps(Floats(p), m.lo),
          _mm256_maskload_ps(reinterpret_cast<const float*>(static_cast<const std::byte*>(p) + 32), m.hi)};
}
QUIRE_INLINE void StorePartF(void* p, F32 x, std::int64_t n) {
  if (n == 16) return StoreF(p, x);
  const Mask m = FirstLanes(n);
  _mm256_maskstore_ps(Floats(p), m.lo, x.lo);
  _mm256_maskstore_ps(reinterpret_cast<float*>(static_cast<std::byte*>(p) + 32), m.hi, x.hi);
}
QUIRE_INLINE F32 LoadF16(const void* p) {  // 16 FP16 values
  const auto* halves = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
QUIRE_INLINE F32 Add(F32 a, F32 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
QUIRE_INLINE F32 Sub(F32 a, F32 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
QUIRE_INLINE F32 Mul(F32 a, F32 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
QUIRE_INLINE F32 Div(F32 a, F32 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
QUIRE_INLINE F32 Fma(F32 a, F32 b, F32 c) {  // a·b + c
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
QUIRE_INLINE F32 Fnma(F32 a, F32 b, F32 c) {  // c − a·b
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
QUIRE_INLINE F32 Max(F32 a, F32 b) {  // b when either is NaN
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
QUIRE_INLINE F32 Min(F32 a, F32 b) {  // b when either is NaN
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
QUIRE_INLINE F32 RoundF(F32 a) {  // to the nearest integer, half to even
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

// ---- Integer lanes
// -------------------------------------------------------------------------------------------------
QUIRE_INLINE I32 ZeroI() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
QUIRE_INLINE I32 SetI(std::int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
QUIRE_INLINE I32 AddI(I32 a, I32 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
QUIRE_INLINE I32 SubI(I32 a, I32 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
QUIRE_INLINE I32 AndI(I32 a, I32 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
QUIRE_INLINE I32 OrI(I32 a, I32 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
QUIRE_INLINE I32 MaxU(I32 a, I32 b) {  // as unsigned
  return {_mm256_max_epu32(a.lo, b.lo), _mm256_max_epu32(a.hi, b.hi)};
}
QUIRE_INLINE I32 HalfI(I32 a) {
  return {_mm256_srai_epi32(a.lo, 1), _mm256_srai_epi32(a.hi, 1)};
}
QUIRE_INLINE I32 ToExponent(I32 a) {
  return {_mm256_slli_epi32(a.lo, 23), _mm256_slli_epi32(a.hi, 23)};
}
QUIRE_INLINE I32 LowerHalvesUp(I32 a) {  // the lower 16 bits of a lane in the place of the upper ones
  return {_mm256_slli_epi32(a.lo, 16), _mm256_slli_epi32(a.hi, 16)};
}
QUIRE_INLINE F32 ToFloat(I32 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
QUIRE_INLINE I32 RoundToInt(F32 a) {  // half to even
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
QUIRE_INLINE I32 BitsOf(F32 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
QUIRE_INLINE F32 FloatOf(I32 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
QUIRE_INLINE void StoreCodes(std::int8_t* p, I32 a) {  // 16 integers that fit as 16 bytes
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xD8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// ---- Bytes of integer lanes
// -----------------------------------------------------------------------------------------
QUIRE_INLINE I32 LoadI(const void* p) {
  const auto* halves = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
QUIRE_INLINE void StoreI(void* p, I32 a) {
  auto* halves = static_cast<__m256i*>(p);
  _mm256_storeu_si256(halves, a.lo);
  _mm256_storeu_si256(halves + 1, a.hi);
}
QUIRE_INLINE I32 SetBytes(int x) {
  return {_mm256_set1_epi8(static_cast<char>(x)), _mm256_set1_epi8(static_cast<char>(x))};
}
// Of 16-bit lanes: bits move from byte to byte, and whoever shifts masks them.
template <int n>
QUIRE_INLINE I32 ShiftLeft16(I32 a) {
  return {_mm256_slli_epi16(a.lo, n), _mm256_slli_epi16(a.hi, n)};
}
template <int n>
QUIRE_INLINE I32 ShiftRight16(I32 a) {
  return {_mm256_srli_epi16(a.lo, n), _mm256_srli_epi16(a.hi, n)};
}
template <int n>
QUIRE_INLINE I32 ShiftRightI(I32 a) {  // arithmetic, 32-bit lanes
  return {_mm256_srai_epi32(a.lo, n), _mm256_srai_epi32(a.hi, n)};
}
// table[index] + 128 for every byte; indices are below 16.
QUIRE_INLINE I32 LookUpBytes(const std::int8_t* table, I32 index) {
  const __m256i values =
      _mm256_xor_si256(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))),
                       _mm256_set1_epi8(static_cast<char>(0x80)));
  return {_mm256_shuffle_epi8(values, index.lo), _mm256_shuffle_epi8(values, index.hi)};
}

// ---- Masks
// ---------------------------------------------------------------------------------------------------------
QUIRE_INLINE Mask Less(F32 a, F32 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
QUIRE_INLINE Mask Equal(F32 a, F32 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ))};
}
QUIRE_INLINE F32 Select(Mask m, F32 yes, F32 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_castsi256_ps(m.lo)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_castsi256_ps(m.hi))};
}
QUIRE_INLINE Mask LanesBetween(std::int64_t begin, std::int64_t end) {  // 0 ≤ begin ≤ end ≤ 16
  const Mask below_begin = FirstLanes(begin), below_end = FirstLanes(end);
  return {_mm256_andnot_si256(below_begin.lo, below_end.lo), _mm256_andnot_si256(below_begin.hi, below_end.hi)};
}
QUIRE_INLINE unsigned MaskBits(Mask m) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(m.lo))) |
         static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(m.hi))) << 8;
}

// ---- Across lanes: halves are folded onto each other, 16 → 8 → 4 → 2 → 1
// ---------------------------------------------
QUIRE_INLINE float ReduceAdd(F32 x) {
  const __m256 a = _mm256_add_ps(x.lo, x.hi);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
QUIRE_INLINE float ReduceMax(F32 x) {
  const __m256 a = _mm256_max_ps(x.lo, x.hi);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
QUIRE_INLINE std::uint32_t ReduceMaxU(I32 x) {
  const __m256i a = _mm256_max_epu32(x.lo, x.hi);
  const __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i c = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4E));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(c, _mm_shuffle_epi32(c, 0xB1))));
}
QUIRE_INLINE std::int32_t ReduceAddI(I32 x) {
  const __m256i a = _mm256_add_epi32(x.lo, x.hi);
  const __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i c = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

// ---- Double lanes
// --------------------------------------------------------------------------------------------------
QUIRE_INLINE F64 ZeroD() {
  return {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
}
QUIRE_INLINE F64 AddWidened(F64 sum, F32 x) {
  return {_mm256_add_pd(sum.a, _mm256_cvtps_pd(_mm256_castps256_ps128(x.lo))),
          _mm256_add_pd(sum.b, _mm256_cvtps_pd(_mm256_extractf128_ps(x.lo, 1))),
          _mm256_add_pd(sum.c, _mm256_cvtps_pd(_mm256_castps256_ps128(x.hi))),
          _mm256_add_pd(sum.d, _mm256_cvtps_pd(_mm256_extractf128_ps(x.hi, 1)))};
}
QUIRE_INLINE double ReduceAddD(F64 x) {
  const __m256d b = _mm256_add_pd(_mm256_add_pd(x.a, x.c), _mm256_add_pd(x.b, x.d));
  const __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
  return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}

// ---- Shapes of register tiles ----------------------------------------------------------------------------------------
// 16 registers, and a panel is two of them.
inline constexpr int kInt8Rows = 2, kSmallCodeRows = 4, kInt8Panels = 1;
inline constexpr int kInt8FewRows = 2, kInt8FewRowsPanels = 1;
inline constexpr int kSmallCodeFewRows = 4, kSmallCodeFewRowsPanels = 1;
inline constexpr int kFloatRows = 6, kFloatPanels = 1;
inline constexpr int kFloatFewRows = 2, kFloatFewRowsPanels = 2;
inline constexpr int kGemvPanels = 4;  // for a single row
inline constexpr int kAttentionRows = 4;

// ---- Bytes of quantised keys and values
// ----------------------------------------------------------------------------
QUIRE_INLINE I32 LoadUnsignedBytes(const std::byte* p) {  // 16 bytes
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
QUIRE_INLINE F32 LoadSignedBytes(const std::byte* p) {  // 16 bytes as floats
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
QUIRE_INLINE I32 UpperNibbles(I32 bytes) {
  return {_mm256_srli_epi32(bytes.lo, 4), _mm256_srli_epi32(bytes.hi, 4)};
}
// 16 bytes of FP8 E4M3, times 2^-8: sign, exponent and mantissa stand in the place of an F16's, whose bias is 8 more.
// Of a NaN (all seven bits set) the sum carries into bit 14, which makes it a NaN of F16.
QUIRE_INLINE F32 LoadFp8(const std::byte* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xBF80)));
  const __m256i nan = _mm256_and_si256(_mm256_add_epi16(half, _mm256_set1_epi16(0x0080)), _mm256_set1_epi16(0x4000));
  const __m256i f16 = _mm256_or_si256(half, nan);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(f16)), _mm256_cvtph_ps(_mm256_extracti128_si256(f16, 1))};
}
// 16 bytes that are the upper halves of F16s: FP8 E5M2.
QUIRE_INLINE F32 LoadUpperHalves(const std::byte* p) {
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i f16 = _mm256_slli_epi16(bytes, 8);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(f16)), _mm256_cvtph_ps(_mm256_extracti128_si256(f16, 1))};
}
QUIRE_INLINE __m256 LookUpHalf(const float* table, __m256i index) {
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));  // bit 3 becomes the sign
}
// table[index] of 16 floats, for every lane.
QUIRE_INLINE F32 LookUp16(const float* table, I32 index) {
  return {LookUpHalf(table, index.lo), LookUpHalf(table, index.hi)};
}

// ---- Two of four
// -----------------------------------------------------------------------------------------------------
QUIRE_INLINE I32 XorI(I32 a, I32 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
// 32 bytes, eight to the lower half of each 128 bits.
QUIRE_INLINE I32 SpreadQuarters(const std::byte* p) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_permute4x64_epi64(_mm256_castsi128_si256(_mm_loadu_si128(halves)), 0x50),
          _mm256_permute4x64_epi64(_mm256_castsi128_si256(_mm_loadu_si128(halves + 1)), 0x50)};
}
template <int kStep>
QUIRE_INLINE __m256i PickHalf(__m256i source, const std::uint32_t* table, __m256i index) {
  const __m256i picked =
      _mm256_permutevar8x32_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(table)), index);
  constexpr int kFour = 0x01010101 * kStep;
  return _mm256_shuffle_epi8(source, _mm256_add_epi8(picked, _mm256_setr_epi32(0, kFour, 2 * kFour, 3 * kFour, 0, kFour,
                                                                               2 * kFour, 3 * kFour)));
}
// Four bytes for every lane, of the 128 bits that it lies in: those that table[index] names (index < 8), kStep further for
// each lane in its 128 bits; zero where it names 0x80.
template <int kStep>
QUIRE_INLINE I32 PickBytes(I32 source, const std::uint32_t* table, I32 index) {
  return {PickHalf<kStep>(source.lo, table, index.lo), PickHalf<kStep>(source.hi, table, index.hi)};
}
