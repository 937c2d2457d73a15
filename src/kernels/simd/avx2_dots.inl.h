// The dot products of the AVX2 tier; simd/avx512_codes.inl.h explains them.

inline constexpr bool kDotSubtractsZeroPoint = true, kDotAccumulatesInHalves = true;

struct SignedCodes {
  I32 value, magnitude;
};
QUIRE_INLINE SignedCodes OffsetCodes(I32 codes) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  const I32 value = {_mm256_xor_si256(codes.lo, flip), _mm256_xor_si256(codes.hi, flip)};
  return {value, {_mm256_abs_epi8(value.lo), _mm256_abs_epi8(value.hi)}};
}
QUIRE_INLINE __m256i LoadQuad(const std::byte* p) {  // four activations in every lane
  std::int32_t quad;
  __builtin_memcpy(&quad, p, 4);
  return _mm256_set1_epi32(quad);
}
struct DotSum {
  __m256i lo, hi;
};
QUIRE_INLINE DotSum BeginRun(I32 /*dot*/) {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
QUIRE_INLINE DotSum DotRun(DotSum sum, I32 codes, __m256i a) {
  return {_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(codes.lo, a)),
          _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(codes.hi, a))};
}
QUIRE_INLINE DotSum DotRun(DotSum sum, SignedCodes codes, __m256i a) {
  return {_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(codes.magnitude.lo, _mm256_sign_epi8(a, codes.value.lo))),
          _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(codes.magnitude.hi, _mm256_sign_epi8(a, codes.value.hi)))};
}
QUIRE_INLINE I32 EndRun(I32 dot, DotSum sum) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_add_epi32(dot.lo, _mm256_madd_epi16(sum.lo, ones)),
          _mm256_add_epi32(dot.hi, _mm256_madd_epi16(sum.hi, ones))};
}
