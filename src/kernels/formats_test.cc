// Packing there and back, the sizes of panels, and quantised activations.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/activation_layout.h"
#include "kernels/kernel_cases.h"
#include "kernels/kernel_table.h"
#include "kernels/weight_layout.h"

namespace quire::kernels {
namespace {

// Sixteen rows, packed.
struct Panel {
  AlignedBuffer memory;
  PackedMatrix matrix;

  Panel(WeightFormat format, std::int64_t k, std::span<const WeightRow> rows)
      : memory(AlignedBuffer::Allocate(PanelBytes(format, k)).value()),
        matrix{.format = format, .n = 16, .k = k, .data = memory.data()} {
    PackPanel(format, k, rows, memory.data());
  }
};

TEST(Formats, PanelBytesAreWhatTheLayoutSays) {
  EXPECT_EQ(PanelBytes(WeightFormat::kF32, 7), 7u * 64);
  EXPECT_EQ(PanelBytes(WeightFormat::kF16, 7), 7u * 32);
  EXPECT_EQ(PanelBytes(WeightFormat::kBf16, 7), 4u * 64);
  EXPECT_EQ(PanelBytes(WeightFormat::kInt8Group32, 64), 2u * (512 + 32));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt8Group32, 96), 128u + 3 * 512);  // three scales, and half a line of nothing
  EXPECT_EQ(PanelBytes(WeightFormat::kInt8Group32F32, 64), 2u * (512 + 64));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt8Group32Min, 64), 2u * (512 + 128));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt6Super, 256), 32u + 16 * 16 + 32 + 16 * (128 + 64));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt5Group32, 64), 2u * (256 + 64 + 32));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt5Super, 512), 2u * (64 + 8 * 32 + 8 * (256 + 64)));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt4Group32, 320), 8u * (256 + 32) + 2 * (256 + 32));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt4Group32Min, 64), 2u * (256 + 32 + 64));
  EXPECT_EQ(PanelBytes(WeightFormat::kInt4Super, 256), 64u + 8 * 32 + 8 * 256);
  EXPECT_EQ(PanelBytes(WeightFormat::kInt4Super16, 256), 64u + 16 * 32 + 16 * 128);
  EXPECT_EQ(PanelBytes(WeightFormat::kIq4Group32, 32), 256u + 64);
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
      const Panel panel(format, k, rows);
      std::vector<float> out(static_cast<std::size_t>(k));
      for (std::int64_t r = 0; r < 16; ++r) {
        UnpackRow(panel.matrix, r, out.data());
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
  for (const WeightFormat format : kAllWeightFormats) {
    const FormatTraits& traits = Traits(format);
    if (!traits.integer) continue;
    const bool is_super = traits.scale == ScaleType::kSuper;
    const std::int64_t k = is_super ? 512 : 352, groups = k / traits.group, coarse = is_super ? k / 256 : groups;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(16 * k));
    for (auto& c : codes) c = static_cast<std::uint8_t>(rng() % static_cast<unsigned>(traits.code_max + 1));
    for (std::size_t i = 0; traits.sparse && i < codes.size(); i += 4) {
      const std::size_t pattern = rng() % kSparsePatterns.size();
      for (int place = 0; place < 4; ++place) {
        if (!IsStored(pattern, place)) codes[i + static_cast<std::size_t>(place)] = 128;
      }
    }
    std::vector<float> scales(static_cast<std::size_t>(16 * coarse)), mins(scales.size());
    for (auto& s : scales) s = ToFloat(ToF16(static_cast<float>(rng() % 1000) * 1e-4f));
    for (auto& m : mins) m = ToFloat(ToF16(static_cast<float>(rng() % 1000) * 1e-3f));
    std::vector<std::int8_t> scale_codes(static_cast<std::size_t>(16 * groups)), min_codes(scale_codes.size());
    for (auto& s : scale_codes) s = static_cast<std::int8_t>(rng() % 256);
    for (auto& m : min_codes) m = static_cast<std::int8_t>(rng() % 256);
    std::vector<WeightRow> rows(16);
    for (std::int64_t r = 0; r < 16; ++r) {
      rows[static_cast<std::size_t>(r)] = {.codes = codes.data() + r * k,
                                           .scales = scales.data() + r * coarse,
                                           .mins = mins.data() + r * coarse,
                                           .scale_codes = scale_codes.data() + r * groups,
                                           .min_codes = min_codes.data() + r * groups};
    }
    const Panel panel(format, k, rows);
    std::vector<float> out(static_cast<std::size_t>(k));
    for (std::int64_t r = 0; r < 16; ++r) {
      UnpackRow(panel.matrix, r, out.data());
      for (std::int64_t i = 0; i < k; ++i) {
        const auto group = static_cast<std::size_t>(r * groups + i / traits.group);
        const auto big = static_cast<std::size_t>(r * coarse + i / (is_super ? 256 : traits.group));
        const int code = codes[static_cast<std::size_t>(r * k + i)];
        const auto integer =
            static_cast<float>(traits.table != nullptr ? traits.table[code] : code - traits.zero_point);
        const float scale = is_super ? scales[big] * static_cast<float>(scale_codes[group]) : scales[big];
        const float min = is_super ? mins[big] * static_cast<float>(min_codes[group]) : mins[big];
        const float expected = traits.min == ScaleType::kNone ? scale * integer : scale * integer - min;
        ASSERT_EQ(out[static_cast<std::size_t>(i)], expected) << traits.name << " row " << r << " element " << i;
      }
    }
  }
}

TEST(Formats, ScaledFloatsComeBackAsScaleTimesValue) {
  std::mt19937 rng(9);
  for (const WeightFormat format : {WeightFormat::kFp8E4m3, WeightFormat::kFp8E5m2, WeightFormat::kNf4}) {
    const FormatTraits& traits = Traits(format);
    const std::int64_t k = 301, groups = (k + traits.group - 1) / traits.group;  // the last group is short, and odd
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(16 * k));
    for (auto& c : codes) {
      do c = static_cast<std::uint8_t>(rng() % static_cast<unsigned>(traits.code_max + 1));
      while (!std::isfinite(CodeValue(format, c)));
    }
    std::vector<float> scales(static_cast<std::size_t>(16 * groups));
    for (auto& s : scales) s = static_cast<float>(rng() % 1000) * 1e-3f;
    std::vector<WeightRow> rows(16);
    for (std::int64_t r = 0; r < 16; ++r) {
      rows[static_cast<std::size_t>(r)] = {.codes = codes.data() + r * k, .scales = scales.data() + r * groups};
    }
    const Panel panel(format, k, rows);
    std::vector<float> out(static_cast<std::size_t>(k));
    for (std::int64_t r = 0; r < 16; ++r) {
      UnpackRow(panel.matrix, r, out.data());
      for (std::int64_t i = 0; i < k; ++i) {
        const float value = CodeValue(format, codes[static_cast<std::size_t>(r * k + i)]);
        const float expected = scales[static_cast<std::size_t>(r * groups + i / traits.group)] * value;
        ASSERT_EQ(out[static_cast<std::size_t>(i)], expected) << traits.name << " row " << r << " element " << i;
      }
    }
  }
  EXPECT_EQ(CodeValue(WeightFormat::kFp8E4m3, 0x7E), 448);
  EXPECT_EQ(CodeValue(WeightFormat::kFp8E4m3, 0x81), -0x1p-9f);
  EXPECT_EQ(CodeValue(WeightFormat::kFp8E5m2, 0x7B), 57344);
  EXPECT_EQ(CodeValue(WeightFormat::kFp8E5m2, 0x01), 0x1p-16f);
  EXPECT_EQ(CodeValue(WeightFormat::kNf4, 7), 0);
  EXPECT_EQ(PanelBytes(WeightFormat::kFp8E4m3, 301), 2u * (64 + 128 * 16) + 64 + 46 * 16);
  EXPECT_EQ(PanelBytes(WeightFormat::kNf4, 128), 2u * (64 + 64 * 8));
}

TEST(Formats, SparseFloatsComeBackWhereTheyWere) {
  const std::vector<float> w = {0, 1, 0, -2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 5};  // two, one, none, two of four
  const WeightRow row{.values = w.data()};
  auto panel = AlignedBuffer::Allocate(PanelBytes(WeightFormat::kBf16Sparse24, 16)).value();
  EXPECT_EQ(panel.size(), 4u * 80);
  PackPanel(WeightFormat::kBf16Sparse24, 16, {&row, 1}, panel.data());
  EXPECT_EQ(std::to_integer<int>(panel.data()[64]), 4);           // places 1 and 3
  EXPECT_EQ(std::to_integer<int>(panel.data()[3 * 80 + 64]), 5);  // places 2 and 3
  const PackedMatrix matrix{.format = WeightFormat::kBf16Sparse24, .n = 1, .k = 16, .data = panel.data()};
  std::vector<float> out(16, 7.0f);
  UnpackRow(matrix, 0, out.data());
  EXPECT_EQ(out, w);
}

// One group of 32 or 16 written by hand: which bits of which byte a code is in.
TEST(Formats, CodesLieWhereTheLayoutSays) {
  const auto pack = [](WeightFormat format, std::int64_t k, int column, std::vector<std::uint8_t> codes) {
    const std::vector<float> ones(static_cast<std::size_t>(k), 1.0f);
    const std::vector<std::int8_t> fine(static_cast<std::size_t>(k), 1);
    codes.resize(static_cast<std::size_t>(k));
    std::vector<WeightRow> rows(16);
    const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(k));
    for (int r = 0; r < 16; ++r) {
      rows[static_cast<std::size_t>(r)] = {.codes = r == column ? codes.data() : zeros.data(),
                                           .scales = ones.data(),
                                           .mins = ones.data(),
                                           .scale_codes = fine.data(),
                                           .min_codes = fine.data()};
    }
    auto panel = AlignedBuffer::Allocate(PanelBytes(format, k)).value();
    PackPanel(format, k, rows, panel.data());
    return panel;
  };
  const auto byte = [](const AlignedBuffer& panel, std::size_t at) { return std::to_integer<int>(panel.data()[at]); };
  // Elements 1 and 5 of output 2: byte 2 · 4 + 1 of quads 0 and 1.
  const AlignedBuffer four = pack(WeightFormat::kInt4Group32, 32, 2, {0, 0xA, 0, 0, 0, 0xC});
  EXPECT_EQ(byte(four, 64 + 9), 0xCA);  // after 32 bytes of scales and as many of padding
  const AlignedBuffer five = pack(WeightFormat::kInt5Group32, 32, 2, {0, 0x1A, 0, 0, 0, 0x0C, 0, 0, 0, 0x10});
  EXPECT_EQ(byte(five, 64 + 9), 0xCA);
  EXPECT_EQ(byte(five, 64 + 64 + 9), 0x00);
  EXPECT_EQ(byte(five, 64 + 256 + 9), 0b101);  // bit q is the fifth bit in quad q
  const AlignedBuffer six = pack(WeightFormat::kInt6Super, 256, 2, {0, 0x2A, 0, 0, 0, 0x1C, 0, 0, 0, 0x30});
  EXPECT_EQ(byte(six, 320 + 9), 0xCA);
  EXPECT_EQ(byte(six, 320 + 128 + 9), 0b110110);  // two bits for each quad
  const AlignedBuffer eight = pack(WeightFormat::kInt8Group32, 32, 2, {0, 0xAB, 0, 0, 0, 0xCD});
  EXPECT_EQ(byte(eight, 64 + 9), 0xAB);
  EXPECT_EQ(byte(eight, 64 + 64 + 9), 0xCD);
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

}  // namespace
}  // namespace quire::kernels
