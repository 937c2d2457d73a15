// Dot products of u8 codes with s8 activations without VNNI. vpmaddubsw adds two products with 16-bit saturation, so codes
// with the zero point 128 are made signed first, and their sign moved to the activation: |w − 128| ≤ 128 and |a| ≤ 127 keep
// the pair sum at 2 · 128 · 127 = 32,512. Smaller codes leave room for the products of several quads (QuadsInRun), which
// are added in 16 bits and widened once.

inline constexpr bool kDotSubtractsZeroPoint = true, kDotAccumulatesInHalves = true;

struct SignedCodes {
  __m512i magnitude;
  __mmask64 negative;
};
QUIRE_INLINE SignedCodes OffsetCodes(I32 codes) {
  const __m512i w = _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
  return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
}
QUIRE_INLINE I32 LoadQuad(const std::byte* p) {  // four activations in every lane
  std::int32_t quad;
  __builtin_memcpy(&quad, p, 4);
  return _mm512_set1_epi32(quad);
}
// Sums of products on their way from one quad of a run to the next.
struct DotSum {
  __m512i halves;
};
QUIRE_INLINE DotSum BeginRun(I32 /*dot*/) {
  return {_mm512_setzero_si512()};
}
QUIRE_INLINE DotSum DotRun(DotSum sum, I32 codes, I32 a) {
  return {_mm512_add_epi16(sum.halves, _mm512_maddubs_epi16(codes, a))};
}
QUIRE_INLINE DotSum DotRun(DotSum sum, SignedCodes codes, I32 a) {
  return DotRun(sum, codes.magnitude, _mm512_mask_sub_epi8(a, codes.negative, _mm512_setzero_si512(), a));
}
QUIRE_INLINE I32 EndRun(I32 dot, DotSum sum) {
  return _mm512_add_epi32(dot, _mm512_madd_epi16(sum.halves, _mm512_set1_epi16(1)));
}
