// The demo model, quantised while it is loaded.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "models/test_runner.h"
#include "weights/quantize.h"

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
    const std::vector<float> logits = runner.Run(tokens, 0, kNumTokens);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      error += std::pow(static_cast<double>(logits[i]) - static_cast<double>(expected[i]), 2);
      norm += std::pow(static_cast<double>(expected[i]), 2);
    }
    const double relative = std::sqrt(error / norm);
    std::printf("%-4s %.4f\n", std::string(weights::QuantizationName(quantization)).c_str(), relative);
    return relative;
  };
  // Weights lose 0.005, 0.026 and 0.07, and with integer weights activations become 8-bit codes, too. The errors of 25
  // products in a row add up to a few times that: 0.021, 0.053 and 0.127 on the best tier.
  EXPECT_LT(relative_error(Quantization::kInt8), 0.03);
  EXPECT_LT(relative_error(Quantization::kFp8), 0.08);
  EXPECT_LT(relative_error(Quantization::kInt4), 0.2);
}

}  // namespace
}  // namespace quire::models
