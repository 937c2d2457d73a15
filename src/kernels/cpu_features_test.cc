// Made-up machines of x86-64, and what can run on them.
#include "kernels/cpu_features.h"

#include <gtest/gtest.h>

namespace quire::kernels {
namespace {

TEST(CpuFeatures, TiersNeedTheCpuAndTheOperatingSystem) {
  const CpuidRegisters everything{.leaf1_ecx = 1u << 27 | 1u << 28 | 1u << 12 | 1u << 29,
                                  .leaf7_ebx = 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31,
                                  .leaf7_ecx = 1u << 11,
                                  .leaf7_1_eax = 1u << 5,
                                  .xcr0 = 0xE7};
  EXPECT_TRUE(DecodeCpuFeatures(everything).avx512bf16);
  EXPECT_TRUE(DecodeCpuFeatures(everything).fast_bf16_dot);
  CpuidRegisters intel = everything;
  intel.leaf0_ebx = 0x756E6547;  // "Genu"
  EXPECT_TRUE(DecodeCpuFeatures(intel).avx512bf16);
  EXPECT_FALSE(DecodeCpuFeatures(intel).fast_bf16_dot);

  CpuidRegisters no_zmm = everything;  // a kernel that does not save ZMM registers
  no_zmm.xcr0 = 0x7;
  EXPECT_TRUE(DecodeCpuFeatures(no_zmm).avx2);
  EXPECT_FALSE(DecodeCpuFeatures(no_zmm).avx512);
  EXPECT_FALSE(DecodeCpuFeatures(no_zmm).avx512bf16);

  CpuidRegisters no_osxsave = everything;
  no_osxsave.leaf1_ecx &= ~(1u << 27);
  EXPECT_FALSE(DecodeCpuFeatures(no_osxsave).avx2);

  CpuidRegisters no_fma = everything;  // nothing above avx2 without FMA
  no_fma.leaf1_ecx &= ~(1u << 12);
  EXPECT_FALSE(DecodeCpuFeatures(no_fma).avx2);
  EXPECT_FALSE(DecodeCpuFeatures(no_fma).avx512);

  CpuidRegisters no_vnni = everything;
  no_vnni.leaf7_ecx = 0;
  EXPECT_TRUE(DecodeCpuFeatures(no_vnni).avx512);
  EXPECT_FALSE(DecodeCpuFeatures(no_vnni).avx512vnni);
  EXPECT_FALSE(DecodeCpuFeatures(no_vnni).avx512bf16);
}

}  // namespace
}  // namespace quire::kernels
