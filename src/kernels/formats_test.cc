// Packing there and back, the sizes of panels, and quantised activations.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/activation_layout.h"
#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"

namespace quire::kernels {
namespace {

TEST(Formats, PanelBytesAreWhatTheLayoutSays) {
  EXPECT_EQ(PanelBytes(WeightFormat::kF32, 7), 7u * 64);
  EXPECT_EQ(PanelBytes(WeightFormat::kF16, 7), 7u * 32);
  EXPECT_EQ(PanelBytes(WeightFormat::kBf16, 7), 4u * 64);
  EXPECT_EQ(PanelBytes(WeightFormat::kInt8Group32, 64), 2u * (512 + 32));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt8Group32Min, 64), 2u * (512 + 128));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt8Group16, 64), 4u * (256 + 64));
  EXPECT_EQ(NumPanels(0), 0);
  EXPECT_EQ(NumPanels(16), 1);
  EXPECT_EQ(NumPanels(17), 2);
}

TEST(Formats, FloatRowsComeBackRoundedToTheirType) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16}) {
    for (const std::int64_t k : {1, 2, 5, 64}) {
      std::vector<float> w(static_cast<std::size_t>(5 * k));
      for (float& x : w) x = normal(rng);
      std::vector<WeightRow> rows(5);
      for (std::size_t r = 0; r < 5; ++r) rows[r].values = w.data() + static_cast<std::int64_t>(r) * k;
      auto panel = AlignedBuffer::Allocate(PanelBytes(format, k)).value();
      PackPanel(format, k, rows, panel.data());
      const PackedMatrix matrix{.format = format, .n = 16, .k = k, .data = panel.data()};
      std::vector<float> out(static_cast<std::size_t>(k));
      for (std::int64_t r = 0; r < 16; ++r) {
        UnpackRow(matrix, r, out.data());
        for (std::int64_t i = 0; i < k; ++i) {
          const float original = r < 5 ? w[static_cast<std::size_t>(r * k + i)] : 0.0f;
          const float expected = format == WeightFormat::kF32   ? original
                                 : format == WeightFormat::kF16 ? ToFloat(ToF16(original))
                                                                : ToFloat(ToBf16(original));
          EXPECT_EQ(out[static_cast<std::size_t>(i)], expected) << r << ' ' << i;
        }
      }
    }
  }
}

TEST(Formats, IntegerRowsComeBackAsScaleTimesCodeMinusMin) {
  std::mt19937 rng(8);
  for (const WeightFormat format :
       {WeightFormat::kInt8Group32, WeightFormat::kInt8Group32Min, WeightFormat::kInt8Group16}) {
    const FormatTraits& traits = Traits(format);
    const std::int64_t k = 96;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(16 * k));
    for (auto& c : codes) c = static_cast<std::uint8_t>(rng() % (traits.zero_point != 0 ? 256 : 128));
    const std::int64_t groups = k / traits.group;
    std::vector<float> scales(static_cast<std::size_t>(16 * groups)), mins(scales.size());
    for (auto& s : scales) s = ToFloat(ToF16(static_cast<float>(rng() % 1000) * 1e-4f));
    for (auto& m : mins) m = static_cast<float>(rng() % 1000) * 1e-3f;
    std::vector<WeightRow> rows(16);
    for (std::int64_t r = 0; r < 16; ++r) {
      rows[static_cast<std::size_t>(r)] = {.codes = codes.data() + r * k,
                                           .scales = scales.data() + r * groups,
                                           .mins = traits.has_min ? mins.data() + r * groups : nullptr};
    }
    auto panel = AlignedBuffer::Allocate(PanelBytes(format, k)).value();
    PackPanel(format, k, rows, panel.data());
    const PackedMatrix matrix{.format = format, .n = 16, .k = k, .data = panel.data()};
    std::vector<float> out(static_cast<std::size_t>(k));
    for (std::int64_t r = 0; r < 16; ++r) {
      UnpackRow(matrix, r, out.data());
      for (std::int64_t i = 0; i < k; ++i) {
        const auto group = static_cast<std::size_t>(r * groups + i / traits.group);
        const int code = codes[static_cast<std::size_t>(r * k + i)];
        const float expected =
            scales[group] * static_cast<float>(code - traits.zero_point) - (traits.has_min ? mins[group] : 0.0f);
        EXPECT_EQ(out[static_cast<std::size_t>(i)], expected);
      }
    }
  }
}

TEST(Activations, CodesAreSymmetricRoundedToEvenAndScaledPerBlock) {
  const std::int64_t k = 288;  // one block of 256 and one of 32
  std::vector<float> x(static_cast<std::size_t>(k), 0.0f);
  x[0] = 127, x[1] = 2.5f, x[2] = 3.5f, x[3] = -0.5f, x[4] = -127;
  x[256] = -1;
  auto row = AlignedBuffer::Allocate(ActivationRowBytes(ActivationKind::kInt8, k)).value();
  for (const KernelTable* table : AvailableKernels()) {
    table->prepare_activations(ActivationKind::kInt8, x.data(), 1, k, k, row.data());
    const Int8RowLayout layout(k);
    const auto* codes = reinterpret_cast<const std::int8_t*>(row.data());
    EXPECT_EQ(codes[0], 127);
    EXPECT_EQ(codes[1], 2);
    EXPECT_EQ(codes[2], 4);
    EXPECT_EQ(codes[3], 0);
    EXPECT_EQ(codes[4], -127);
    EXPECT_EQ(codes[256], -127);
    const auto* scales = reinterpret_cast<const float*>(row.data() + layout.scales);
    EXPECT_EQ(scales[0], 1.0f);
    EXPECT_EQ(scales[1], 1.0f / 127.0f);
    EXPECT_EQ(reinterpret_cast<const std::int32_t*>(row.data() + layout.start32)[0], -128 * 6);
    EXPECT_EQ(reinterpret_cast<const float*>(row.data() + layout.sums32)[8], -127.0f);
  }
}

TEST(Activations, ZerosSubnormalsAndInfinitiesStayInTheirRow) {
  const std::int64_t k = 64;
  std::vector<float> x(static_cast<std::size_t>(4 * k), 1.0f);
  for (std::size_t i = 0; i < 64; ++i) x[i] = 0, x[64 + i] = 1e-40f;
  x[2 * 64 + 3] = std::numeric_limits<float>::infinity();
  x[3 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  const std::size_t row_bytes = ActivationRowBytes(ActivationKind::kInt8, k);
  auto rows = AlignedBuffer::Allocate(4 * row_bytes).value();
  for (const KernelTable* table : AvailableKernels()) {
    table->prepare_activations(ActivationKind::kInt8, x.data(), 4, k, k, rows.data());
    const auto scale = [&](std::size_t r) {
      return *reinterpret_cast<const float*>(rows.data() + r * row_bytes + Int8RowLayout(k).scales);
    };
    EXPECT_EQ(scale(0), 0);
    EXPECT_EQ(scale(1), 0);
    EXPECT_TRUE(std::isnan(scale(2)));
    EXPECT_TRUE(std::isnan(scale(3)));
  }
}

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

TEST(SelectKernels, NamesAndErrors) {
  const auto available = AvailableKernels();
  EXPECT_EQ(available.front(), &ReferenceKernels());
  EXPECT_EQ(SelectKernels("").value(), available.back());
  EXPECT_EQ(SelectKernels("auto").value(), available.back());
  for (const KernelTable* table : available) EXPECT_EQ(SelectKernels(table->isa).value(), table);
  const auto unknown = SelectKernels("neon");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("reference"), std::string::npos);
}

}  // namespace
}  // namespace quire::kernels
