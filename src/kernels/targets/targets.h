// The tables of the SIMD tiers, one translation unit each; those of another processor than the one that is compiled for
// do not exist. Calling a function of a table on a CPU without the tier is an illegal instruction: SelectKernels and
// AvailableKernels hand out only those that this CPU can run.
#pragma once

#include <vector>

#include "kernels/kernel_table.h"

namespace quire::kernels {

const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();
const KernelTable& Avx512VnniKernels();
const KernelTable& Avx512Bf16Kernels();
const KernelTable& AmxKernels();
const KernelTable& NeonKernels();

// Those that this CPU and its operating system can run, slowest first (tiers_<processor>.cc).
std::vector<const KernelTable*> RunnableTiers();

}  // namespace quire::kernels
