// The tier neon: 64-bit ARM with dot products of bytes (Neoverse N1, Cortex-A76, Apple M1 and later).
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/activation_layout.h"
#include "kernels/store_kv.h"
#include "kernels/target.h"
#include "kernels/targets/targets.h"
#include "kernels/weight_layout.h"

QUIRE_TARGET_BEGIN("arch=armv8.2-a+dotprod")
namespace quire::kernels::neon {
namespace {
// clang-format off: later files use what earlier ones define
#include "kernels/simd/neon.inl.h"
#include "kernels/simd/float_pairs.inl.h"
#include "kernels/simd/no_matrix_tiles.inl.h"
#include "kernels/generic/all.inl.h"
// clang-format on
}  // namespace
}  // namespace quire::kernels::neon
QUIRE_TARGET_END

namespace quire::kernels {

const KernelTable& NeonKernels() {
  static constexpr KernelTable table = neon::MakeTable("neon");
  return table;
}

}  // namespace quire::kernels
