// The demo model against what its authors' own program computed (golden.json: from the same BF16 weights, in FP32).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "kernels/kernels_test_util.h"
#include "models/test_runner.h"

namespace quire::models {
namespace {

const std::string kDemo = std::string(QUIRE_SOURCE_DIR) + "/models/demo";

std::vector<TokenId> Ids(const json::value& array) {
  std::vector<TokenId> ids;
  for (const json::value& id : array.as_array()) ids.push_back(TokenId(static_cast<std::int32_t>(id.as_int64())));
  return ids;
}

json::array Golden() {
  const auto text = ReadFile(kDemo + "/golden.json", 1 << 20);
  return ParseJson(*text, "golden.json")->as_array();
}

class DemoModelTest : public kernels::TierTest {};

INSTANTIATE_TEST_SUITE_P(Tiers, DemoModelTest, kernels::EveryTier(), kernels::TierName);

TEST_P(DemoModelTest, GreedyIdsAndTopLogitsEqualTheGoldenOnes) {
  TestRunner runner(kDemo, *GetParam(), 2, kernels::KvDtype::kBf16);
  ASSERT_EQ(runner.error(), "");
  for (const json::value& golden : Golden()) {
    const std::vector<TokenId> prompt = Ids(golden.at("prompt_ids")), expected = Ids(golden.at("greedy_ids"));
    const std::vector<float> logits = runner.Run(prompt, 0, static_cast<int>(prompt.size()));
    const float* last = logits.data() + logits.size() - static_cast<std::size_t>(runner.vocab_size());
    for (const json::value& top : golden.at("top10").as_array()) {
      // BF16 keeps 8 bits: activations and cached keys carry relative errors up to 2⁻⁹ each, which the residual
      // stream of six layers averages to less than this.
      EXPECT_NEAR(last[top.at("id").as_int64()], top.at("logit").to_number<double>(), 0.15);
    }
    EXPECT_EQ(runner.Greedy(prompt, static_cast<int>(expected.size())), expected) << golden.at("name");
  }
}

TEST(DemoModelReferenceTest, IsExactToRoundingWithF32Keys) {
  TestRunner runner(kDemo, kernels::ReferenceKernels(), 1, kernels::KvDtype::kF32);
  ASSERT_EQ(runner.error(), "");
  for (const json::value& golden : Golden()) {
    const std::vector<TokenId> prompt = Ids(golden.at("prompt_ids"));
    const std::vector<float> logits = runner.Run(prompt, 0, static_cast<int>(prompt.size()));
    const float* last = logits.data() + logits.size() - static_cast<std::size_t>(runner.vocab_size());
    for (const json::value& top : golden.at("top10").as_array()) {
      EXPECT_NEAR(last[top.at("id").as_int64()], top.at("logit").to_number<double>(), 1e-3);
    }
  }
}

TEST(DemoModelReferenceTest, SaysWhatItIs) {
  TestRunner runner(kDemo, kernels::ReferenceKernels(), 2, kernels::KvDtype::kBf16);
  ASSERT_EQ(runner.error(), "");
  EXPECT_EQ(runner.model().num_parameters(), 4591616);
  EXPECT_EQ(runner.model().weight_formats(), "BF16");
  EXPECT_GE(runner.model().weight_bytes(), 2 * 4591616);
  EXPECT_LE(runner.model().weight_bytes(), 2 * 4591616 * 1.01);
}

}  // namespace
}  // namespace quire::models
