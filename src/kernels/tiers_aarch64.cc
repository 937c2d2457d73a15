// The tier of 64-bit ARM, where this machine can run it. NEON itself is part of every such CPU; whether it has the dot
// products of bytes (FEAT_DotProd) only the operating system may read, which tells it in the auxiliary vector.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "kernels/targets/targets.h"

namespace quire::kernels {

std::vector<const KernelTable*> RunnableTiers() {
  if ((::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) return {};
  return {&NeonKernels()};
}

}  // namespace quire::kernels
