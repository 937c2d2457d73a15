// Stands in for the compiler's <immintrin.h> when the kernels are built for the emulated tiers: SIMDe computes every
// intrinsic in plain code, so that the AVX-512 kernels run, slowly, on any machine. Below are the few that SIMDe lacks.
#pragma once

#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cmath>
#include <cstdint>
#include <cstring>

using __mmask16 = std::uint16_t;
using __mmask64 = std::uint64_t;
#ifndef _MM_FROUND_NO_EXC
#define _MM_FROUND_NO_EXC SIMDE_MM_FROUND_NO_EXC
#define _MM_FROUND_TO_NEAREST_INT SIMDE_MM_FROUND_TO_NEAREST_INT
#endif
#ifndef _CMP_LT_OQ
#define _CMP_LT_OQ SIMDE_CMP_LT_OQ
#define _CMP_EQ_OQ SIMDE_CMP_EQ_OQ
#endif

namespace quire_emulation {

template <typename To, typename From>
To Bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <typename T, int n>
struct Lanes {
  T lane[n];
};

// A vector of n lanes from function(i).
template <typename Vector, typename T, int n, typename Function>
Vector Make(Function function) {
  Lanes<T, n> lanes;
  for (int i = 0; i < n; ++i) lanes.lane[i] = function(i);
  return Bits<Vector>(lanes);
}

inline __m512 ConvertI32(__m512i a) {
  const auto in = Bits<Lanes<std::int32_t, 16>>(a);
  return Make<__m512, float, 16>([&](int i) { return static_cast<float>(in.lane[i]); });
}
inline __m512i ConvertToI32(__m512 a) {  // half to even; what does not fit is 0x80000000
  const auto in = Bits<Lanes<float, 16>>(a);
  return Make<__m512i, std::int32_t, 16>([&](int i) {
    const float rounded = std::nearbyint(in.lane[i]);
    return rounded >= -2147483648.0f && rounded < 2147483648.0f ? static_cast<std::int32_t>(rounded) : INT32_MIN;
  });
}
inline __m128i NarrowToBytes(__m512i a) {
  const auto in = Bits<Lanes<std::int32_t, 16>>(a);
  return Make<__m128i, std::int8_t, 16>([&](int i) { return static_cast<std::int8_t>(in.lane[i]); });
}
inline __m512i WidenBytes(__m128i a) {
  const auto in = Bits<Lanes<std::int8_t, 16>>(a);
  return Make<__m512i, std::int32_t, 16>([&](int i) { return std::int32_t{in.lane[i]}; });
}
inline __m512i WidenUnsignedBytes(__m128i a) {
  const auto in = Bits<Lanes<std::uint8_t, 16>>(a);
  return Make<__m512i, std::int32_t, 16>([&](int i) { return std::int32_t{in.lane[i]}; });
}
inline __m512d WidenFloats(__m256 a) {
  const auto in = Bits<Lanes<float, 8>>(a);
  return Make<__m512d, double, 8>([&](int i) { return double{in.lane[i]}; });
}
template <typename Half, typename Whole>
Half ExtractHalf(const Whole& a, int index) {
  Half half;
  std::memcpy(&half, reinterpret_cast<const char*>(&a) + index * 32, 32);
  return half;
}
inline __m512 WidenHalves(__m256i a) {
  const __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(a)), high = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
  __m512 both;
  std::memcpy(&both, &low, 32);
  std::memcpy(reinterpret_cast<char*>(&both) + 32, &high, 32);
  return both;
}
inline __m512 LoadMasked(unsigned mask, const void* p) {
  return Make<__m512, float, 16>([&](int i) {
    float value = 0;
    if (mask >> i & 1) std::memcpy(&value, static_cast<const char*>(p) + i * 4, 4);
    return value;
  });
}
inline void StoreMasked(void* p, unsigned mask, __m512 a) {
  const auto in = Bits<Lanes<float, 16>>(a);
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) std::memcpy(static_cast<char*>(p) + i * 4, &in.lane[i], 4);
  }
}
inline __m512i ShiftRight(__m512i a, int count) {
  const auto in = Bits<Lanes<std::int32_t, 16>>(a);
  return Make<__m512i, std::int32_t, 16>([&](int i) { return in.lane[i] >> count; });
}

// SIMDe's own touches memory that is masked off.
inline __m256 LoadMaskedHalf(const void* p, __m256i mask) {
  const auto wanted = Bits<Lanes<std::int32_t, 8>>(mask);
  return Make<__m256, float, 8>([&](int i) {
    float value = 0;
    if (wanted.lane[i] < 0) std::memcpy(&value, static_cast<const char*>(p) + i * 4, 4);
    return value;
  });
}
inline void StoreMaskedHalf(void* p, __m256i mask, __m256 a) {
  const auto wanted = Bits<Lanes<std::int32_t, 8>>(mask);
  const auto in = Bits<Lanes<float, 8>>(a);
  for (int i = 0; i < 8; ++i) {
    if (wanted.lane[i] < 0) std::memcpy(static_cast<char*>(p) + i * 4, &in.lane[i], 4);
  }
}
// To BF16, half to even, subnormals to zero, NaN kept quiet.
inline __m256i NarrowToBf16(__m512 a) {
  const auto in = Bits<Lanes<std::uint32_t, 16>>(a);
  return Make<__m256i, std::uint16_t, 16>([&](int i) {
    const std::uint32_t bits = in.lane[i], magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
    if (magnitude < 0x00800000) return static_cast<std::uint16_t>(bits >> 16 & 0x8000);
    return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  });
}
inline __m512i WidenU16(__m256i a) {
  const auto in = Bits<Lanes<std::uint16_t, 16>>(a);
  return Make<__m512i, std::int32_t, 16>([&](int i) { return std::int32_t{in.lane[i]}; });
}
// vdpbf16ps: the odd product first, then the even one, each added with one rounding; subnormals count as zero.
inline __m512 DotBf16(__m512 sum, __m512i w, __m512i a) {
  const auto x = Bits<Lanes<std::uint32_t, 16>>(w), y = Bits<Lanes<std::uint32_t, 16>>(a);
  const auto start = Bits<Lanes<float, 16>>(sum);
  const auto flush = [](float v) { return __builtin_fabsf(v) < 0x1p-126f ? 0.0f : v; };
  const auto even = [&](std::uint32_t pair) { return flush(Bits<float>(pair << 16)); };
  const auto odd = [&](std::uint32_t pair) { return flush(Bits<float>(pair & 0xFFFF0000)); };
  return Make<__m512, float, 16>([&](int i) {
    const float first = flush(__builtin_fmaf(odd(x.lane[i]), odd(y.lane[i]), flush(start.lane[i])));
    return flush(__builtin_fmaf(even(x.lane[i]), even(y.lane[i]), first));
  });
}
// SIMDe multiplies and adds with two roundings.
template <typename Vector>
Vector FusedMultiplyAdd(const Vector& a, const Vector& b, const Vector& c, bool negate) {
  constexpr int n = sizeof(Vector) / 4;
  const auto x = Bits<Lanes<float, n>>(a), y = Bits<Lanes<float, n>>(b), z = Bits<Lanes<float, n>>(c);
  return Make<Vector, float, n>(
      [&](int i) { return __builtin_fmaf(negate ? -x.lane[i] : x.lane[i], y.lane[i], z.lane[i]); });
}

}  // namespace quire_emulation

#undef _mm256_fmadd_ps
#undef _mm256_fnmadd_ps
#undef _mm512_fmadd_ps
#undef _mm512_fnmadd_ps
#define _mm256_fmadd_ps(a, b, c) quire_emulation::FusedMultiplyAdd<__m256>(a, b, c, false)
#define _mm256_fnmadd_ps(a, b, c) quire_emulation::FusedMultiplyAdd<__m256>(a, b, c, true)
#define _mm512_fmadd_ps(a, b, c) quire_emulation::FusedMultiplyAdd<__m512>(a, b, c, false)
#define _mm512_fnmadd_ps(a, b, c) quire_emulation::FusedMultiplyAdd<__m512>(a, b, c, true)
#define _mm512_cvtepi32_ps(a) quire_emulation::ConvertI32(a)
#define _mm512_cvtps_epi32(a) quire_emulation::ConvertToI32(a)
#define _mm512_cvtepi32_epi8(a) quire_emulation::NarrowToBytes(a)
#define _mm512_cvtepi8_epi32(a) quire_emulation::WidenBytes(a)
#define _mm512_cvtepu8_epi32(a) quire_emulation::WidenUnsignedBytes(a)
#define _mm512_cvtps_pd(a) quire_emulation::WidenFloats(a)
#define _mm512_extractf32x8_ps(a, i) quire_emulation::ExtractHalf<__m256>(a, i)
#define _mm512_extracti32x8_epi32(a, i) quire_emulation::ExtractHalf<__m256i>(a, i)
#define _mm512_cvtph_ps(a) quire_emulation::WidenHalves(a)
#define _mm512_maskz_loadu_ps(mask, p) quire_emulation::LoadMasked(mask, p)
#define _mm512_maskz_loadu_epi32(mask, p) _mm512_castps_si512(quire_emulation::LoadMasked(mask, p))
#define _mm512_mask_storeu_ps(p, mask, a) quire_emulation::StoreMasked(p, mask, a)
#define _mm512_srai_epi32(a, count) quire_emulation::ShiftRight(a, count)
#undef _mm512_madd_epi16  // SIMDe gives it the arguments of the masked one
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#define __m512bh __m512i
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps(sum, w, a) quire_emulation::DotBf16(sum, w, a)
#define _mm512_cvtneps_pbh(a) quire_emulation::NarrowToBf16(a)
#define _mm512_cvtepu16_epi32(a) quire_emulation::WidenU16(a)
#undef _mm256_maskload_ps
#undef _mm256_maskstore_ps
#define _mm256_maskload_ps(p, mask) quire_emulation::LoadMaskedHalf(p, mask)
#define _mm256_maskstore_ps(p, mask, a) quire_emulation::StoreMaskedHalf(p, mask, a)
