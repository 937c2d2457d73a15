// Dot products of u8 codes with s8 activations by vpdpbusd, which takes both as they are. The zero point is
// in the value that an accumulator starts from.

inline constexpr bool kDotSubtractsZeroPoint = false;

QUIRE_INLINE I32 LoadCodes(const std::byte* p) {
  return _mm512_loadu_si512(p);
}
QUIRE_INLINE I32 LoadSmallCodes(const std::byte* p) {
  return _mm512_loadu_si512(p);
}
QUIRE_INLINE I32 LoadQuad(const std::byte* p) {  // four activations in every lane
  std::int32_t quad;
  __builtin_memcpy(&quad, p, 4);
  return _mm512_set1_epi32(quad);
}
QUIRE_INLINE I32 Dot(I32 sum, I32 codes, I32 a) {
  return _mm512_dpbusd_epi32(sum, codes, a);
}
