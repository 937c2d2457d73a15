#include "weights/quantizing_matrix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "base/float8.h"
#include "kernels/weight_layout.h"
#include "weights/quantize.h"
#include "weights/tensor_names.h"

namespace quire::weights {
namespace {

using kernels::WeightFormat;

constexpr float kFp8Largest = 448;
constexpr std::int64_t kFp8Group = kernels::kFormatTraits[static_cast<std::size_t>(WeightFormat::kFp8E4m3)].group;

double SquaredNorm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

double SquaredDistance(std::span<const float> first, std::span<const float> second) {
  double sum = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double difference = static_cast<double>(first[i]) - static_cast<double>(second[i]);
    sum += difference * difference;
  }
  return sum;
}

// What the two ways to store a row share: reading it, leaving columns out, and comparing.
class QuantizingMatrix : public MatrixSource {
 public:
  QuantizingMatrix(std::unique_ptr<MatrixSource> floats, std::string_view type_name, WeightFormat packed,
                   std::vector<std::int32_t> kept, std::span<QuantizationError> errors)
      : MatrixSource(InfoOf(floats->info(), type_name, packed)),
        floats_(std::move(floats)),
        kept_(std::move(kept)),
        errors_(errors) {
    CHECK(static_cast<std::int64_t>(errors.size()) == info().rows);
  }

  Result<> Decode(std::int64_t row, RowBuffer* out) const final {
    QUIRE_TRY(const std::vector<float> values, ReadFinite(row));
    std::vector<float> stored(values.size());
    QuantizationError error{.squared_norm = SquaredNorm(values)};
    if (!kept_.empty()) {
      Encode(values, out, stored.data());
      error.all_quantised_error = SquaredDistance(stored, values);
    }
    Encode(WithoutKept(values), out, stored.data());
    for (const std::int32_t column : kept_) {
      const auto i = static_cast<std::size_t>(column);
      stored[i] = ToFloat(ToBf16(values[i]));
    }
    error.squared_error = SquaredDistance(stored, values);
    if (kept_.empty()) error.all_quantised_error = error.squared_error;
    errors_[static_cast<std::size_t>(row)] = error;
    return {};
  }

  Result<> Dequantize(std::int64_t row, float* out) const final {
    QUIRE_TRY(std::vector<float> values, ReadFinite(row));
    RowBuffer buffer;
    Encode(WithoutKept(std::move(values)), &buffer, out);
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

  std::vector<float> WithoutKept(std::vector<float> values) const {
    for (const std::int32_t column : kept_) values[static_cast<std::size_t>(column)] = 0;
    return values;
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
  const std::vector<std::int32_t> kept_;
  const std::span<QuantizationError> errors_;  // [rows]
};

// Through the blocks of a storage type, so that panels hold what a file of that type would give.
class BlockQuantizingMatrix final : public QuantizingMatrix {
 public:
  BlockQuantizingMatrix(std::unique_ptr<MatrixSource> floats, const TypeTraits& type, std::vector<std::int32_t> kept,
                        std::span<QuantizationError> errors)
      : QuantizingMatrix(std::move(floats), type.name, type.packed, std::move(kept), errors), type_(type) {}

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
  Fp8QuantizingMatrix(std::unique_ptr<MatrixSource> floats, std::vector<std::int32_t> kept,
                      std::span<QuantizationError> errors)
      : QuantizingMatrix(std::move(floats), "FP8 E4M3", WeightFormat::kFp8E4m3, std::move(kept), errors) {}

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

bool KeepsOutlierColumns(Quantization quantization) {
  return GgufMixOf(quantization) != nullptr;
}

namespace {

double RelativeRms(double squared_error, double squared_norm) {
  return squared_norm > 0 ? std::sqrt(squared_error / squared_norm) : 0;
}

void Add(const QuantizationError& error, QuantizationError* sum) {
  sum->squared_error += error.squared_error;
  sum->squared_norm += error.squared_norm;
  sum->all_quantised_error += error.all_quantised_error;
}

}  // namespace

double MatrixError::relative_rms() const {
  return RelativeRms(error.squared_error, error.squared_norm);
}

double MatrixError::all_quantised_rms() const {
  return RelativeRms(error.all_quantised_error, error.squared_norm);
}

QuantizationError SumErrors(std::span<const QuantizationError> rows) {
  QuantizationError sum;
  for (const QuantizationError& row : rows) Add(row, &sum);
  return sum;
}

MatrixError SumErrors(std::span<const MatrixError> matrices) {
  MatrixError sum{.name = fmt::format("{} matri{}", matrices.size(), matrices.size() == 1 ? "x" : "ces")};
  for (const MatrixError& matrix : matrices) {
    Add(matrix.error, &sum.error);
    sum.num_outlier_columns += matrix.num_outlier_columns;
  }
  return sum;
}

std::string QuantizationTable(std::span<const MatrixError> matrices) {
  std::vector<MatrixError> sorted(matrices.begin(), matrices.end());
  std::ranges::sort(sorted, [](const MatrixError& a, const MatrixError& b) {
    const double first = a.relative_rms(), second = b.relative_rms();
    return first != second ? first > second : a.name < b.name;
  });
  std::string text = "matrix\ttype\trelative_rms_error\toutlier_columns\terror_without_them\n";
  for (const MatrixError& matrix : sorted) {
    text += fmt::format("{}\t{}\t{:.6f}\t{}\t{:.6f}\n", matrix.name, matrix.type, matrix.relative_rms(),
                        matrix.num_outlier_columns, matrix.all_quantised_rms());
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
                                             Quantization quantization, std::vector<std::int32_t> kept,
                                             std::span<QuantizationError> errors) {
  if (quantization == Quantization::kNone) return matrix;
  const std::int64_t columns = matrix->info().columns;
  const std::string gguf_name = source.is_gguf() ? matrix->info().name : GgufTensorName(matrix->info().name);
  const GgufFileType* mix = GgufMixOf(quantization);
  if (mix == nullptr) {
    // The logits get the head's error undiminished: at the same size, Q8_0 has 7 bits where E4M3 has 3.
    if (columns % kFp8Group == 0 && !IsOutput(source.config(), gguf_name)) {
      return std::make_unique<Fp8QuantizingMatrix>(std::move(matrix), std::move(kept), errors);
    }
    mix = GgufMixOf(Quantization::kInt8);
  }
  const TypeTraits& type = BlockTypeOf(*mix, source.config(), gguf_name, columns);
  if (type.block_elements == 1) return matrix;
  return std::make_unique<BlockQuantizingMatrix>(std::move(matrix), type, std::move(kept), errors);
}

}  // namespace quire::weights
