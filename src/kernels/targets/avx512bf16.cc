// The tier avx512bf16: AVX-512 with vpdpbusd and vdpbf16ps (Zen 4 and 5, Sapphire Rapids).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/activation_layout.h"
#include "kernels/store_kv.h"
#include "kernels/target.h"
#include "kernels/targets/targets.h"
#include "kernels/weight_layout.h"

QUIRE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
namespace quire::kernels::avx512bf16 {
namespace {
// clang-format off: later files use what earlier ones define
#include "kernels/simd/avx512.inl.h"
#include "kernels/simd/avx512vnni_codes.inl.h"
#include "kernels/simd/avx512bf16_pairs.inl.h"
#include "kernels/simd/no_matrix_tiles.inl.h"
#include "kernels/generic/all.inl.h"
// clang-format on
}  // namespace
}  // namespace quire::kernels::avx512bf16
QUIRE_TARGET_END

namespace quire::kernels {

const KernelTable& Avx512Bf16Kernels() {
  static constexpr KernelTable table = avx512bf16::MakeTable("avx512bf16");
  return table;
}

}  // namespace quire::kernels
