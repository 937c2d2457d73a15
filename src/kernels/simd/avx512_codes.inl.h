// Dot products of u8 codes with s8 activations without VNNI. vpmaddubsw adds two products with 16-bit
// saturation, so codes with a zero point are made signed first, and their sign moved to the activation: |w −
// 128| ≤ 128 and |a| ≤ 127 keep the pair sum at 2 · 128 · 127 = 32,512. Codes without one are ≤ 127 (see
// PackPanel): 32,258.

inline constexpr bool kDotSubtractsZeroPoint = true;

struct SignedCodes {
  __m512i magnitude;
  __mmask64 negative;
};
QUIRE_INLINE SignedCodes LoadCodes(const std::byte* p) {
  const __m512i w = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(static_cast<char>(0x80)));
  return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
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
  return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, a), _mm512_set1_epi16(1)));
}
QUIRE_INLINE I32 Dot(I32 sum, SignedCodes codes, I32 a) {
  return Dot(sum, codes.magnitude, _mm512_mask_sub_epi8(a, codes.negative, _mm512_setzero_si512(), a));
}
