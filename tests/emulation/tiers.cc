// Stands in for src/kernels/tiers_x86_64.cc: every emulated tier can run.
#include "kernels/targets/targets.h"

namespace quire::kernels {

std::vector<const KernelTable*> RunnableTiers() {
  return {&Avx2Kernels(), &Avx512Kernels(), &Avx512VnniKernels(), &Avx512Bf16Kernels(), &AmxKernels()};
}

}  // namespace quire::kernels
