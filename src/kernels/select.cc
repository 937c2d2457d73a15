// Which tier runs: decided once, at run time.
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/targets/targets.h"

namespace quire::kernels {

std::span<const KernelTable* const> AvailableKernels() {
  static const std::vector<const KernelTable*> available = [] {
    std::vector<const KernelTable*> tables = RunnableTiers();
    tables.insert(tables.begin(), &ReferenceKernels());
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
  for (const std::string_view known : {"avx2", "avx512", "avx512vnni", "avx512bf16", "amx", "neon"}) {
    if (isa == known) {
      return Fail(ErrorCode::kUnsupported,
                  "this CPU or its operating system cannot run the kernels \"{}\"; it can run: {}", isa, names);
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown kernel tier \"{}\"; this CPU can run: auto, {}", isa, names);
}

}  // namespace quire::kernels
