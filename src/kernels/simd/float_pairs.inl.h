// Dot products of pairs of BF16 weights without BF16 instructions, in terms of a tier's vocabulary: a BF16 is the upper
// half of a float, so both halves of a lane become floats with a shift and a mask, and activations stay F32.

using Element = float;  // what activations, queries and probabilities are kept as
inline constexpr bool kBf16Activations = false;

struct PairWeights {
  F32 even, odd;
};
struct PairInput {
  F32 even, odd;
};
QUIRE_INLINE PairWeights PairsOf(I32 pairs) {
  return {FloatOf(LowerHalvesUp(pairs)), FloatOf(AndI(pairs, SetI(static_cast<std::int32_t>(0xFFFF0000))))};
}
QUIRE_INLINE PairWeights LoadPairs(const std::byte* p) {
  return PairsOf(LoadI(p));
}
QUIRE_INLINE PairWeights LoadPartPairs(const std::byte* p,
                                       std::int64_t n) {  // the first n lanes, zeros after them
  return PairsOf(BitsOf(LoadPartF(p, n)));
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
// Sixteen floats as elements, and what they are worth once they are.
QUIRE_INLINE void StoreElements(Element* p, F32 x) {
  StoreF(p, x);
}
QUIRE_INLINE F32 RoundElements(F32 x) {
  return x;
}
