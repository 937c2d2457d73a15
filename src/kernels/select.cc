// Which tier runs: decided once, at run time.
#include <string>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"
#include "kernels/targets/targets.h"

namespace quire::kernels {

std::span<const KernelTable* const> AvailableKernels() {
  static const std::vector<const KernelTable*> available = [] {
    const CpuFeatures features = DecodeCpuFeatures(ReadCpuid());
    std::vector<const KernelTable*> tables = {&ReferenceKernels()};
    if (features.avx2) tables.push_back(&Avx2Kernels());
    if (features.avx512) tables.push_back(&Avx512Kernels());
    if (features.avx512bf16 && !features.fast_bf16_dot) tables.push_back(&Avx512Bf16Kernels());
    if (features.avx512vnni) tables.push_back(&Avx512VnniKernels());
    if (features.fast_bf16_dot) tables.push_back(&Avx512Bf16Kernels());
    if (features.amx && RequestTileRegisters()) tables.push_back(&AmxKernels());
    return tables;
  }();
  return available;
}

Result<const KernelTable*> SelectKernels(std::string_view isa) {
  const auto available = AvailableKernels();
  if (isa.empty() || isa == "auto") return available.back();
  std::string names;
  for (const KernelTable* table : available) {
    if (isa == table->isa) return table;
    names += (names.empty() ? "" : ", ") + std::string(table->isa);
  }
  for (const std::string_view known : {"avx2", "avx512", "avx512vnni", "avx512bf16", "amx"}) {
    if (isa == known) {
      return Fail(ErrorCode::kUnsupported,
                  "this CPU or its operating system cannot run the kernels \"{}\"; it can run: {}", isa, names);
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown kernel tier \"{}\"; this CPU can run: auto, {}", isa, names);
}

}  // namespace quire::kernels
