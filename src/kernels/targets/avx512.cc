// The tier avx512: AVX-512 F, BW, VL, DQ (Skylake-SP).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/activation_layout.h"
#include "kernels/store_kv.h"
#include "kernels/target.h"
#include "kernels/targets/targets.h"
#include "kernels/weight_layout.h"

QUIRE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")
namespace quire::kernels::avx512 {
namespace {
// clang-format off: later files use what earlier ones define
#include "kernels/simd/avx512.inl.h"
#include "kernels/simd/avx512_codes.inl.h"
#include "kernels/simd/float_pairs.inl.h"
#include "kernels/simd/no_matrix_tiles.inl.h"
#include "kernels/generic/all.inl.h"
// clang-format on
}  // namespace
}  // namespace quire::kernels::avx512
QUIRE_TARGET_END

namespace quire::kernels {

const KernelTable& Avx512Kernels() {
  static constexpr KernelTable table = avx512::MakeTable("avx512");
  return table;
}

}  // namespace quire::kernels
