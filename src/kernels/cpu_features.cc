#include "kernels/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace quire::kernels {
namespace {

// XGETBV as an instruction: the intrinsic would need a target region for this one use.
std::uint64_t ReadXcr0() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

constexpr bool HasBit(std::uint64_t bits, int index) {
  return (bits >> index & 1) != 0;
}
constexpr int kOsxsaveBit = 27;

}  // namespace

CpuidRegisters ReadCpuid() {
  CpuidRegisters registers;
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0) registers.leaf0_ebx = ebx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) registers.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    registers.leaf7_ebx = ebx;
    registers.leaf7_ecx = ecx;
    registers.leaf7_edx = edx;
    const std::uint32_t max_subleaf = eax;
    if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) registers.leaf7_1_eax = eax;
  }
  if (HasBit(registers.leaf1_ecx, kOsxsaveBit)) registers.xcr0 = ReadXcr0();
  return registers;
}

CpuFeatures DecodeCpuFeatures(const CpuidRegisters& r) {
  constexpr std::uint64_t kYmmState = 0x6;   // XMM, YMM
  constexpr std::uint64_t kZmmState = 0xE6;  // and opmask, upper halves of ZMM0–15, ZMM16–31
  const bool ymm = HasBit(r.leaf1_ecx, kOsxsaveBit) && (r.xcr0 & kYmmState) == kYmmState;
  const bool zmm = ymm && (r.xcr0 & kZmmState) == kZmmState;
  const bool avx = HasBit(r.leaf1_ecx, 28), fma = HasBit(r.leaf1_ecx, 12), f16c = HasBit(r.leaf1_ecx, 29);
  const bool avx512 = HasBit(r.leaf7_ebx, 16) && HasBit(r.leaf7_ebx, 17) && HasBit(r.leaf7_ebx, 30) &&
                      HasBit(r.leaf7_ebx, 31);  // F, DQ, BW, VL

  CpuFeatures features;
  features.avx2 = ymm && avx && fma && f16c && HasBit(r.leaf7_ebx, 5);
  features.avx512 = features.avx2 && zmm && avx512;
  features.avx512vnni = features.avx512 && HasBit(r.leaf7_ecx, 11);
  features.avx512bf16 = features.avx512vnni && HasBit(r.leaf7_1_eax, 5);
  constexpr std::uint64_t kTileState = 0x60000;  // configuration, data
  const bool tiles = (r.xcr0 & kTileState) == kTileState && HasBit(r.leaf7_edx, 24) && HasBit(r.leaf7_edx, 25) &&
                     HasBit(r.leaf7_edx, 22);  // tiles, INT8, BF16
  features.amx = features.avx512bf16 && tiles;
  constexpr std::uint32_t kIntel = 'G' | 'e' << 8 | 'n' << 16 | 'u' << 24;  // "GenuineIntel"
  features.fast_bf16_dot = features.avx512bf16 && r.leaf0_ebx != kIntel;
  return features;
}

bool RequestTileRegisters() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace quire::kernels
