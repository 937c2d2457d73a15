// The tiers of x86-64 that this machine can run.
#include "kernels/cpu_features.h"
#include "kernels/targets/targets.h"

namespace quire::kernels {

std::vector<const KernelTable*> RunnableTiers() {
  const CpuFeatures features = DecodeCpuFeatures(ReadCpuid());
  std::vector<const KernelTable*> tiers;
  if (features.avx2) tiers.push_back(&Avx2Kernels());
  if (features.avx512) tiers.push_back(&Avx512Kernels());
  if (features.avx512bf16 && !features.fast_bf16_dot) tiers.push_back(&Avx512Bf16Kernels());
  if (features.avx512vnni) tiers.push_back(&Avx512VnniKernels());
  if (features.fast_bf16_dot) tiers.push_back(&Avx512Bf16Kernels());
  if (features.amx && RequestTileRegisters()) tiers.push_back(&AmxKernels());
  return tiers;
}

}  // namespace quire::kernels
