// Dot products of pairs of BF16 weights with BF16 activations by vdpbf16ps: two products and their sum a
// lane, in F32, subnormals taken as zero.

using Element = std::uint16_t;  // what activations, queries and probabilities are kept as: bits of BF16
inline constexpr bool kBf16Activations = true;

using PairWeights = I32;
using PairInput = I32;
QUIRE_INLINE PairWeights PairsOf(I32 pairs) {
  return pairs;
}
QUIRE_INLINE PairWeights LoadPairs(const std::byte* p) {
  return _mm512_loadu_si512(p);
}
QUIRE_INLINE PairWeights LoadPartPairs(const std::byte* p,
                                       std::int64_t n) {  // the first n lanes, zeros after them
  return _mm512_maskz_loadu_epi32(FirstLanes(n), p);
}
QUIRE_INLINE PairWeights OnlyEven(PairWeights w) {
  return _mm512_and_si512(w, _mm512_set1_epi32(0xFFFF));
}
QUIRE_INLINE PairWeights OnlyOdd(PairWeights w) {
  return _mm512_and_si512(w, _mm512_set1_epi32(static_cast<std::int32_t>(0xFFFF0000)));
}
QUIRE_INLINE PairInput LoadPairInput(const Element* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, 4);
  return _mm512_set1_epi32(pair);
}
QUIRE_INLINE F32 DotPair(F32 sum, PairWeights w, PairInput a) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(a));
}
// Sixteen floats as elements, and what they are worth once they are.
QUIRE_INLINE void StoreElements(Element* p, F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
QUIRE_INLINE F32 RoundElements(F32 x) {
  const __m256i bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  return FloatOf(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
