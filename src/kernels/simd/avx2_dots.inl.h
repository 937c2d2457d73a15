// The dot products of the AVX2 tier; simd/avx512_codes.inl.h and simd/avx512_pairs.inl.h explain them.

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

using Element = float;
inline constexpr bool kBf16Activations = false;

struct PairWeights {
  F32 even, odd;
};
struct PairInput {
  F32 even, odd;
};
QUIRE_INLINE PairWeights SplitPairs(I32 pairs) {
  const __m256i upper = _mm256_set1_epi32(static_cast<std::int32_t>(0xFFFF0000));
  return {FloatOf({_mm256_slli_epi32(pairs.lo, 16), _mm256_slli_epi32(pairs.hi, 16)}),
          FloatOf({_mm256_and_si256(pairs.lo, upper), _mm256_and_si256(pairs.hi, upper)})};
}
QUIRE_INLINE PairWeights PairsOf(I32 pairs) {
  return SplitPairs(pairs);
}
QUIRE_INLINE PairWeights LoadPairs(const std::byte* p) {
  return SplitPairs(LoadI(p));
}
QUIRE_INLINE PairWeights LoadPartPairs(const std::byte* p,
                                       std::int64_t n) {  // the first n lanes, zeros after them
  return SplitPairs(BitsOf(LoadPartF(p, n)));
}
QUIRE_INLINE PairWeights OnlyEven(PairWeights w) {
  return {w.even, ZeroF()};
}
QUIRE_INLINE PairWeights OnlyOdd(PairWeights w) {
  return {ZeroF(), w.odd};
}
QUIRE_INLINE PairInput LoadPairInput(const Element* p) {
  return {SetF(p[0]), SetF(p[1])};
}
QUIRE_INLINE F32 DotPair(F32 sum, PairWeights w, PairInput a) {
  return Fma(w.odd, a.odd, Fma(w.even, a.even, sum));
}
QUIRE_INLINE void StoreElements(Element* p, F32 x) {
  StoreF(p, x);
}
QUIRE_INLINE F32 RoundElements(F32 x) {
  return x;
}
