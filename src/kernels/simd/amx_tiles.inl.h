// What the tier with matrix tiles adds to the vocabulary of AVX-512.

inline constexpr bool kMatrixTiles = true;

// While it lives, vector instructions of this thread take subnormals as zero, as tiles do.
class SubnormalsAreZero {
 public:
  QUIRE_INLINE SubnormalsAreZero() : before_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(before_ | 0x8040);  // results, and operands too
  }
  QUIRE_INLINE ~SubnormalsAreZero() { __builtin_ia32_ldmxcsr(before_); }
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;

 private:
  unsigned before_;
};

// body(0), body(1), … as constants.
template <int kCount, typename Body>
QUIRE_INLINE void ForConstants(Body body) {
  [&]<int... i>(std::integer_sequence<int, i...>)
      QUIRE_LAMBDA { (body(std::integral_constant<int, i>()), ...); }(std::make_integer_sequence<int, kCount>());
}

// Sixteen floats rounded to BF16, half to even, subnormals to zero.
QUIRE_INLINE void StoreElements(std::uint16_t* p, F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
QUIRE_INLINE I32 SubBytes(I32 a, I32 b) {
  return _mm512_sub_epi8(a, b);
}
