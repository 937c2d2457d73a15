// How attention reads each type of keys and values (kernels/kv_layout.h): codes are expanded in registers, one vector
// of 16 tokens of a key channel, or of 16 dimensions of a value, for all rows of a tile. A cache says
//
//   QueryElement       what queries and probabilities are kept as
//   kChannelsPerStep   of a key, in kKeyStepBytes bytes for the 16 tokens of a tile
//   kTokensPerStep     of a value, in kValueVectorBytes bytes for 16 dimensions
//   kKeyUnit, kValueUnit  what a sum of products is still to be multiplied with: a power of two, so nothing is rounded
//   kChannelsPerGroup  of a key that share scale and minimum; 0: no groups
//   kScaledValues      whether values have scales, which then multiply the probabilities

struct Bf16Cache {
  static constexpr std::int64_t kChannelsPerStep = 2, kKeyStepBytes = 64;
  static constexpr std::int64_t kTokensPerStep = 2, kValueVectorBytes = 64;
  static constexpr std::int64_t kChannelsPerGroup = 0;
  static constexpr float kKeyUnit = 1, kValueUnit = 1;
  static constexpr bool kScaledValues = false;
  using QueryElement = Element;
  using Weights = PairWeights;
  QUIRE_INLINE static Weights LoadKey(const std::byte* p) { return LoadPairs(p); }
  QUIRE_INLINE static Weights LoadValue(const std::byte* p, std::int64_t vector, std::int64_t n) {
    return LoadPartPairs(p + vector * 64, n);
  }
  QUIRE_INLINE static F32 DotKey(F32 sum, Weights w, const Element* q) { return DotPair(sum, w, LoadPairInput(q)); }
  QUIRE_INLINE static F32 DotValue(F32 sum, Weights w, const Element* p) { return DotPair(sum, w, LoadPairInput(p)); }
  QUIRE_INLINE static F32 ScaleScore(F32 sum, const std::byte*) { return sum; }
  QUIRE_INLINE static Weights Only(Weights w, bool even, bool odd) {
    return even && odd ? w : even ? OnlyEven(w) : OnlyOdd(w);
  }
  QUIRE_INLINE static void Store(Element* p, F32 x) { StoreElements(p, x); }
  QUIRE_INLINE static F32 Round(F32 x) { return RoundElements(x); }
};

// One channel and one token a step, in F32.
struct FloatSteps {
  static constexpr std::int64_t kChannelsPerStep = 1, kTokensPerStep = 1;
  static constexpr std::int64_t kChannelsPerGroup = 0;
  static constexpr float kKeyUnit = 1, kValueUnit = 1;
  static constexpr bool kScaledValues = false;
  using QueryElement = float;
  using Weights = F32;
  QUIRE_INLINE static F32 DotKey(F32 sum, Weights w, const float* q) { return Fma(w, SetF(*q), sum); }
  QUIRE_INLINE static F32 DotValue(F32 sum, Weights w, const float* p) { return Fma(w, SetF(*p), sum); }
  QUIRE_INLINE static F32 ScaleScore(F32 sum, const std::byte*) { return sum; }
  QUIRE_INLINE static Weights Only(Weights w, bool, bool) { return w; }
  QUIRE_INLINE static void Store(float* p, F32 x) { StoreF(p, x); }
  QUIRE_INLINE static F32 Round(F32 x) { return x; }
};

struct F32Cache : FloatSteps {
  static constexpr std::int64_t kKeyStepBytes = 64, kValueVectorBytes = 64;
  QUIRE_INLINE static Weights LoadKey(const std::byte* p) { return LoadF(p); }
  QUIRE_INLINE static Weights LoadValue(const std::byte* p, std::int64_t vector, std::int64_t n) {
    return LoadPartF(p + vector * 64, n);
  }
};

// Values are padded to whole vectors.
struct Fp8Cache : FloatSteps {
  static constexpr std::int64_t kKeyStepBytes = 16, kValueVectorBytes = 16;
  static constexpr float kKeyUnit = 256, kValueUnit = 256;
  QUIRE_INLINE static Weights LoadKey(const std::byte* p) { return LoadFp8(p); }
  QUIRE_INLINE static Weights LoadValue(const std::byte* p, std::int64_t vector, std::int64_t) {
    return LoadFp8(p + vector * 16);
  }
};

struct Int8Cache : FloatSteps {
  static constexpr std::int64_t kKeyStepBytes = 16, kValueVectorBytes = 16;
  static constexpr bool kScaledValues = true;
  QUIRE_INLINE static Weights LoadKey(const std::byte* p) { return LoadSignedBytes(p); }
  QUIRE_INLINE static Weights LoadValue(const std::byte* p, std::int64_t vector, std::int64_t) {
    return LoadSignedBytes(p + vector * 16);
  }
  QUIRE_INLINE static F32 ScaleScore(F32 sum, const std::byte* scales) { return Mul(sum, LoadF(scales)); }
  QUIRE_INLINE static F32 ScaleWeight(F32 p, const std::byte* scales) { return Mul(p, LoadF(scales)); }
};

// q · (scale · code + min) = scale · Σ q · code + min · Σ q, group by group; of values likewise, with Σ p · min.
struct Int4Cache : FloatSteps {
  static constexpr std::int64_t kChannelsPerStep = 2, kKeyStepBytes = 16;
  static constexpr std::int64_t kValueVectorBytes = 8;  // two vectors share 16 bytes
  static constexpr std::int64_t kChannelsPerGroup = KvLayout::channels_group;
  static constexpr std::int64_t kGroupScaleBytes = 64;
  static constexpr bool kScaledValues = true;
  struct Pair {
    F32 even, odd;
  };
  QUIRE_INLINE static F32 Lower(I32 bytes) { return ToFloat(AndI(bytes, SetI(15))); }
  QUIRE_INLINE static F32 Upper(I32 bytes) { return ToFloat(UpperNibbles(bytes)); }
  QUIRE_INLINE static Pair LoadKey(const std::byte* p) {
    const I32 bytes = LoadUnsignedBytes(p);
    return {Lower(bytes), Upper(bytes)};
  }
  QUIRE_INLINE static F32 DotKey(F32 sum, Pair w, const float* q) {
    return Fma(w.odd, SetF(q[1]), Fma(w.even, SetF(q[0]), sum));
  }
  QUIRE_INLINE static F32 AddGroup(F32 before, F32 sum, const std::byte* scales, float query_sum) {
    return Fma(sum, LoadF16(scales), Fma(LoadF16(scales + 32), SetF(query_sum), before));
  }
  QUIRE_INLINE static Weights LoadValue(const std::byte* p, std::int64_t vector, std::int64_t) {
    const I32 bytes = LoadUnsignedBytes(p);
    return vector == 0 ? Lower(bytes) : Upper(bytes);
  }
  QUIRE_INLINE static F32 ScaleWeight(F32 p, const std::byte* scales) { return Mul(p, LoadF16(scales)); }
  QUIRE_INLINE static F32 WeighMin(F32 p, const std::byte* scales) { return Mul(p, LoadF16(scales + 32)); }
};
