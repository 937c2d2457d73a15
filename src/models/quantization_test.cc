// The demo model, quantised while it is loaded; and the same with columns that are hard to quantise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "models/planted_outliers.h"
#include "models/test_runner.h"
#include "weights/quantization_note.h"
#include "weights/quantize.h"
#include "weights/test_files.h"

namespace quire::models {
namespace {

using weights::Quantization;

const std::string kDemo = std::string(QUIRE_SOURCE_DIR) + "/models/demo";
constexpr int kNumTokens = 48;

std::vector<TokenId> Tokens() {
  std::vector<TokenId> tokens;
  for (int i = 0; i < kNumTokens; ++i) tokens.push_back(TokenId(i * 83 % 4000 + 20));
  return tokens;
}

double RelativeDistance(const std::vector<float>& logits, const std::vector<float>& expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    error += std::pow(static_cast<double>(logits[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST(QuantizationTest, GivesTheLogitsOfTheFileThatQuantizeWrites) {
  const std::vector<TokenId> tokens = Tokens();
  const auto folder = std::filesystem::temp_directory_path() / "quire_models_quantization";
  std::filesystem::create_directories(folder);
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4}) {
    const std::string name(weights::QuantizationName(quantization));
    const auto file = folder / (name + ".gguf");
    ThreadPool pool(2);
    ASSERT_TRUE(weights::QuantizeModel(kDemo, file, {.type = name}, &pool));
    const kernels::KernelTable& kernels = *kernels::AvailableKernels().back();
    TestRunner loaded(kDemo, kernels, 2, kernels::KvDtype::kBf16, quantization);
    TestRunner written(file, kernels, 2, kernels::KvDtype::kBf16);
    ASSERT_EQ(loaded.error(), "");
    ASSERT_EQ(written.error(), "");
    EXPECT_EQ(loaded.model().weight_formats(), written.model().weight_formats());
    EXPECT_EQ(loaded.Run(tokens, 0, kNumTokens), written.Run(tokens, 0, kNumTokens)) << name;
  }
  std::filesystem::remove_all(folder);
}

TEST(QuantizationTest, LogitsStayNearThoseOfTheModel) {
  const std::vector<TokenId> tokens = Tokens();
  const kernels::KernelTable& kernels = *kernels::AvailableKernels().back();
  TestRunner exact(kDemo, kernels, 2, kernels::KvDtype::kF32);
  const std::vector<float> expected = exact.Run(tokens, 0, kNumTokens);
  const auto relative_error = [&](Quantization quantization) {
    TestRunner runner(kDemo, kernels, 2, kernels::KvDtype::kF32, quantization);
    EXPECT_EQ(runner.error(), "");
    const double relative = RelativeDistance(runner.Run(tokens, 0, kNumTokens), expected);
    std::printf("%-4s %.4f\n", std::string(weights::QuantizationName(quantization)).c_str(), relative);
    return relative;
  };
  // Weights lose 0.005, 0.026 and 0.07, and with integer weights activations become 8-bit codes, too. The errors of 25
  // products in a row add up to a few times that: 0.021, 0.053 and 0.127 on the best tier.
  EXPECT_LT(relative_error(Quantization::kInt8), 0.03);
  EXPECT_LT(relative_error(Quantization::kFp8), 0.08);
  EXPECT_LT(relative_error(Quantization::kInt4), 0.2);
}

// ---- Columns that would hurt ---------------------------------------------------------------------------------------

class OutlierColumnsTest : public testing::Test {
 protected:
  static constexpr int kNumLayers = 6;

  OutlierColumnsTest() { PlantedOutliers::Copy(kDemo, model_); }

  TestRunner Exact() const { return TestRunner(kDemo, kernels_, 2, kernels::KvDtype::kF32); }
  // The planted model, with its errors.
  Result<std::unique_ptr<Model>> Load(LoadOptions options, ThreadPool* pool) {
    errors_.clear();
    options.quantization_errors = &errors_;
    return Model::Load(**weights::ModelSource::Open(model_), options, pool, kernels_);
  }
  // Packs it into a file.
  std::filesystem::path Pack(Quantization quantization) {
    const auto file = folder_.path() / "model.packed";
    auto writer = *weights::PackedWriter::Create(file, 1);
    ThreadPool pool(2);
    const auto model = Load({.quantization = quantization, .packing = &writer}, &pool);
    if (!model) ADD_FAILURE() << model.error().message;
    const Result<> committed = writer.Commit();
    if (!committed) ADD_FAILURE() << committed.error().message;
    return file;
  }
  std::string LoadError(const std::filesystem::path& packed) {
    const auto reader = weights::PackedReader::Open(packed, 1);
    if (!reader) return reader.error().message;
    ThreadPool pool(2);
    const auto model = Load({.quantization = Quantization::kInt4, .packed = &*reader}, &pool);
    return model ? "" : model.error().message;
  }

  const weights::TemporaryFolder folder_;
  const std::filesystem::path model_ = folder_.path() / "model";
  const kernels::KernelTable& kernels_ = *kernels::AvailableKernels().back();
  std::vector<weights::MatrixError> errors_;
};

TEST_F(OutlierColumnsTest, AreKeptAndTheLogitsStayNear) {
  const std::vector<TokenId> tokens = Tokens();
  const std::vector<float> expected = Exact().Run(tokens, 0, kNumTokens);
  ThreadPool pool(2);
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4}) {
    ASSERT_TRUE(Load({.quantization = quantization}, &pool));
    int num_columns = 0;
    for (const weights::MatrixError& matrix : errors_) {
      num_columns += static_cast<int>(matrix.num_outlier_columns);
      if (matrix.num_outlier_columns == 0) {
        EXPECT_EQ(matrix.error.squared_error, matrix.error.all_quantised_error) << matrix.name;
      } else {
        // One group in eight or sixteen is spoilt, and the blocks of 256 that share its scale of scales.
        EXPECT_LT(matrix.error.squared_error, matrix.error.all_quantised_error / 2) << matrix.name;
      }
    }
    EXPECT_EQ(num_columns, kNumLayers * PlantedOutliers::kNumOutliers);

    TestRunner loaded(model_, kernels_, 2, kernels::KvDtype::kF32, quantization);
    const double kept = RelativeDistance(loaded.Run(tokens, 0, kNumTokens), expected);
    // A file without outlier columns.
    const auto file = folder_.path() / "all.gguf";
    const std::string name(weights::QuantizationName(quantization));
    const auto summary = weights::QuantizeModel(model_, file, {.type = name}, &pool);
    ASSERT_TRUE(summary) << summary.error().message;
    EXPECT_THAT(summary->notes, testing::ElementsAre(testing::StartsWith(fmt::format("{} columns", num_columns))));
    TestRunner all_quantised(file, kernels_, 2, kernels::KvDtype::kF32);
    const double lost = RelativeDistance(all_quantised.Run(tokens, 0, kNumTokens), expected);
    std::printf("%-4s with outlier columns %.4f, without %.4f\n", name.c_str(), kept, lost);
    EXPECT_LT(kept, quantization == Quantization::kInt8 ? 0.03 : 0.2);  // what the model costs without such columns
    EXPECT_GT(lost, 2 * kept);
  }
}

// The file keeps columns, errors and weights; what they were made of is not read again.
TEST_F(OutlierColumnsTest, ComeBackFromAPackedFile) {
  const std::vector<TokenId> tokens = Tokens();
  const auto file = Pack(Quantization::kInt4);
  const std::string table = weights::QuantizationTable(errors_);
  TestRunner packed(model_, kernels_, 2, kernels::KvDtype::kBf16, Quantization::kInt4);
  PlantedOutliers zeros(model_);  // which have no outliers
  zeros.Scale("model.layers.2.mlp.down_proj.weight", -1, -1, 0);
  zeros.Write(model_);
  const auto reader = *weights::PackedReader::Open(file, 1);
  TestRunner mapped(model_, kernels_, 2, kernels::KvDtype::kBf16, Quantization::kInt4, &reader);
  ASSERT_EQ(mapped.error(), "");
  EXPECT_EQ(mapped.Run(tokens, 0, kNumTokens), packed.Run(tokens, 0, kNumTokens));
  EXPECT_EQ(mapped.model().weight_bytes(), packed.model().weight_bytes());
  EXPECT_EQ(mapped.model().weight_formats(), packed.model().weight_formats());
  EXPECT_EQ(mapped.model().num_parameters(), packed.model().num_parameters());
  ThreadPool pool(2);
  ASSERT_TRUE(Load({.quantization = Quantization::kInt4, .packed = &reader}, &pool));
  EXPECT_EQ(weights::QuantizationTable(errors_), table);
}

// The checksums of a file of packed weights after `old_note` in it became `note`: what a person who means harm writes.
std::string WithNote(std::string bytes, const std::vector<std::byte>& old_note, const std::vector<std::byte>& note) {
  const auto hash_of = [](const void* data, std::size_t size) { return XXH3_64bits(data, size); };
  const auto replace = [&](std::uint64_t from, std::uint64_t to) {  // the only place that holds `from`
    const auto at = bytes.rfind(std::string(reinterpret_cast<const char*>(&from), sizeof from));
    std::memcpy(bytes.data() + at, &to, sizeof to);
  };
  const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(old_note.data()), old_note.size()));
  std::memcpy(bytes.data() + at, note.data(), note.size());
  replace(hash_of(old_note.data(), old_note.size()), hash_of(note.data(), note.size()));
  constexpr std::size_t kTrailerBytes = 64, kTableAt = 32, kTableHashAt = 40, kHashAt = 56;
  char* trailer = bytes.data() + bytes.size() - kTrailerBytes;
  std::uint64_t table = 0;
  std::memcpy(&table, trailer + kTableAt, sizeof table);
  const std::uint64_t table_hash = hash_of(bytes.data() + table, bytes.size() - kTrailerBytes - table);
  std::memcpy(trailer + kTableHashAt, &table_hash, sizeof table_hash);
  const std::uint64_t hash = hash_of(trailer, kHashAt);
  std::memcpy(trailer + kHashAt, &hash, sizeof hash);
  return bytes;
}

TEST_F(OutlierColumnsTest, DamagedColumnsAreAnErrorThatNamesTheTensor) {
  const auto file = Pack(Quantization::kInt4);
  const auto down = std::ranges::find(errors_, "model.layers.2.mlp.down_proj.weight", &weights::MatrixError::name);
  ASSERT_NE(down, errors_.end());
  weights::QuantizationNote note{.outlier_columns = {PlantedOutliers::kDownColumn}, .errors = {down->error}};
  const std::vector<std::byte> written = weights::WriteQuantizationNote(note);
  std::ifstream stream(file, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(stream), {});
  const std::size_t at = whole.find(std::string(reinterpret_cast<const char*>(written.data()), written.size()));
  ASSERT_NE(at, std::string::npos);

  std::string flipped = whole;
  flipped[at + 8] ^= 1;  // column 301
  EXPECT_THAT(LoadError(folder_.Write("flipped.packed", flipped)),
              testing::AllOf(testing::HasSubstr("flipped.packed"), testing::HasSubstr(down->name),
                             testing::HasSubstr("do not have their checksum"), testing::HasSubstr("quire pack")));

  EXPECT_EQ(LoadError(folder_.Write("same.packed", WithNote(whole, written, written))), "");
  note.outlier_columns = {512};
  const auto outside = weights::WriteQuantizationNote(note);
  EXPECT_THAT(LoadError(folder_.Write("outside.packed", WithNote(whole, written, outside))),
              testing::AllOf(testing::HasSubstr(down->name), testing::HasSubstr("outlier column 0 is 512")));
  // Another column than the weights were packed with: a wrong model, and no harm.
  note.outlier_columns = {0};
  const auto another = weights::WriteQuantizationNote(note);
  EXPECT_EQ(LoadError(folder_.Write("another.packed", WithNote(whole, written, another))), "");
}

}  // namespace
}  // namespace quire::models
