// Stands in for src/kernels/select.cc: every emulated tier can run.
#include "kernels/kernel_table.h"
#include "kernels/targets/targets.h"

namespace quire::kernels {

std::span<const KernelTable* const> AvailableKernels() {
  static const KernelTable* const tables[] = {&ReferenceKernels(), &Avx2Kernels(), &Avx512Kernels(),
                                              &Avx512VnniKernels(), &Avx512Bf16Kernels()};
  return tables;
}

Result<const KernelTable*> SelectKernels(std::string_view isa) {
  if (isa.empty()) return AvailableKernels().back();
  for (const KernelTable* table : AvailableKernels()) {
    if (isa == table->isa) return table;
  }
  return Fail(ErrorCode::kInvalidArgument, "no emulated tier \"{}\"", isa);
}

}  // namespace quire::kernels
