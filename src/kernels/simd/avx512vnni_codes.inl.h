// Dot products of u8 codes with s8 activations by vpdpbusd, which takes both as they are and adds to 32-bit sums. Zero
// points are in the value that an accumulator starts from.

inline constexpr bool kDotSubtractsZeroPoint = false, kDotAccumulatesInHalves = false;

QUIRE_INLINE I32 OffsetCodes(I32 codes) {
  return codes;
}
QUIRE_INLINE I32 LoadQuad(const std::byte* p) {  // four activations in every lane
  std::int32_t quad;
  __builtin_memcpy(&quad, p, 4);
  return _mm512_set1_epi32(quad);
}
using DotSum = I32;
QUIRE_INLINE DotSum BeginRun(I32 dot) {
  return dot;
}
QUIRE_INLINE DotSum DotRun(DotSum sum, I32 codes, I32 a) {
  return _mm512_dpbusd_epi32(sum, codes, a);
}
QUIRE_INLINE I32 EndRun(I32 /*dot*/, DotSum sum) {
  return sum;
}
