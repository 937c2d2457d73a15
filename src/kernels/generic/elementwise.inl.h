// Norms, rotation, activation functions and reductions. Tails run through the same vector code as the rest,
// with the missing lanes zero, so that an element's result does not depend on where it stands.

// Calls body(i, count) for [0, n) in pieces of 16 and a last one of `count` < 16.
template <typename Body>
QUIRE_INLINE void ForLanes(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}

// Σ x², element i in lane i mod 64 of four accumulators, which are added pairwise.
inline float SumOfSquares(const float* x, std::int64_t n) {
  F32 sum[4] = {ZeroF(), ZeroF(), ZeroF(), ZeroF()};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
      const F32 v = LoadF(x + i + j * kLanes);
      sum[j] = Fma(v, v, sum[j]);
    }
  }
  QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
    const std::int64_t left = n - i - j * kLanes;
    if (left <= 0) break;
    const F32 v = LoadPartF(x + i + j * kLanes, left < kLanes ? left : kLanes);
    sum[j] = Fma(v, v, sum[j]);
  }
  return ReduceAdd(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}

inline void NormRow(const float* x, const float* weight, float eps, std::int64_t n, float* y) {
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const F32 inverse = SetF(1.0f / __builtin_sqrtf(mean + eps));
  ForLanes(n, [&](std::int64_t i, std::int64_t count) {
    StorePartF(y + i, Mul(Mul(LoadPartF(x + i, count), inverse), LoadPartF(weight + i, count)), count);
  });
}

inline void RmsNorm(const float* x, const float* weight, float eps, std::int64_t num_rows, std::int64_t n,
                    std::int64_t ld_x, std::int64_t ld_y, float* y) {
  for (std::int64_t r = 0; r < num_rows; ++r) NormRow(x + r * ld_x, weight, eps, n, y + r * ld_y);
}

inline void AddValues(float* x, const float* y, std::int64_t n) {
  ForLanes(n, [&](std::int64_t i, std::int64_t count) {
    StorePartF(x + i, Add(LoadPartF(x + i, count), LoadPartF(y + i, count)), count);
  });
}

inline void AddRmsNorm(float* x, const float* delta, const float* weight, float eps, std::int64_t num_rows,
                       std::int64_t n, float* y) {
  for (std::int64_t r = 0; r < num_rows; ++r, x += n, delta += n, y += n) {
    AddValues(x, delta, n);
    NormRow(x, weight, eps, n, y);
  }
}

inline void AddBias(float* x, const float* bias, std::int64_t num_rows, std::int64_t n, std::int64_t ld_x) {
  for (std::int64_t r = 0; r < num_rows; ++r) AddValues(x + r * ld_x, bias, n);
}

inline void Rope(float* x, std::int64_t num_tokens, std::int64_t num_heads, std::int64_t head_dim,
                 std::int64_t rotary_dim, std::int64_t stride, const float* cos, const float* sin) {
  const std::int64_t half = rotary_dim / 2;
  for (std::int64_t t = 0; t < num_tokens; ++t, x += stride, cos += half, sin += half) {
    for (std::int64_t h = 0; h < num_heads; ++h) {
      float* first = x + h * head_dim;
      float* second = first + half;
      ForLanes(half, [&](std::int64_t i, std::int64_t count) {
        const F32 a = LoadPartF(first + i, count), b = LoadPartF(second + i, count);
        const F32 c = LoadPartF(cos + i, count), s = LoadPartF(sin + i, count);
        StorePartF(first + i, Fnma(b, s, Mul(a, c)), count);
        StorePartF(second + i, Fma(a, s, Mul(b, c)), count);
      });
    }
  }
}

inline void SiluMul(const float* gate_up, std::int64_t num_rows, std::int64_t n, float* out) {
  for (std::int64_t r = 0; r < num_rows; ++r, gate_up += 2 * n, out += n) {
    ForLanes(n, [&](std::int64_t i, std::int64_t count) {
      const F32 gate = LoadPartF(gate_up + i, count), up = LoadPartF(gate_up + n + i, count);
      const F32 silu = Div(gate, Add(SetF(1), Exp(Sub(ZeroF(), gate))));
      StorePartF(out + i, Mul(silu, up), count);
    });
  }
}

// The largest value first, then the first place that has it: two passes over data that the caches hold.
inline float MaxValue(const float* x, std::int64_t n, std::int64_t* index) {
  const F32 lowest = SetF(-__builtin_inff());
  F32 best[4] = {lowest, lowest, lowest, lowest};
  std::int64_t i = 0;
  // Max returns its second operand when the first is NaN, so NaN never gets in.
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    QUIRE_UNROLL for (int j = 0; j < 4; ++j) best[j] = Max(LoadF(x + i + j * kLanes), best[j]);
  }
  for (; i < n; i += kLanes) {
    const std::int64_t count = n - i < kLanes ? n - i : kLanes;
    best[0] = Max(Select(FirstLanes(count), LoadPartF(x + i, count), lowest), best[0]);
  }
  const F32 largest = SetF(ReduceMax(Max(Max(best[0], best[1]), Max(best[2], best[3]))));
  *index = 0;  // stays when all is NaN
  for (i = 0; i < n; i += kLanes) {
    const std::int64_t count = n - i < kLanes ? n - i : kLanes;
    const unsigned found = MaskBits(Equal(LoadPartF(x + i, count), largest)) & ((1u << count) - 1);
    if (found != 0) {
      *index = i + __builtin_ctz(found);
      break;
    }
  }
  return x[*index];
}

inline double SumExp(const float* x, std::int64_t n, float offset, float scale) {
  F64 sum = ZeroD();
  ForLanes(n, [&](std::int64_t i, std::int64_t count) {
    const F32 y = Exp(Mul(Sub(LoadPartF(x + i, count), SetF(offset)), SetF(scale)));
    sum = AddWidened(sum, Select(FirstLanes(count), y, ZeroF()));
  });
  return ReduceAddD(sum);
}
