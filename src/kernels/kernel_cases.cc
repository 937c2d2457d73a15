#include "kernels/kernel_cases.h"

#include <algorithm>
#include <cmath>

namespace quire::kernels {
namespace {

// splitmix64: enough for test data, and quick for a matrix of 100 million weights.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  float Uniform(float low, float high) { return low + (high - low) * static_cast<float>(Next() >> 40) * 0x1p-24f; }

 private:
  std::uint64_t state_;
};

// One row of random weights in the form that PackPanel takes.
struct RandomRow {
  std::vector<float> values, scales, mins;
  std::vector<std::uint8_t> codes;

  RandomRow(WeightFormat format, std::int64_t k, Random* random) {
    const FormatTraits& traits = Traits(format);
    const auto size = static_cast<std::size_t>(k);
    if (!traits.integer) {
      values.resize(size);
      for (float& value : values) value = random->Uniform(-0.05f, 0.05f);
      return;
    }
    codes.resize(size);
    const std::uint64_t num_codes = traits.zero_point != 0 ? 256 : 16;
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random->Next() % num_codes);
    const std::size_t groups = size / static_cast<std::size_t>(traits.group);
    scales.resize(groups);
    mins.resize(groups);
    for (float& scale : scales) scale = ToFloat(ToF16(random->Uniform(1e-4f, 1e-3f)));
    for (float& min : mins) min = random->Uniform(-1e-3f, 1e-2f);
  }

  WeightRow View() const {
    return {.values = values.data(), .codes = codes.data(), .scales = scales.data(), .mins = mins.data()};
  }

  float Magnitude(const FormatTraits& traits, std::size_t i) const {
    if (!traits.integer) return std::abs(values[i]) * 1.01f;  // before it was rounded to its type
    const std::size_t group = i / static_cast<std::size_t>(traits.group);
    const float min = traits.has_min ? std::abs(mins[group]) : 0.0f;
    return std::abs(scales[group] * static_cast<float>(codes[i] - traits.zero_point)) + min;
  }
};

// The layers of one block and the head, as quire multiplies them (Q, K and V together, gate and up together).
constexpr ProjectionShape kRealProjections[] = {
    {"qwen2.5-0.5b", "qkv_proj", 1152, 896},     {"qwen2.5-0.5b", "o_proj", 896, 896},
    {"qwen2.5-0.5b", "gate_up_proj", 9728, 896}, {"qwen2.5-0.5b", "down_proj", 896, 4864},
    {"qwen2.5-0.5b", "lm_head", 151936, 896},    {"llama-3.2-1b", "qkv_proj", 3072, 2048},
    {"llama-3.2-1b", "o_proj", 2048, 2048},      {"llama-3.2-1b", "gate_up_proj", 16384, 2048},
    {"llama-3.2-1b", "down_proj", 2048, 8192},   {"llama-3.2-1b", "lm_head", 128256, 2048},
};

}  // namespace

Result<RandomMatrix> MakeRandomMatrix(WeightFormat format, std::int64_t n, std::int64_t k, std::uint64_t seed,
                                      bool with_magnitudes) {
  const FormatTraits& traits = Traits(format);
  const std::size_t panel_bytes = PanelBytes(format, k);
  RandomMatrix matrix;
  QUIRE_TRY(matrix.memory, AlignedBuffer::Allocate(static_cast<std::size_t>(NumPanels(n)) * panel_bytes));
  matrix.packed = {.format = format, .n = n, .k = k, .data = matrix.memory.data()};
  Random random(seed);
  for (std::int64_t panel = 0; panel < NumPanels(n); ++panel) {
    std::vector<RandomRow> rows;
    std::vector<WeightRow> views;
    const std::int64_t end = std::min(n, (panel + 1) * kPanelWidth);
    for (std::int64_t row = panel * kPanelWidth; row < end; ++row) {
      rows.emplace_back(format, k, &random);
      for (std::int64_t i = 0; with_magnitudes && i < k; ++i) {
        matrix.magnitudes.push_back(rows.back().Magnitude(traits, static_cast<std::size_t>(i)));
      }
    }
    for (const RandomRow& row : rows) views.push_back(row.View());
    PackPanel(format, k, views, matrix.memory.data() + static_cast<std::size_t>(panel) * panel_bytes);
  }
  return matrix;
}

std::span<const ProjectionShape> RealProjections() {
  return kRealProjections;
}

}  // namespace quire::kernels
