#include "weights/quantizing_matrix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/float8.h"
#include "kernels/weight_layout.h"
#include "weights/quantize.h"
#include "weights/tensor_names.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;

constexpr float kFp8Largest = 448;
constexpr std::int64_t kFp8Group = kernels::kFormatTraits[static_cast<std::size_t>(WeightFormat::kFp8E4m3)].group;

// What the two ways to store a row share: reading it, and comparing.
class QuantizingMatrix : public MatrixSource {
 public:
  QuantizingMatrix(std::unique_ptr<MatrixSource> floats, std::string_view type_name, WeightFormat packed,
                   std::span<RowError> errors)
      : MatrixSource(InfoOf(floats->info(), type_name, packed)), floats_(std::move(floats)), errors_(errors) {
    CHECK(static_cast<std::int64_t>(errors.size()) == info().rows);
  }

  Result<> Decode(std::int64_t row, RowBuffer* out) const final {
    QUIRE_TRY(const std::vector<float> values, ReadFinite(row));
    std::vector<float> stored(values.size());
    Encode(values, out, stored.data());
    RowError error;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i], difference = static_cast<double>(stored[i]) - value;
      error.squared_error += difference * difference;
      error.squared_norm += value * value;
    }
    errors_[static_cast<std::size_t>(row)] = error;
    return {};
  }

  Result<> Dequantize(std::int64_t row, float* out) const final {
    QUIRE_TRY(const std::vector<float> values, ReadFinite(row));
    RowBuffer buffer;
    Encode(values, &buffer, out);
    return {};
  }

 private:
  // Codes and scales of the finite `values`, and the floats that those stand for, `stored` [columns].
  virtual void Encode(std::span<const float> values, RowBuffer* out, float* stored) const = 0;

  static MatrixInfo InfoOf(MatrixInfo info, std::string_view type_name, WeightFormat packed) {
    info.type_name = type_name;
    info.packed = packed;
    return info;
  }

  // Quantisers are defined for finite floats only.
  Result<std::vector<float>> ReadFinite(std::int64_t row) const {
    std::vector<float> values(static_cast<std::size_t>(info().columns));
    QUIRE_TRY_VOID(floats_->Dequantize(row, values.data()));
    const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
    if (bad == values.end()) return values;
    return Fail(ErrorCode::kCorrupt, "tensor {}: row {}, column {} is {}; finite numbers are wanted", info().name, row,
                bad - values.begin(), *bad);
  }

  const std::unique_ptr<MatrixSource> floats_;
  const std::span<RowError> errors_;  // [rows]
};

// Through the blocks of a storage type, so that panels hold what a file of that type would give.
class BlockQuantizingMatrix final : public QuantizingMatrix {
 public:
  BlockQuantizingMatrix(std::unique_ptr<MatrixSource> floats, const TypeTraits& type, std::span<RowError> errors)
      : QuantizingMatrix(std::move(floats), type.name, type.packed, errors), type_(type) {}

 private:
  void Encode(std::span<const float> values, RowBuffer* out, float* stored) const override {
    const auto columns = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> blocks(static_cast<std::size_t>(columns / type_.block_elements * type_.block_bytes));
    type_.quantize_row(values.data(), columns, blocks.data());
    type_.decode_row(blocks.data(), columns, out);
    type_.dequantize_row(blocks.data(), columns, stored);
  }

  const TypeTraits& type_;
};

// E4M3 with one scale for 128 inputs, which makes their largest weight the largest code.
class Fp8QuantizingMatrix final : public QuantizingMatrix {
 public:
  Fp8QuantizingMatrix(std::unique_ptr<MatrixSource> floats, std::span<RowError> errors)
      : QuantizingMatrix(std::move(floats), "FP8 E4M3", WeightFormat::kFp8E4m3, errors) {}

 private:
  void Encode(std::span<const float> values, RowBuffer* out, float* stored) const override {
    const auto group = static_cast<std::size_t>(kFp8Group);
    out->codes.resize(values.size());
    out->scales.resize(values.size() / group);
    for (std::size_t begin = 0; begin < values.size(); begin += group) {
      float largest = 0;
      for (const float value : values.subspan(begin, group)) largest = std::max(largest, std::fabs(value));
      const float scale = largest / kFp8Largest;  // 0 for zeros, and for what is too small to have a scale
      out->scales[begin / group] = scale;
      for (std::size_t i = begin; i < begin + group; ++i) {
        const Fp8E4m3 code = scale > 0 ? ToFp8E4m3(values[i] / scale) : Fp8E4m3{};
        out->codes[i] = code.bits;
        stored[i] = ToFloat(code) * scale;
      }
    }
  }
};

const TypeTraits& BlockTypeOf(const GgufFileType& mix, const ModelConfig& config, std::string_view gguf_name,
                              std::int64_t columns) {
  std::string ignored;  // the report says what each matrix became
  return TypeInMix(mix, config, gguf_name, /*dimensions=*/2, columns, &ignored);
}

bool IsOutput(const ModelConfig& config, std::string_view gguf_name) {
  return gguf_name == "output.weight" || (config.tie_word_embeddings && gguf_name == "token_embd.weight");
}

}  // namespace

std::string_view QuantizationName(Quantization quantization) {
  switch (quantization) {
    case Quantization::kNone:
      return "none";
    case Quantization::kInt8:
      return "int8";
    case Quantization::kInt4:
      return "int4";
    case Quantization::kFp8:
      return "fp8";
  }
  return "";
}

Result<Quantization> ParseQuantization(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Quantization quantization : kQuantizations) {
    if (name == QuantizationName(quantization)) return quantization;
    names.push_back(QuantizationName(quantization));
  }
  return Fail(ErrorCode::kInvalidArgument,
              "unknown quantization \"{}\"; known are {}. (What a model is quantised with already needs no flag.)",
              name, fmt::join(names, ", "));
}

const GgufFileType* GgufMixOf(Quantization quantization) {
  switch (quantization) {
    case Quantization::kInt8:
      return FindGgufFileType("Q8_0");
    case Quantization::kInt4:
      return FindGgufFileType("Q4_K_M");
    case Quantization::kNone:
    case Quantization::kFp8:
      return nullptr;
  }
  return nullptr;
}

double MatrixError::relative_rms() const {
  return squared_norm > 0 ? std::sqrt(squared_error / squared_norm) : 0;
}

MatrixError SumErrors(const MatrixInfo& info, std::span<const RowError> rows) {
  MatrixError sum{.name = info.name, .type = info.type_name};
  for (const RowError& row : rows) {
    sum.squared_error += row.squared_error;
    sum.squared_norm += row.squared_norm;
  }
  return sum;
}

MatrixError SumErrors(std::span<const MatrixError> matrices) {
  MatrixError sum{.name = fmt::format("{} matri{}", matrices.size(), matrices.size() == 1 ? "x" : "ces")};
  for (const MatrixError& matrix : matrices) {
    sum.squared_error += matrix.squared_error;
    sum.squared_norm += matrix.squared_norm;
  }
  return sum;
}

std::string QuantizationTable(std::span<const MatrixError> matrices) {
  std::vector<MatrixError> sorted(matrices.begin(), matrices.end());
  std::ranges::sort(sorted, [](const MatrixError& a, const MatrixError& b) {
    const double first = a.relative_rms(), second = b.relative_rms();
    return first != second ? first > second : a.name < b.name;
  });
  std::string text = "matrix\ttype\trelative_rms_error\n";
  for (const MatrixError& matrix : sorted) {
    text += fmt::format("{}\t{}\t{:.6f}\n", matrix.name, matrix.type, matrix.relative_rms());
  }
  return text;
}

Result<> CheckNotQuantized(const ModelSource& source, Quantization quantization) {
  const auto fail = [&](const std::string& what) {
    return FailParam("quantization", "{} is for models in F32, F16 or BF16, but {}; it can be loaded as it is",
                     QuantizationName(quantization), what);
  };
  if (source.config().quantization) {
    return fail(fmt::format("this one is quantised already ({})", source.config().quantization->name));
  }
  for (const TensorSource& tensor : source.tensors()) {
    if (tensor.type->block_elements == 1) continue;
    return fail(fmt::format("tensor {} of this one is {} already", tensor.name, tensor.type->name));
  }
  return {};
}

std::unique_ptr<MatrixSource> QuantizeMatrix(std::unique_ptr<MatrixSource> matrix, const ModelSource& source,
                                             Quantization quantization, std::span<RowError> errors) {
  if (quantization == Quantization::kNone) return matrix;
  const std::int64_t columns = matrix->info().columns;
  const std::string gguf_name = source.is_gguf() ? matrix->info().name : GgufTensorName(matrix->info().name);
  const GgufFileType* mix = GgufMixOf(quantization);
  if (mix == nullptr) {
    // The logits get the head's error undiminished: at the same size, Q8_0 has 7 bits where E4M3 has 3.
    if (columns % kFp8Group == 0 && !IsOutput(source.config(), gguf_name)) {
      return std::make_unique<Fp8QuantizingMatrix>(std::move(matrix), errors);
    }
    mix = GgufMixOf(Quantization::kInt8);
  }
  const TypeTraits& type = BlockTypeOf(*mix, source.config(), gguf_name, columns);
  if (type.block_elements == 1) return matrix;
  return std::make_unique<BlockQuantizingMatrix>(std::move(matrix), type, errors);
}

}  // namespace quire::weights
