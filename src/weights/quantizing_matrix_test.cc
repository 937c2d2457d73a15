#include "weights/quantizing_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "base/float8.h"
#include "base/thread_pool.h"
#include "weights/quantize.h"
#include "weights/tensor_names.h"
#include "weights/test_files.h"

namespace quire::weights {
namespace {

using testing::HasSubstr;

// A model of one matrix of floats.
class OneMatrix final : public ModelSource {
 public:
  OneMatrix(std::string name, std::vector<float> values, std::int64_t columns, bool is_gguf = true)
      : values_(std::move(values)), is_gguf_(is_gguf) {
    const auto size = static_cast<std::int64_t>(values_.size());
    tensor_ = {.name = std::move(name),
               .type = FindTypeByName("F32"),
               .shape = {size / columns, columns},
               .data = std::as_bytes(std::span(values_))};
    errors_.resize(static_cast<std::size_t>(size / columns));
  }

  std::unique_ptr<MatrixSource> As(Quantization quantization, std::vector<std::int32_t> kept = {}) {
    return QuantizeMatrix(*OpenPlainMatrix(tensor_), *this, quantization, std::move(kept), errors_);
  }
  MatrixError Error() const { return {.name = tensor_.name, .type = {}, .error = SumErrors(errors_)}; }
  TensorSource& tensor() { return tensor_; }

  ModelConfig config_;

  const ModelConfig& config() const override { return config_; }
  const GenerationConfig& generation_config() const override { return generation_config_; }
  Result<TextAssets> ReadTextAssets() const override { return TextAssets{}; }
  bool is_gguf() const override { return is_gguf_; }
  const TensorSource* Find(std::string_view name) const override { return name == tensor_.name ? &tensor_ : nullptr; }
  std::span<const TensorSource> tensors() const override { return {&tensor_, 1}; }
  std::int64_t total_bytes() const override { return static_cast<std::int64_t>(tensor_.data.size()); }
  void Release(const TensorSource&) const override {}

 private:
  GenerationConfig generation_config_;
  std::vector<float> values_;
  bool is_gguf_;
  TensorSource tensor_;
  std::vector<QuantizationError> errors_;
};

std::vector<float> Random(std::size_t size) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

constexpr const char* kMatrix = "blk.0.ffn_up.weight";

TEST(QuantizationTest, NamesGoBothWays) {
  for (const Quantization quantization : kQuantizations) {
    EXPECT_EQ(*ParseQuantization(QuantizationName(quantization)), quantization);
  }
  EXPECT_THAT(ParseQuantization("awq").error().message, HasSubstr("\"awq\"; known are none, int8, int4, fp8."));
}

// Codes, scales and minima of every row of every matrix of the demo model.
TEST(QuantizingMatrixTest, EqualsTheFileThatQuantizeWrites) {
  const std::filesystem::path demo = QUIRE_SOURCE_DIR "/models/demo";
  const TemporaryFolder folder;
  ThreadPool pool(2);
  const auto source = ModelSource::Open(demo);
  ASSERT_TRUE(source.has_value());
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4}) {
    const auto output = folder.path() / fmt::format("{}.gguf", QuantizationName(quantization));
    // By its name here, which means the same there.
    const auto written = QuantizeModel(demo, output, {.type = std::string(QuantizationName(quantization))}, &pool);
    ASSERT_TRUE(written.has_value()) << written.error().message;
    const auto file = ModelSource::Open(output);
    ASSERT_TRUE(file.has_value());
    EXPECT_FALSE(CheckNotQuantized(**file, quantization).has_value());
    int num_matrices = 0;
    for (const TensorSource& tensor : (*source)->tensors()) {
      if (tensor.shape.size() != 2) continue;
      std::vector<QuantizationError> errors(static_cast<std::size_t>(tensor.rows()));
      const auto matrix = QuantizeMatrix(*OpenPlainMatrix(tensor), **source, quantization, {}, errors);
      const auto stored = *OpenPlainMatrix(*(*file)->Find(GgufTensorName(tensor.name)));
      EXPECT_EQ(matrix->info().type_name, stored->info().type_name) << tensor.name;
      ASSERT_EQ(matrix->info().packed, stored->info().packed) << tensor.name;
      for (std::int64_t row = 0; row < tensor.rows(); ++row) {
        RowBuffer ours, theirs;
        ASSERT_TRUE(matrix->Decode(row, &ours).has_value());
        ASSERT_TRUE(stored->Decode(row, &theirs).has_value());
        ASSERT_EQ(ours.codes, theirs.codes) << tensor.name << " row " << row;
        ASSERT_EQ(ours.scales, theirs.scales);
        ASSERT_EQ(ours.mins, theirs.mins);
        ASSERT_EQ(ours.scale_codes, theirs.scale_codes);
        ASSERT_EQ(ours.min_codes, theirs.min_codes);
      }
      ++num_matrices;
    }
    EXPECT_EQ(num_matrices, 43);
  }
}

// d = 127 / 127: 0.25 becomes 0, and everything else is exact.
TEST(QuantizingMatrixTest, CountsTheErrorOfInt8) {
  std::vector<float> values(64);
  values[0] = 127;
  values[1] = 0.25f;
  values[32] = -254;  // a scale of 2
  values[33] = 4;
  OneMatrix model(kMatrix, values, 32);
  const auto matrix = model.As(Quantization::kInt8);
  EXPECT_EQ(matrix->info().type_name, "Q8_0");
  RowBuffer row;
  ASSERT_TRUE(matrix->Decode(1, &row).has_value());
  EXPECT_EQ(row.scales, std::vector<float>{2});
  EXPECT_EQ(row.codes[0], 128 - 127);
  EXPECT_EQ(row.codes[1], 128 + 2);
  EXPECT_EQ(model.Error().error.squared_error, 0);
  ASSERT_TRUE(matrix->Decode(0, &row).has_value());
  const MatrixError error = model.Error();
  EXPECT_EQ(error.error.squared_error, 0.0625);
  EXPECT_EQ(error.error.all_quantised_error, 0.0625);
  EXPECT_EQ(error.error.squared_norm, 127.0 * 127 + 0.0625 + 254.0 * 254 + 16);
  EXPECT_DOUBLE_EQ(error.relative_rms(), std::sqrt(0.0625 / (16129.0625 + 64516 + 16)));
}

// A scale of 1: 17 lies halfway between 16 and 18, and 16 is the even one. The second group is zeros, and the third
// has a scale of 2^-3.
TEST(QuantizingMatrixTest, Fp8HasAScaleForEvery128) {
  std::vector<float> values(384);
  values[0] = -448;
  values[127] = 17;
  values[300] = 56;
  values[301] = -0.125f;
  OneMatrix model(kMatrix, values, 384);
  const auto matrix = model.As(Quantization::kFp8);
  EXPECT_EQ(matrix->info().type_name, "FP8 E4M3");
  ASSERT_EQ(matrix->info().packed, kernels::WeightFormat::kFp8E4m3);
  RowBuffer row;
  ASSERT_TRUE(matrix->Decode(0, &row).has_value());
  EXPECT_EQ(row.scales, (std::vector<float>{1, 0, 0.125f}));
  EXPECT_EQ(row.codes[0], 0xFE);
  EXPECT_EQ(row.codes[127], ToFp8E4m3(16).bits);
  EXPECT_EQ(row.codes[200], 0);
  EXPECT_EQ(row.codes[300], 0x7E);
  EXPECT_EQ(row.codes[301], ToFp8E4m3(-1).bits);
  EXPECT_EQ(model.Error().error.squared_error, 1);
  EXPECT_EQ(model.Error().error.squared_norm, 448.0 * 448 + 289 + 56 * 56 + 0.015625);
}

// What is kept apart leaves zeros behind, and the rest of its group a scale of its own.
TEST(QuantizingMatrixTest, KeptColumnsLeaveTheScaleToTheOthers) {
  std::vector<float> values(32);
  values[3] = 2032;  // 16 · 127, and a BF16
  values[4] = 31.75f;
  values[5] = 0.25f;
  OneMatrix model(kMatrix, values, 32);
  const auto matrix = model.As(Quantization::kInt8, {3});
  RowBuffer row;
  ASSERT_TRUE(matrix->Decode(0, &row).has_value());
  EXPECT_EQ(row.scales, std::vector<float>{0.25f});
  EXPECT_EQ(row.codes[3], 128);
  EXPECT_EQ(row.codes[4], 128 + 127);
  EXPECT_EQ(row.codes[5], 128 + 1);
  std::vector<float> floats(32);
  ASSERT_TRUE(matrix->Dequantize(0, floats.data()).has_value());
  EXPECT_EQ(floats[3], 0);
  EXPECT_EQ(floats[4], 31.75f);
  EXPECT_EQ(model.Error().error.squared_error, 0);
  EXPECT_EQ(model.Error().error.all_quantised_error, 0.25 * 0.25 + 0.25 * 0.25);  // 2 · 16 and 0 instead of the others
  EXPECT_EQ(model.Error().error.squared_norm, 2032.0 * 2032 + 31.75 * 31.75 + 0.0625);
}

TEST(QuantizingMatrixTest, KeptColumnsMakeTheErrorSmallerInEveryFormat) {
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4, Quantization::kFp8}) {
    std::vector<float> values = Random(8 * 512);
    for (std::size_t row = 0; row < 8; ++row) values[row * 512 + 40] *= 100;
    OneMatrix model(kMatrix, values, 512);
    const auto matrix = model.As(quantization, {40});
    for (std::int64_t row = 0; row < 8; ++row) {
      RowBuffer buffer;
      ASSERT_TRUE(matrix->Decode(row, &buffer).has_value());
    }
    const QuantizationError error = model.Error().error;
    if (quantization == Quantization::kFp8) {
      // All that an E4M3 code loses of the large weights, and no more: that is why it does without.
      EXPECT_LT(error.all_quantised_error, error.squared_norm * 0.001);
    } else {
      EXPECT_LT(error.squared_error, error.all_quantised_error / 4) << QuantizationName(quantization);
    }
  }
}

// What the kernels see is what the error was counted of.
TEST(QuantizingMatrixTest, PanelsHoldWhatDequantizeSays) {
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4, Quantization::kFp8}) {
    OneMatrix model(kMatrix, Random(512), 512);
    const auto matrix = model.As(quantization);
    RowBuffer row;
    ASSERT_TRUE(matrix->Decode(0, &row).has_value());
    const kernels::WeightFormat format = matrix->info().packed;
    std::vector<std::byte> storage(kernels::PanelBytes(format, 512) + 64);
    void* aligned = storage.data();
    std::size_t space = storage.size();
    auto* panel = static_cast<std::byte*>(std::align(64, 1, aligned, space));
    const kernels::WeightRow view = row.View();
    kernels::PackPanel(format, 512, {&view, 1}, panel);
    std::vector<float> packed(512), expected(512);
    kernels::UnpackRow({.format = format, .n = 1, .k = 512, .data = panel}, 0, packed.data());
    ASSERT_TRUE(matrix->Dequantize(0, expected.data()).has_value());
    EXPECT_EQ(packed, expected) << QuantizationName(quantization);
    const double error = model.Error().relative_rms();
    EXPECT_LT(error, quantization == Quantization::kInt8 ? 0.01 : quantization == Quantization::kFp8 ? 0.035 : 0.1);
    EXPECT_GT(error, quantization == Quantization::kInt8 ? 0.002 : 0.02);
  }
}

// By name and by what divides the rows.
TEST(QuantizingMatrixTest, ChoosesTheFormat) {
  const auto type = [](const char* name, Quantization quantization, std::int64_t columns) {
    OneMatrix model(name, Random(static_cast<std::size_t>(columns)), columns);
    return std::string(model.As(quantization)->info().type_name);
  };
  EXPECT_EQ(type(kMatrix, Quantization::kNone, 256), "F32");
  EXPECT_EQ(type(kMatrix, Quantization::kInt4, 256), "Q4_K");
  EXPECT_EQ(type(kMatrix, Quantization::kInt4, 96), "Q5_0");
  EXPECT_EQ(type(kMatrix, Quantization::kFp8, 96), "Q8_0");
  EXPECT_EQ(type("output.weight", Quantization::kInt4, 256), "Q6_K");
  EXPECT_EQ(type("output.weight", Quantization::kFp8, 256), "Q8_0");
  EXPECT_EQ(type("token_embd.weight", Quantization::kFp8, 256), "FP8 E4M3");
  for (const Quantization quantization : kQuantizations) EXPECT_EQ(type(kMatrix, quantization, 40), "F32");

  OneMatrix tied("model.embed_tokens.weight", Random(256), 256, /*is_gguf=*/false);
  tied.config_.tie_word_embeddings = true;
  EXPECT_EQ(tied.As(Quantization::kInt4)->info().type_name, "Q6_K");
}

TEST(QuantizingMatrixTest, RefusesWhatIsNoNumber) {
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4, Quantization::kFp8}) {
    std::vector<float> values = Random(512);
    values[300] = std::numeric_limits<float>::infinity();
    OneMatrix model(kMatrix, values, 256);
    RowBuffer row;
    EXPECT_TRUE(model.As(quantization)->Decode(0, &row).has_value());
    const auto bad = model.As(quantization)->Decode(1, &row);
    ASSERT_FALSE(bad.has_value());
    EXPECT_EQ(bad.error().message, "tensor blk.0.ffn_up.weight: row 1, column 44 is inf; finite numbers are wanted");
  }
}

TEST(QuantizingMatrixTest, RefusesAQuantisedModel) {
  OneMatrix model(kMatrix, Random(256), 256);
  EXPECT_TRUE(CheckNotQuantized(model, Quantization::kInt8).has_value());
  model.config_.quantization = QuantizationConfig{.name = "awq"};
  EXPECT_EQ(CheckNotQuantized(model, Quantization::kInt8).error().param, "quantization");
  EXPECT_THAT(CheckNotQuantized(model, Quantization::kInt8).error().message, HasSubstr("quantised already (awq)"));
  model.config_.quantization.reset();
  model.tensor().type = FindTypeByName("Q4_K");
  EXPECT_THAT(CheckNotQuantized(model, Quantization::kInt8).error().message,
              HasSubstr("tensor blk.0.ffn_up.weight of this one is Q4_K already"));
}

TEST(QuantizationTableTest, TheWorstComesFirst) {
  const std::vector<MatrixError> errors = {
      {"a", "Q8_0", {1, 1e4, 1}, 0}, {"b", "Q4_K", {9, 1e4, 100}, 3}, {"c", "Q4_K", {0, 0, 0}, 0}};
  EXPECT_EQ(QuantizationTable(errors),
            "matrix\ttype\trelative_rms_error\toutlier_columns\terror_without_them\n"
            "b\tQ4_K\t0.030000\t3\t0.100000\n"
            "a\tQ8_0\t0.010000\t0\t0.010000\n"
            "c\tQ4_K\t0.000000\t0\t0.000000\n");
  const MatrixError all = SumErrors(errors);
  EXPECT_EQ(all.name, "3 matrices");
  EXPECT_EQ(all.num_outlier_columns, 3);
  EXPECT_DOUBLE_EQ(all.relative_rms(), std::sqrt(10 / 2e4));
  EXPECT_DOUBLE_EQ(all.all_quantised_rms(), std::sqrt(101 / 2e4));
}

}  // namespace
}  // namespace quire::weights
