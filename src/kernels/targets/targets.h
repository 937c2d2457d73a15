// The tables of the SIMD tiers, one translation unit each. Calling a function of a table on a CPU without the tier is
// an illegal instruction: SelectKernels and AvailableKernels hand out only those that this CPU can run.
#pragma once

#include "kernels/kernel_table.h"

namespace quire::kernels {

const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();
const KernelTable& Avx512VnniKernels();
const KernelTable& Avx512Bf16Kernels();
const KernelTable& AmxKernels();

}  // namespace quire::kernels
