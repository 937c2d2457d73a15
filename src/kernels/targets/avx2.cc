// The tier avx2: AVX2, FMA, F16C (Haswell, Zen 1 and later).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/activation_layout.h"
#include "kernels/store_kv.h"
#include "kernels/target.h"
#include "kernels/targets/targets.h"
#include "kernels/weight_layout.h"

QUIRE_TARGET_BEGIN("avx2,fma,f16c")
namespace quire::kernels::avx2 {
namespace {
// clang-format off: later files use what earlier ones define
#include "kernels/simd/avx2.inl.h"
#include "kernels/simd/avx2_dots.inl.h"
#include "kernels/simd/float_pairs.inl.h"
#include "kernels/simd/no_matrix_tiles.inl.h"
#include "kernels/generic/all.inl.h"
// clang-format on
}  // namespace
}  // namespace quire::kernels::avx2
QUIRE_TARGET_END

namespace quire::kernels {

const KernelTable& Avx2Kernels() {
  static constexpr KernelTable table = avx2::MakeTable("avx2");
  return table;
}

}  // namespace quire::kernels
