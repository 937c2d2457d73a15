// The tier avx512vnni: AVX-512 with vpdpbusd (Cascade Lake, Ice Lake).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/activation_layout.h"
#include "kernels/store_kv.h"
#include "kernels/target.h"
#include "kernels/targets/targets.h"
#include "kernels/weight_layout.h"

QUIRE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
namespace quire::kernels::avx512vnni {
namespace {
// clang-format off: later files use what earlier ones define
#include "kernels/simd/avx512.inl.h"
#include "kernels/simd/avx512vnni_codes.inl.h"
#include "kernels/simd/float_pairs.inl.h"
#include "kernels/simd/no_matrix_tiles.inl.h"
#include "kernels/generic/all.inl.h"
// clang-format on
}  // namespace
}  // namespace quire::kernels::avx512vnni
QUIRE_TARGET_END

namespace quire::kernels {

const KernelTable& Avx512VnniKernels() {
  static constexpr KernelTable table = avx512vnni::MakeTable("avx512vnni");
  return table;
}

}  // namespace quire::kernels
