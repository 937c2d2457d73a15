#include "kernels/kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "kernels/weight_layout.h"

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
  std::vector<std::int8_t> scale_codes, min_codes;

  RandomRow(WeightFormat format, std::int64_t k, Random* random) {
    const FormatTraits& traits = Traits(format);
    const auto size = static_cast<std::size_t>(k);
    if (traits.code_bits == 0) {
      values.resize(size);
      for (float& value : values) value = random->Uniform(-0.05f, 0.05f);
      if (traits.sparse) ForUnstored(k, random, [&](std::size_t i) { values[i] = 0; });
      return;
    }
    codes.resize(size);
    const auto num_codes = static_cast<std::uint64_t>(traits.code_max) + 1;
    for (std::uint8_t& code : codes) {
      code = static_cast<std::uint8_t>(random->Next() % num_codes);
      if (IsScaledFloat(traits) && !std::isfinite(CodeValue(format, code))) code = 0;
    }
    if (traits.sparse) ForUnstored(k, random, [&](std::size_t i) { codes[i] = 128; });
    const bool is_super = traits.scale == ScaleType::kSuper;
    const auto group = static_cast<std::size_t>(traits.group);
    const std::size_t groups = (size + group - 1) / group;
    scales.resize(is_super ? size / 256 : groups);
    mins.resize(scales.size());
    for (float& scale : scales) scale = ToFloat(ToF16(random->Uniform(1e-4f, 1e-3f)));
    for (float& min : mins) min = ToFloat(ToF16(random->Uniform(-1e-3f, 1e-2f)));
    if (!is_super) return;
    scale_codes.resize(groups);
    min_codes.resize(groups);
    // Two's complement where there is no minimum (Q6_K), 6 bits where there is one (Q4_K).
    const int lowest = traits.min == ScaleType::kNone ? -128 : 0, count = traits.min == ScaleType::kNone ? 256 : 64;
    const auto draw = [&] { return static_cast<std::int8_t>(lowest + static_cast<int>(random->Next() % count)); };
    for (std::int8_t& code : scale_codes) code = draw();
    for (std::int8_t& code : min_codes) code = draw();
  }

  // Calls body with two of every four places.
  template <typename Body>
  static void ForUnstored(std::int64_t k, Random* random, Body body) {
    for (std::int64_t quad = 0; quad < k / 4; ++quad) {
      const std::size_t pattern = random->Next() % kSparsePatterns.size();
      for (int place = 0; place < 4; ++place) {
        if (!IsStored(pattern, place)) body(static_cast<std::size_t>(quad * 4 + place));
      }
    }
  }

  WeightRow View() const {
    return {.values = values.data(),
            .codes = codes.data(),
            .scales = scales.data(),
            .mins = mins.data(),
            .scale_codes = scale_codes.data(),
            .min_codes = min_codes.data()};
  }

  float Magnitude(WeightFormat format, std::size_t i) const {
    const FormatTraits& traits = Traits(format);
    if (traits.code_bits == 0) return std::abs(values[i]) * 1.01f;  // before it was rounded to its type
    const std::size_t group = i / static_cast<std::size_t>(traits.group);
    if (!traits.integer) return std::abs(scales[group] * CodeValue(format, codes[i]));
    const auto value = [&](ScaleType type, const std::vector<float>& coarse, const std::vector<std::int8_t>& fine) {
      if (type == ScaleType::kNone) return 0.0f;
      return type == ScaleType::kSuper ? coarse[i / 256] * static_cast<float>(fine[group]) : coarse[group];
    };
    const int integer = traits.table != nullptr ? traits.table[codes[i]] : codes[i] - traits.zero_point;
    return std::abs(value(traits.scale, scales, scale_codes) * static_cast<float>(integer)) +
           std::abs(value(traits.min, mins, min_codes));
  }
};

constexpr ModelShape kRealModels[] = {
    {"qwen2.5-0.5b", 896, 4864, 14, 2, 64, 151936},
    {"qwen3-0.6b", 1024, 3072, 16, 8, 128, 151936},
    {"llama-3.2-1b", 2048, 8192, 32, 8, 64, 128256},
};

// The layers of one block and the head, as quire multiplies them (Q, K and V together, gate and up together).
constexpr auto kRealProjections = [] {
  std::array<ProjectionShape, std::size(kRealModels) * 5> projections{};
  std::size_t i = 0;
  for (const ModelShape& model : kRealModels) {
    projections[i++] = {model.name, "qkv_proj", model.qkv_size(), model.hidden_size};
    projections[i++] = {model.name, "o_proj", model.hidden_size, model.q_size()};
    projections[i++] = {model.name, "gate_up_proj", 2 * model.intermediate_size, model.hidden_size};
    projections[i++] = {model.name, "down_proj", model.hidden_size, model.intermediate_size};
    projections[i++] = {model.name, "lm_head", model.vocab_size, model.hidden_size};
  }
  return projections;
}();

}  // namespace

Result<RandomMatrix> MakeRandomMatrix(WeightFormat format, std::int64_t n, std::int64_t k, std::uint64_t seed,
                                      bool with_magnitudes) {
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
        matrix.magnitudes.push_back(rows.back().Magnitude(format, static_cast<std::size_t>(i)));
      }
    }
    for (const RandomRow& row : rows) views.push_back(row.View());
    PackPanel(format, k, views, matrix.memory.data() + static_cast<std::size_t>(panel) * panel_bytes);
  }
  return matrix;
}

std::span<const ModelShape> RealModels() {
  return kRealModels;
}

std::span<const ProjectionShape> RealProjections() {
  return kRealProjections;
}

BlockTables MakeBlockTables(std::span<const CachedSequence> sequences, std::uint64_t seed) {
  constexpr std::int64_t kBlock = KvLayout::block_size;
  BlockTables tables;
  for (const CachedSequence& sequence : sequences) {
    std::vector<std::int32_t> own;
    if (!tables.blocks.empty()) {
      const std::vector<std::int32_t>& before = tables.blocks.back();
      own.assign(before.begin(), before.begin() + sequence.shared_tokens / kBlock);
    }
    while (static_cast<std::int64_t>(own.size()) * kBlock < sequence.length) own.push_back(tables.num_blocks++);
    tables.blocks.push_back(std::move(own));
  }
  std::vector<std::int32_t> places(static_cast<std::size_t>(tables.num_blocks));
  std::iota(places.begin(), places.end(), 0);
  Random random(seed);
  for (std::size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[random.Next() % i]);
  for (std::vector<std::int32_t>& blocks : tables.blocks) {
    for (std::int32_t& block : blocks) block = places[static_cast<std::size_t>(block)];
  }
  return tables;
}

void FillRandomBlocks(const KvLayout& layout, std::int32_t num_blocks, std::uint64_t seed, std::byte* pool) {
  constexpr std::int64_t kBlock = KvLayout::block_size;
  constexpr float kLargest = 1.7320508f;
  const std::int64_t stride = std::int64_t{layout.num_kv_heads} * layout.head_dim;
  const std::size_t layer_bytes = layout.tile_offset(1, 0);
  Random random(seed);
  std::vector<float> k(static_cast<std::size_t>(kBlock * stride)), v(k.size());
  std::vector<std::int64_t> slots(kBlock);
  for (std::int64_t block = 0; block < num_blocks; ++block) {
    for (float& x : k) x = random.Uniform(-kLargest, kLargest);
    for (float& x : v) x = random.Uniform(-kLargest, kLargest);
    std::iota(slots.begin(), slots.end(), block * kBlock);
    ReferenceKernels().store_kv({.layout = &layout,
                                 .pool = pool,
                                 .num_tokens = kBlock,
                                 .slots = slots.data(),
                                 .k = k.data(),
                                 .v = v.data(),
                                 .stride = stride});
    std::byte* first = pool + static_cast<std::size_t>(block) * layout.block_bytes();
    for (std::size_t layer = 1; layer < static_cast<std::size_t>(layout.num_layers); ++layer) {
      std::memcpy(first + layer * layer_bytes, first, layer_bytes);
    }
  }
}

}  // namespace quire::kernels
