// Exponentials, sixteen at a time. Nothing here looks at a lane's neighbours, so a value's result does not
// depend on where in a vector it stands; tails run through the same code with the missing lanes zero.

// 2^f for f in [−1/2, 1/2]: 1 + f · P(f), P of degree 5 fitted for the smallest relative error, which is 2e-9
// and 1.6e-8 once the coefficients are floats. Rounding dominates: the last Fma rounds once, the one before
// adds 0.35 of that.
QUIRE_INLINE F32 Exp2Fraction(F32 f) {
  F32 p = SetF(0x1.41fbbcp-13f);
  p = Fma(p, f, SetF(0x1.5f3e52p-10f));
  p = Fma(p, f, SetF(0x1.3b2d4cp-7f));
  p = Fma(p, f, SetF(0x1.c6aee8p-5f));
  p = Fma(p, f, SetF(0x1.ebfbdcp-3f));
  p = Fma(p, f, SetF(0x1.62e430p-1f));
  return Fma(p, f, SetF(1));
}

// 2^n for integers −126 ≤ n ≤ 127.
QUIRE_INLINE F32 PowerOfTwo(I32 n) {
  return FloatOf(ToExponent(AddI(n, SetI(127))));
}

// 2^x for x ≤ 0, relative error ≤ 1.2e-7; below −126 exactly 0 (so a masked score of −∞ weighs nothing). NaN
// stays NaN.
QUIRE_INLINE F32 Exp2OfNonPositive(F32 x) {
  const Mask tiny = Less(x, SetF(-126));
  const F32 n = RoundF(x);
  const F32 y = Mul(Exp2Fraction(Sub(x, n)), PowerOfTwo(RoundToInt(n)));
  return Select(tiny, ZeroF(), y);
}

// e^x for every x, relative error ≤ 1.3e-7 where the result is normal; 0 and ∞ where e^x is out of range, NaN
// for NaN.
QUIRE_INLINE F32 Exp(F32 x) {
  // Max and Min return their second operand when it is NaN.
  const F32 bounded = Min(SetF(89), Max(SetF(-104), x));
  // log2(e) in two parts: the product with the upper one is exact where it matters, inside Fma.
  const F32 n = RoundF(Mul(bounded, SetF(0x1.715476p+0f)));
  const F32 f = Fma(bounded, SetF(0x1.4ae0cp-26f), Fma(bounded, SetF(0x1.715476p+0f), Sub(ZeroF(), n)));
  // 2^n in two factors, since −150 ≤ n ≤ 128 does not fit in one exponent.
  const I32 whole = RoundToInt(n), half = HalfI(whole);
  return Mul(Mul(Exp2Fraction(f), PowerOfTwo(half)), PowerOfTwo(SubI(whole, half)));
}
