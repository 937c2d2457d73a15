// The memory-bound pieces of a training step, fused: AVX-512 with bf16 activations, fp32 arithmetic.
// build: gcc -O3 -march=native -ffast-math -fopenmp -shared -fPIC fused.c -o fused.so -lm
#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned short bf;
typedef __m512 v16;
enum { D = 64 };  // head size
#define LD(p) _mm512_loadu_ps(p)
#define ST(p, v) _mm512_storeu_ps(p, v)
#define SET(x) _mm512_set1_ps(x)
static inline v16 ldb(const bf* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void*)p)), 16));
}
static inline void stb(bf* p, v16 v) {
  _mm256_storeu_si256((void*)p, (__m256i)_mm512_cvtneps_pbh(v));
}
static inline float f32(bf x) {
  union {
    unsigned u;
    float f;
  } c = {(unsigned)x << 16};
  return c.f;
}
static inline v16 vexp(v16 x) {
  v16 t = _mm512_mul_ps(x, SET(1.44269504f)), n = _mm512_roundscale_ps(t, 0), f = _mm512_sub_ps(t, n);
  v16 p = SET(1.540353e-4f);
  p = _mm512_fmadd_ps(p, f, SET(1.333356e-3f));
  p = _mm512_fmadd_ps(p, f, SET(9.618129e-3f));
  p = _mm512_fmadd_ps(p, f, SET(5.550411e-2f));
  p = _mm512_fmadd_ps(p, f, SET(2.402265e-1f));
  p = _mm512_fmadd_ps(p, f, SET(6.931472e-1f));
  p = _mm512_fmadd_ps(p, f, SET(1.f));
  return _mm512_scalef_ps(p, n);
}

void to_bf16(const float* x, bf* y, long n) {
#pragma omp parallel for
  for (long i = 0; i < n; i += 16) stb(y + i, LD(x + i));
}
void add_bf16(float* x, const bf* y, long n) {  // x += y
#pragma omp parallel for
  for (long i = 0; i < n; i += 16) ST(x + i, _mm512_add_ps(LD(x + i), ldb(y + i)));
}

void rms_fwd(const float* x, const float* w, bf* y, float* rstd, long n, int c, float eps) {
#pragma omp parallel for
  for (long i = 0; i < n; i++) {
    v16 s = SET(0);
    for (int j = 0; j < c; j += 16) s = _mm512_fmadd_ps(LD(x + i * c + j), LD(x + i * c + j), s);
    float r = 1.f / sqrtf(_mm512_reduce_add_ps(s) / c + eps);
    rstd[i] = r;
    for (int j = 0; j < c; j += 16)
      stb(y + i * c + j, _mm512_mul_ps(_mm512_mul_ps(LD(x + i * c + j), SET(r)), LD(w + j)));
  }
}
// dx += gradient; dw += gradient
void rms_bwd(const float* x, const float* w, const float* rstd, const bf* dy, float* dx, float* dw, long n, int c) {
#pragma omp parallel
  {
    float* g = calloc(c, 4);
#pragma omp for
    for (long i = 0; i < n; i++) {
      const float* xi = x + i * c;
      v16 s = SET(0), r = SET(rstd[i]);
      for (int j = 0; j < c; j += 16) {
        v16 d = ldb(dy + i * c + j), h = _mm512_mul_ps(LD(xi + j), r);
        s = _mm512_fmadd_ps(_mm512_mul_ps(d, LD(w + j)), h, s);
        ST(g + j, _mm512_fmadd_ps(d, h, LD(g + j)));
      }
      v16 m = SET(_mm512_reduce_add_ps(s) / c);
      for (int j = 0; j < c; j += 16) {
        v16 d = _mm512_mul_ps(ldb(dy + i * c + j), LD(w + j)), h = _mm512_mul_ps(LD(xi + j), r);
        float* o = dx + i * c + j;
        ST(o, _mm512_fmadd_ps(r, _mm512_fnmadd_ps(h, m, d), LD(o)));
      }
    }
#pragma omp critical
    for (int j = 0; j < c; j++) dw[j] += g[j];
    free(g);
  }
}

// a = silu(gate) * up, rows of gu are [gate f, up f]
void swiglu_fwd(const bf* gu, bf* a, long n, int f) {
#pragma omp parallel for
  for (long i = 0; i < n; i++)
    for (int j = 0; j < f; j += 16) {
      v16 g = ldb(gu + i * 2 * f + j), u = ldb(gu + i * 2 * f + f + j);
      v16 s = _mm512_div_ps(g, _mm512_add_ps(SET(1), vexp(_mm512_sub_ps(SET(0), g))));
      stb(a + i * f + j, _mm512_mul_ps(s, u));
    }
}
void swiglu_bwd(const bf* gu, const bf* da, bf* dgu, long n, int f) {
#pragma omp parallel for
  for (long i = 0; i < n; i++)
    for (int j = 0; j < f; j += 16) {
      v16 g = ldb(gu + i * 2 * f + j), u = ldb(gu + i * 2 * f + f + j), d = ldb(da + i * f + j);
      v16 s = _mm512_div_ps(SET(1), _mm512_add_ps(SET(1), vexp(_mm512_sub_ps(SET(0), g))));
      v16 gs = _mm512_mul_ps(g, s), ds = _mm512_fmadd_ps(gs, _mm512_sub_ps(SET(1), s), s);
      stb(dgu + i * 2 * f + j, _mm512_mul_ps(_mm512_mul_ps(d, u), ds));
      stb(dgu + i * 2 * f + f + j, _mm512_mul_ps(d, gs));
    }
}

// Weighted cross entropy; logits are overwritten by their gradient when grad is set. Losses go to loss[i].
void xent(bf* logits, const int* target, const float* weight, float* loss, long n, int v, int grad) {
#pragma omp parallel for schedule(dynamic, 64)
  for (long i = 0; i < n; i++) {
    bf* l = logits + i * v;
    v16 m = ldb(l), s = SET(0);
    for (int j = 16; j < v; j += 16) m = _mm512_max_ps(m, ldb(l + j));
    float mx = _mm512_reduce_max_ps(m);
    for (int j = 0; j < v; j += 16) s = _mm512_add_ps(s, vexp(_mm512_sub_ps(ldb(l + j), SET(mx))));
    float sum = _mm512_reduce_add_ps(s), t = f32(l[target[i]]), w = weight[i];
    loss[i] = logf(sum) + mx - t;
    if (!grad) continue;
    for (int j = 0; j < v; j += 16) stb(l + j, _mm512_mul_ps(vexp(_mm512_sub_ps(ldb(l + j), SET(mx))), SET(w / sum)));
    float g = w * (expf(t - mx) / sum - 1);
    union {
      float f;
      unsigned u;
    } c = {g};
    l[target[i]] = (c.u + 0x7fff + ((c.u >> 16) & 1)) >> 16;
  }
}

void embed_bwd(const int* ids, const float* dx, float* de, long n, int c) {  // threads own columns, so no races
#pragma omp parallel for
  for (int j = 0; j < c; j += 64)
    for (long i = 0; i < n; i++)
      for (int k = j; k < j + 64 && k < c; k += 16) {
        float* o = de + (long)ids[i] * c + k;
        ST(o, _mm512_add_ps(LD(o), LD(dx + i * c + k)));
      }
}

void adamw(float* p, const float* g, float* m, float* v, long n, float lr, float b1, float b2, float eps, float wd,
           float c1, float c2) {
#pragma omp parallel for
  for (long i = 0; i < n; i++) {
    m[i] = b1 * m[i] + (1 - b1) * g[i];
    v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
    p[i] -= lr * (m[i] / c1 / (sqrtf(v[i] / c2) + eps) + wd * p[i]);
  }
}

// ------------------------------------------------------------------ attention
// C (M x N) = or += A(i, k) B(k, j); A has free strides; M a multiple of 8, N of 32
static void gemm(int M, int N, int K, const float* A, long ai, long ak, const float* B, long ldb_, float* C, long ldc,
                 int acc) {
  for (int j = 0; j < N; j += 32)
    for (int i = 0; i < M; i += 8) {
      v16 c[8][2];
#pragma GCC unroll 8
      for (int r = 0; r < 8; r++)
        for (int q = 0; q < 2; q++) c[r][q] = acc ? LD(C + (i + r) * ldc + j + 16 * q) : SET(0);
      for (int k = 0; k < K; k++) {
        v16 b0 = LD(B + k * ldb_ + j), b1 = LD(B + k * ldb_ + j + 16);
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++) {
          v16 a = SET(A[(i + r) * ai + k * ak]);
          c[r][0] = _mm512_fmadd_ps(a, b0, c[r][0]);
          c[r][1] = _mm512_fmadd_ps(a, b1, c[r][1]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < 8; r++)
        for (int q = 0; q < 2; q++) ST(C + (i + r) * ldc + j + 16 * q, c[r][q]);
    }
}
static void transpose(const float* x, float* y, int T) {  // T x D to D x T
  for (int t = 0; t < T; t++)
    for (int d = 0; d < D; d++) y[(long)d * T + t] = x[t * D + d];
}
// y = scale * rope(rmsnorm(x) * w), half-split rotation
static void norm_rope(const bf* x, long ld, const float* w, const float* cs, const float* sn, float* y, int T,
                      float eps, float scale) {
  for (int t = 0; t < T; t++, x += ld, y += D) {
    v16 a[4], s = SET(0);
    for (int j = 0; j < 4; j++) a[j] = ldb(x + 16 * j), s = _mm512_fmadd_ps(a[j], a[j], s);
    v16 r = SET(scale / sqrtf(_mm512_reduce_add_ps(s) / D + eps));
    for (int j = 0; j < 4; j++) a[j] = _mm512_mul_ps(_mm512_mul_ps(a[j], r), LD(w + 16 * j));
    for (int j = 0; j < 2; j++) {
      v16 c = LD(cs + t * 32 + 16 * j), n = LD(sn + t * 32 + 16 * j);
      ST(y + 16 * j, _mm512_fnmadd_ps(a[j + 2], n, _mm512_mul_ps(a[j], c)));
      ST(y + 32 + 16 * j, _mm512_fmadd_ps(a[j], n, _mm512_mul_ps(a[j + 2], c)));
    }
  }
}
static void norm_rope_bwd(const bf* x, long ld, const float* w, const float* cs, const float* sn, const float* dy,
                          bf* dx, float* dw, int T, float eps, float scale) {
  for (int t = 0; t < T; t++, x += ld, dx += ld, dy += D) {
    v16 a[4], d[4], s = SET(0), u = SET(0);
    for (int j = 0; j < 4; j++) a[j] = ldb(x + 16 * j), s = _mm512_fmadd_ps(a[j], a[j], s);
    float r = 1.f / sqrtf(_mm512_reduce_add_ps(s) / D + eps);
    for (int j = 0; j < 2; j++) {
      v16 c = LD(cs + t * 32 + 16 * j), n = LD(sn + t * 32 + 16 * j), p = LD(dy + 16 * j), q = LD(dy + 32 + 16 * j);
      d[j] = _mm512_mul_ps(SET(scale), _mm512_fmadd_ps(q, n, _mm512_mul_ps(p, c)));
      d[j + 2] = _mm512_mul_ps(SET(scale), _mm512_fnmadd_ps(p, n, _mm512_mul_ps(q, c)));
    }
    for (int j = 0; j < 4; j++) {
      a[j] = _mm512_mul_ps(a[j], SET(r));
      ST(dw + 16 * j, _mm512_fmadd_ps(d[j], a[j], LD(dw + 16 * j)));
      d[j] = _mm512_mul_ps(d[j], LD(w + 16 * j));
      u = _mm512_fmadd_ps(d[j], a[j], u);
    }
    v16 m = SET(_mm512_reduce_add_ps(u) / D);
    for (int j = 0; j < 4; j++) stb(dx + 16 * j, _mm512_mul_ps(SET(r), _mm512_fnmadd_ps(a[j], m, d[j])));
  }
}
enum { RB = 32 };  // query rows at a time
// rows of qkv: H query heads, KV key heads, KV value heads; T a multiple of 32
void attn_fwd(const bf* qkv, const float* qn, const float* kn, const float* cs, const float* sn, bf* o, float* lse,
              int B, int T, int H, int KV, float eps) {
  long ld = (H + 2 * KV) * D;
  int G = H / KV;
#pragma omp parallel
  {
    float* k = aligned_alloc(64, (4 * (size_t)T * D + (size_t)RB * T + RB * D) * 4);
    float *kT = k + T * D, *v = kT + T * D, *q = v + T * D, *S = q + T * D, *O = S + RB * T;
#pragma omp for schedule(dynamic, 1)
    for (int w = 0; w < B * KV; w++) {
      int b = w / KV, g = w % KV;
      const bf* base = qkv + (long)b * T * ld;
      norm_rope(base + (H + g) * D, ld, kn, cs, sn, k, T, eps, 1);
      transpose(k, kT, T);
      for (int t = 0; t < T; t++)
        for (int j = 0; j < D; j += 16) ST(v + t * D + j, ldb(base + t * ld + (H + KV + g) * D + j));
      for (int h = g * G; h < g * G + G; h++) {
        norm_rope(base + h * D, ld, qn, cs, sn, q, T, eps, .125f);
        for (int i = 0; i < T; i += RB) {
          int n = i + RB;
          gemm(RB, n, D, q + i * D, D, 1, kT, T, S, T, 0);
          for (int r = 0; r < RB; r++) {
            float *s = S + r * T, m = -1e30f;
            for (int j = i + r + 1; j < n; j++) s[j] = -1e30f;
            v16 mm = SET(m), sum = SET(0);
            for (int j = 0; j < n; j += 16) mm = _mm512_max_ps(mm, LD(s + j));
            m = _mm512_reduce_max_ps(mm);
            for (int j = 0; j < n; j += 16) {
              v16 e = vexp(_mm512_sub_ps(LD(s + j), SET(m)));
              ST(s + j, e);
              sum = _mm512_add_ps(sum, e);
            }
            float z = _mm512_reduce_add_ps(sum);
            lse[((long)b * H + h) * T + i + r] = m + logf(z);
            z = 1 / z;
            for (int j = 0; j < n; j += 16) ST(s + j, _mm512_mul_ps(LD(s + j), SET(z)));
          }
          gemm(RB, D, n, S, T, 1, v, D, O, D, 0);
          for (int r = 0; r < RB; r++)
            for (int j = 0; j < D; j += 16) stb(o + ((long)b * T + i + r) * H * D + h * D + j, LD(O + r * D + j));
        }
      }
    }
    free(k);
  }
}
void attn_bwd(const bf* qkv, const float* qn, const float* kn, const float* cs, const float* sn, const bf* o,
              const float* lse, const bf* dout, bf* dqkv, float* dqn, float* dkn, int B, int T, int H, int KV,
              float eps) {
  long ld = (H + 2 * KV) * D, lo = H * D;
  int G = H / KV;
#pragma omp parallel
  {
    size_t TD = (size_t)T * D;
    float* k = aligned_alloc(64, (8 * TD + 2 * (size_t)RB * T + RB * D + 2 * D) * 4);
    float *kT = k + TD, *vT = kT + TD, *v = vT + TD, *q = v + TD, *dk = q + TD, *dv = dk + TD, *dq = dv + TD;
    float *S = dq + TD, *P = S + RB * T, *dO = P + RB * T, *wq = dO + RB * D, *wk = wq + D;
    memset(wq, 0, 2 * D * 4);
#pragma omp for schedule(dynamic, 1)
    for (int w = 0; w < B * KV; w++) {
      int b = w / KV, g = w % KV;
      const bf* base = qkv + (long)b * T * ld;
      bf* dbase = dqkv + (long)b * T * ld;
      norm_rope(base + (H + g) * D, ld, kn, cs, sn, k, T, eps, 1);
      transpose(k, kT, T);
      for (int t = 0; t < T; t++)
        for (int j = 0; j < D; j += 16) ST(v + t * D + j, ldb(base + t * ld + (H + KV + g) * D + j));
      transpose(v, vT, T);
      memset(dk, 0, TD * 8);
      for (int h = g * G; h < g * G + G; h++) {
        norm_rope(base + h * D, ld, qn, cs, sn, q, T, eps, .125f);
        for (int i = 0; i < T; i += RB) {
          int n = i + RB;
          float delta[RB];
          for (int r = 0; r < RB; r++) {
            long at = ((long)b * T + i + r) * lo + h * D;
            v16 s = SET(0);
            for (int j = 0; j < D; j += 16) {
              v16 d = ldb(dout + at + j);
              ST(dO + r * D + j, d);
              s = _mm512_fmadd_ps(d, ldb(o + at + j), s);
            }
            delta[r] = _mm512_reduce_add_ps(s);
          }
          gemm(RB, n, D, q + i * D, D, 1, kT, T, P, T, 0);
          gemm(RB, n, D, dO, D, 1, vT, T, S, T, 0);
          for (int r = 0; r < RB; r++) {
            float *p = P + r * T, *s = S + r * T;
            v16 l = SET(lse[((long)b * H + h) * T + i + r]), de = SET(delta[r]);
            for (int j = i + r + 1; j < n; j++) p[j] = -1e30f;
            for (int j = 0; j < n; j += 16) {
              v16 e = vexp(_mm512_sub_ps(LD(p + j), l));
              ST(p + j, e);
              ST(s + j, _mm512_mul_ps(e, _mm512_sub_ps(LD(s + j), de)));
            }
          }
          gemm(n, D, RB, P, 1, T, dO, D, dv, D, 1);
          gemm(RB, D, n, S, T, 1, k, D, dq + i * D, D, 0);
          gemm(n, D, RB, S, 1, T, q + i * D, D, dk, D, 1);
        }
        norm_rope_bwd(base + h * D, ld, qn, cs, sn, dq, dbase + h * D, wq, T, eps, .125f);
      }
      norm_rope_bwd(base + (H + g) * D, ld, kn, cs, sn, dk, dbase + (H + g) * D, wk, T, eps, 1);
      for (int t = 0; t < T; t++)
        for (int j = 0; j < D; j += 16) stb(dbase + t * ld + (H + KV + g) * D + j, LD(dv + t * D + j));
    }
#pragma omp critical
    for (int j = 0; j < D; j++) dqn[j] += wq[j], dkn[j] += wk[j];
    free(k);
  }
}
