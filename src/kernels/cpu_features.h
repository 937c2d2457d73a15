// What the CPU and the operating system together can run: CPUID says what the CPU knows, XCR0 which registers
// the operating system saves. An AVX-512 CPU under a kernel that does not save ZMM registers must not run
// AVX-512 code.
#pragma once

#include <cstdint>

namespace quire::kernels {

// The registers that the answer depends on, raw, so that tests can make up machines.
struct CpuidRegisters {
  std::uint32_t leaf0_ebx = 0;  // the first four letters of the vendor
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;  // leaf 7, subleaf 1
  std::uint64_t xcr0 = 0;         // 0 when OSXSAVE is not set
};

struct CpuFeatures {
  bool avx2 = false;        // AVX2, FMA, F16C
  bool avx512 = false;      // F, BW, VL, DQ; implies avx2
  bool avx512vnni = false;  // implies avx512
  bool avx512bf16 = false;  // implies avx512vnni
  bool amx = false;         // tiles, their INT8 and BF16 products; implies avx512bf16
  // Intel's cores start a 512-bit vdpbf16ps every second cycle where they start two FMAs in one: 86 against 175 GFLOP/s
  // on an Emerald Rapids core, and 140 from FMAs on BF16 weights widened in registers. AMD's start one or two a cycle.
  bool fast_bf16_dot = false;
};

CpuidRegisters ReadCpuid();
CpuFeatures DecodeCpuFeatures(const CpuidRegisters& registers);

// Linux saves a process's tile registers only once it has asked for them: 8 KiB more for every thread's state. False when the
// kernel refuses.
bool RequestTileRegisters();

}  // namespace quire::kernels
