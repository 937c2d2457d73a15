// The tier amx: AVX-512 with VNNI, BF16 and matrix tiles (Sapphire Rapids and later). What is no matrix product of many rows
// runs as in avx512vnni; vdpbf16ps is slow on these CPUs.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/activation_layout.h"
#include "kernels/store_kv.h"
#include "kernels/target.h"
#include "kernels/targets/targets.h"
#include "kernels/weight_layout.h"

QUIRE_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
namespace quire::kernels::amx {
namespace {
// clang-format off: later files use what earlier ones define
#include "kernels/simd/avx512.inl.h"
#include "kernels/simd/avx512vnni_codes.inl.h"
#include "kernels/simd/float_pairs.inl.h"
#include "kernels/simd/amx_instructions.inl.h"
#include "kernels/simd/amx_tiles.inl.h"
#include "kernels/generic/all.inl.h"
#include "kernels/simd/amx_gemm.inl.h"
// clang-format on
}  // namespace
}  // namespace quire::kernels::amx
QUIRE_TARGET_END

namespace quire::kernels {

const KernelTable& AmxKernels() {
  static constexpr KernelTable table = amx::MakeTable("amx");
  return table;
}

}  // namespace quire::kernels
