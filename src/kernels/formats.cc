// Packing of weights into panels and back. Scalar, the same on every tier; weight_layout.h says where everything lies.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/float8.h"
#include "kernels/kernel_table.h"
#include "kernels/weight_layout.h"

namespace quire::kernels {
namespace {

template <typename T>
void StoreAt(std::byte* base, std::int64_t index, T value) {
  std::memcpy(base + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T>
T LoadAt(const std::byte* base, std::int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

int NumElements(std::int64_t k, std::int64_t block) {
  return static_cast<int>(std::min<std::int64_t>(kWeightBlock, k - block * kWeightBlock));
}

// Where block `index` begins in its panel; all blocks before it are whole.
std::size_t BlockOffset(const FormatTraits& traits, std::int64_t index) {
  return BlockLayout(traits, kWeightBlock / traits.group).bytes * static_cast<std::size_t>(index);
}

// The four codes of one output in quad `quad` are four neighbouring bytes, `column` · 4 from the quad's beginning, or the
// same bits of four: they move together.
std::size_t LowerPlace(const FormatTraits& traits, int quad, int column) {
  return static_cast<std::size_t>((traits.code_bits == 8 ? quad : quad / 2) * 64 + column * 4);
}
std::size_t UpperPlace(const FormatTraits& traits, int column) {
  return static_cast<std::size_t>(traits.group * kPanelWidth / 2 + column * 4);
}

// The pattern that holds all of four weights that are not zero. There is one: whoever packs has checked it.
template <typename IsZero>
std::size_t SparsePattern(IsZero is_zero) {
  for (std::size_t pattern = 0; pattern < kSparsePatterns.size(); ++pattern) {
    bool holds_all = true;
    for (int place = 0; place < 4; ++place) holds_all = holds_all && (IsStored(pattern, place) || is_zero(place));
    if (holds_all) return pattern;
  }
  CHECK(false);
  return 0;
}

// A quad of kInt8Sparse24: stored values, and where the patterns of the quad and of its neighbour are.
std::size_t SparsePatternPlace(const FormatTraits& traits, int quad, int column) {
  return static_cast<std::size_t>(traits.group * kPanelWidth / 2 + quad / 2 * kPanelWidth + column);
}
void StoreSparseQuad(const FormatTraits& traits, int quad, int column, const std::uint8_t* four, std::byte* codes) {
  const std::size_t pattern = SparsePattern([&](int place) { return four[place] == 0x80; });
  for (std::size_t stored = 0; stored < 2; ++stored) {
    const std::uint8_t code = four[kSparsePatterns[pattern][stored]];
    codes[static_cast<std::size_t>(quad * 32 + column * 2) + stored] = static_cast<std::byte>(code ^ 0x80);
  }
  codes[SparsePatternPlace(traits, quad, column)] |= static_cast<std::byte>(pattern << (quad % 2 * 4));
}
int LoadSparseCode(const FormatTraits& traits, int element, int column, const std::byte* codes) {
  const int quad = element / 4;
  const int pattern = std::to_integer<int>(codes[SparsePatternPlace(traits, quad, column)]) >> (quad % 2 * 4) & 15;
  for (std::size_t stored = 0; stored < 2; ++stored) {
    if (kSparsePatterns[static_cast<std::size_t>(pattern)][stored] != element % 4) continue;
    return std::to_integer<int>(codes[static_cast<std::size_t>(quad * 32 + column * 2) + stored]) ^ 0x80;
  }
  return 0x80;
}

// Into bits that are zero.
void StoreQuad(const FormatTraits& traits, int quad, int column, std::uint32_t four, std::byte* codes) {
  const auto put = [&](std::size_t place, std::uint32_t bits) {
    StoreAt(codes + place, 0, LoadAt<std::uint32_t>(codes + place, 0) | bits);
  };
  const std::size_t lower = LowerPlace(traits, quad, column);
  if (traits.code_bits == 8) return put(lower, four);
  put(lower, (four & 0x0F0F0F0F) << (quad % 2 * 4));
  if (traits.code_bits > 4)
    put(UpperPlace(traits, column), (four >> 4 & 0x03030303) << ((traits.code_bits - 4) * quad));
}

int LoadCode(const FormatTraits& traits, int element, int column, const std::byte* codes) {
  if (traits.sparse) return LoadSparseCode(traits, element, column, codes);
  const int quad = element / 4, upper_bits = traits.code_bits - 4;
  const auto byte = [&](std::size_t place) {
    return std::to_integer<int>(codes[place + static_cast<std::size_t>(element % 4)]);
  };
  const int lower = byte(LowerPlace(traits, quad, column));
  if (traits.code_bits == 8) return lower;
  const int nibble = lower >> (quad % 2 * 4) & 15;
  if (upper_bits == 0) return nibble;
  return nibble | (byte(UpperPlace(traits, column)) >> (upper_bits * quad) & ((1 << upper_bits) - 1)) << 4;
}

// Scales, or minima: `group_values` is where those of the groups begin and `block_values` that of the block.
void StoreScale(ScaleType type, const float* values, const std::int8_t* codes, std::int64_t block, int groups_in_block,
                int group, int column, std::byte* block_values, std::byte* group_values) {
  const std::int64_t index = block * groups_in_block + group, place = group * kPanelWidth + column;
  switch (type) {
    case ScaleType::kNone:
      return;
    case ScaleType::kF16:
      return StoreAt(group_values, place, ToF16(values[index]).bits);
    case ScaleType::kF32:
      return StoreAt(group_values, place, values[index]);
    case ScaleType::kSuper:
      StoreAt(block_values, column, ToF16(values[block]).bits);
      return StoreAt(group_values, place, codes[index]);
  }
}

float LoadScale(ScaleType type, int group, int column, const std::byte* block_values, const std::byte* group_values) {
  const std::int64_t place = group * kPanelWidth + column;
  switch (type) {
    case ScaleType::kNone:
      return 0;
    case ScaleType::kF16:
      return ToFloat(F16{LoadAt<std::uint16_t>(group_values, place)});
    case ScaleType::kF32:
      return LoadAt<float>(group_values, place);
    case ScaleType::kSuper:  // exact: 11 bits by 8
      return ToFloat(F16{LoadAt<std::uint16_t>(block_values, column)}) *
             static_cast<float>(LoadAt<std::int8_t>(group_values, place));
  }
  return 0;
}

void PackFloatRow(WeightFormat format, std::int64_t k, const float* values, int column, std::byte* panel) {
  CHECK(values != nullptr || k == 0);
  for (std::int64_t i = 0; i < k; ++i) {
    if (format == WeightFormat::kF32) {
      StoreAt(panel, i * kPanelWidth + column, values[i]);
    } else if (format == WeightFormat::kF16) {
      StoreAt(panel, i * kPanelWidth + column, ToF16(values[i]).bits);
    } else {
      StoreAt(panel, (i / 2 * kPanelWidth + column) * 2 + i % 2, ToBf16(values[i]).bits);
    }
  }
}

void PackSparseFloatRow(std::int64_t k, const float* values, int column, std::byte* panel) {
  CHECK(values != nullptr || k == 0);
  for (std::int64_t quad = 0; quad < k / 4; ++quad, panel += kBf16SparseQuadBytes) {
    const float* four = values + quad * 4;
    const std::size_t pattern = SparsePattern([&](int place) { return four[place] == 0; });
    for (std::size_t stored = 0; stored < 2; ++stored) {
      StoreAt(panel, column * 2 + static_cast<int>(stored), ToBf16(four[kSparsePatterns[pattern][stored]]).bits);
    }
    panel[64 + column] = static_cast<std::byte>(pattern);
  }
}

void UnpackSparseFloatRow(const PackedMatrix& matrix, const std::byte* panel, int column, float* out) {
  for (std::int64_t quad = 0; quad < matrix.k / 4; ++quad, panel += kBf16SparseQuadBytes) {
    for (int i = 0; i < 4; ++i) out[quad * 4 + i] = Bf16SparseWeight(panel, i, column);
  }
}

void PackScaledRow(WeightFormat format, std::int64_t k, const WeightRow& row, int column, std::byte* panel) {
  CHECK(row.codes != nullptr && row.scales != nullptr);
  const ScaledGroup layout(format);
  for (std::int64_t group = 0; group * layout.elements < k; ++group, panel += layout.bytes) {
    StoreAt(panel, column, row.scales[group] * ScaleFactor(format));
    const std::int64_t begin = group * layout.elements, end = std::min(k, begin + layout.elements);
    for (std::int64_t i = begin; i < end; ++i) {
      std::byte* pair = panel + layout.codes + static_cast<std::size_t>((i - begin) / 2) * layout.pair_bytes;
      const std::byte code{row.codes[i]};
      if (layout.pair_bytes == kPanelWidth) {
        CHECK(row.codes[i] < 16);
        pair[column] |= i % 2 == 0 ? code : code << 4;
      } else {
        pair[i % 2 * kPanelWidth + column] = code;
      }
    }
  }
}

void UnpackScaledRow(const PackedMatrix& matrix, const std::byte* panel, int column, float* out) {
  const ScaledGroup layout(matrix.format);
  for (std::int64_t i = 0; i < matrix.k; ++i) {
    const std::byte* group = panel + static_cast<std::size_t>(i / layout.elements) * layout.bytes;
    const int code = ScaledCode(layout, group, i % layout.elements, column);
    const float scale = LoadAt<float>(group, column) / ScaleFactor(matrix.format);
    out[i] = scale * CodeValue(matrix.format, static_cast<std::uint8_t>(code));
  }
}

void CheckRow(const FormatTraits& traits, std::int64_t k, const WeightRow& row) {
  CHECK(row.codes != nullptr && row.scales != nullptr);
  CHECK(traits.min == ScaleType::kNone || row.mins != nullptr);
  CHECK(traits.scale != ScaleType::kSuper || row.scale_codes != nullptr);
  CHECK(traits.min != ScaleType::kSuper || row.min_codes != nullptr);
  if (traits.code_max < 255 && k > 0) CHECK(*std::max_element(row.codes, row.codes + k) <= traits.code_max);
}

void PackIntegerRow(const FormatTraits& traits, std::int64_t k, const WeightRow& row, int column, std::byte* panel) {
  CheckRow(traits, k, row);
  const int groups_in_block = kWeightBlock / traits.group;
  for (std::int64_t block = 0; block * kWeightBlock < k; ++block) {
    std::byte* base = panel + BlockOffset(traits, block);
    const int num_elements = NumElements(k, block);
    const BlockLayout layout(traits, num_elements / traits.group);
    for (int group = 0; group < num_elements / traits.group; ++group) {
      StoreScale(traits.scale, row.scales, row.scale_codes, block, groups_in_block, group, column,
                 base + layout.block_scales, base + layout.scales);
      StoreScale(traits.min, row.mins, row.min_codes, block, groups_in_block, group, column, base + layout.block_mins,
                 base + layout.mins);
      std::byte* codes = base + layout.codes + static_cast<std::size_t>(group) * GroupCodeBytes(traits);
      const std::uint8_t* from = row.codes + block * kWeightBlock + group * traits.group;
      for (int quad = 0; quad < traits.group / 4; ++quad) {
        if (traits.sparse) {
          StoreSparseQuad(traits, quad, column, from + quad * 4, codes);
          continue;
        }
        StoreQuad(traits, quad, column, LoadAt<std::uint32_t>(reinterpret_cast<const std::byte*>(from), quad), codes);
      }
    }
  }
}

}  // namespace

BlockView::BlockView(const FormatTraits& traits, const std::byte* panel, std::int64_t k, std::int64_t index)
    : traits_(traits),
      block_(panel + BlockOffset(traits, index)),
      num_elements_(NumElements(k, index)),
      layout_(traits, num_elements_ / traits.group) {}

int BlockView::Code(int element, int column) const {
  const auto group = static_cast<std::size_t>(element / traits_.group);
  return LoadCode(traits_, element % traits_.group, column, block_ + layout_.codes + group * GroupCodeBytes(traits_));
}
float BlockView::Scale(int group, int column) const {
  return LoadScale(traits_.scale, group, column, block_ + layout_.block_scales, block_ + layout_.scales);
}
float BlockView::Min(int group, int column) const {
  return LoadScale(traits_.min, group, column, block_ + layout_.block_mins, block_ + layout_.mins);
}
int BlockView::Integer(int element, int column) const {
  const int code = Code(element, column);
  return traits_.table != nullptr ? traits_.table[code] : code - traits_.zero_point;
}

float Bf16SparseWeight(const std::byte* quad, int i, int column) {
  const auto& places = kSparsePatterns[std::to_integer<std::size_t>(quad[kPanelWidth * 4 + column])];
  for (int stored = 0; stored < 2; ++stored) {
    if (places[static_cast<std::size_t>(stored)] != i) continue;
    return ToFloat(Bf16{LoadAt<std::uint16_t>(quad, column * 2 + stored)});
  }
  return 0;
}

int ScaledCode(const ScaledGroup& layout, const std::byte* group, std::int64_t i, int column) {
  const std::byte* pair = group + layout.codes + static_cast<std::size_t>(i / 2) * layout.pair_bytes;
  if (layout.pair_bytes == kPanelWidth) return std::to_integer<int>(pair[column]) >> (i % 2 * 4) & 15;
  return std::to_integer<int>(pair[i % 2 * kPanelWidth + column]);
}

float CodeValue(WeightFormat format, std::uint8_t code) {
  if (format == WeightFormat::kFp8E4m3) return ToFloat(Fp8E4m3{code});
  if (format == WeightFormat::kFp8E5m2) return ToFloat(Fp8E5m2{code});
  return kNf4Values[code & 15];
}

const FormatTraits& Traits(WeightFormat format) {
  return kFormatTraits[static_cast<std::size_t>(format)];
}

std::size_t PanelBytes(WeightFormat format, std::int64_t k) {
  const auto inner = static_cast<std::size_t>(k);
  const FormatTraits& traits = Traits(format);
  if (format == WeightFormat::kF32) return inner * kPanelWidth * 4;
  if (format == WeightFormat::kF16) return inner * kPanelWidth * 2;
  if (format == WeightFormat::kBf16) return (inner + 1) / 2 * kPanelWidth * 4;
  if (format == WeightFormat::kBf16Sparse24) {
    CHECK(k % 4 == 0);
    return inner / 4 * kBf16SparseQuadBytes;
  }
  if (IsScaledFloat(traits)) {
    const ScaledGroup layout(format);
    const std::int64_t rest = k % layout.elements;
    return layout.bytes * static_cast<std::size_t>(k / layout.elements) +
           (rest == 0 ? 0 : layout.codes + static_cast<std::size_t>((rest + 1) / 2) * layout.pair_bytes);
  }
  CHECK(k % (traits.scale == ScaleType::kSuper ? kWeightBlock : traits.group) == 0);
  const std::int64_t rest = k % kWeightBlock;
  return BlockOffset(traits, k / kWeightBlock) + (rest == 0 ? 0 : BlockLayout(traits, rest / traits.group).bytes);
}

void PackPanel(WeightFormat format, std::int64_t k, std::span<const WeightRow> rows, std::byte* panel) {
  CHECK(rows.size() <= kPanelWidth);
  // Zero codes with a zero scale (and min) are zero weights, whatever the zero point; so are zero floats.
  std::memset(panel, 0, PanelBytes(format, k));
  const FormatTraits& traits = Traits(format);
  for (int column = 0; column < static_cast<int>(rows.size()); ++column) {
    const WeightRow& row = rows[static_cast<std::size_t>(column)];
    if (traits.integer) {
      PackIntegerRow(traits, k, row, column, panel);
    } else if (IsScaledFloat(traits)) {
      PackScaledRow(format, k, row, column, panel);
    } else if (traits.sparse) {
      PackSparseFloatRow(k, row.values, column, panel);
    } else {
      PackFloatRow(format, k, row.values, column, panel);
    }
  }
}

void UnpackRow(const PackedMatrix& matrix, std::int64_t row, float* out) {
  CHECK(0 <= row && row < matrix.n);
  const FormatTraits& traits = Traits(matrix.format);
  const std::byte* panel =
      matrix.data + static_cast<std::size_t>(row / kPanelWidth) * PanelBytes(matrix.format, matrix.k);
  const auto column = static_cast<int>(row % kPanelWidth);
  if (matrix.format == WeightFormat::kBf16Sparse24) return UnpackSparseFloatRow(matrix, panel, column, out);
  if (IsScaledFloat(traits)) return UnpackScaledRow(matrix, panel, column, out);
  if (traits.integer) {
    for (std::int64_t index = 0; index * kWeightBlock < matrix.k; ++index) {
      const BlockView block(traits, panel, matrix.k, index);
      for (int i = 0; i < block.num_elements(); ++i) {
        const int group = i / traits.group;
        const float value = block.Scale(group, column) * static_cast<float>(block.Integer(i, column));
        out[index * kWeightBlock + i] = traits.min == ScaleType::kNone ? value : value - block.Min(group, column);
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < matrix.k; ++i) {
    if (matrix.format == WeightFormat::kF32) {
      out[i] = LoadAt<float>(panel, i * kPanelWidth + column);
    } else if (matrix.format == WeightFormat::kF16) {
      out[i] = ToFloat(F16{LoadAt<std::uint16_t>(panel, i * kPanelWidth + column)});
    } else {
      out[i] = ToFloat(Bf16{LoadAt<std::uint16_t>(panel, (i / 2 * kPanelWidth + column) * 2 + i % 2)});
    }
  }
}

}  // namespace quire::kernels
