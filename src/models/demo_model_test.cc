// The demo model against what its authors' own program computed (golden.json: from the same BF16 weights, in FP32).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
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

// Sequences that go on from one prefix of 530 tokens in the same blocks, in one step and each in its own: the attention
// of the step joins them.
TEST_P(DemoModelTest, SequencesOverOnePrefixAreTheSameBitsTogetherAsAlone) {
  constexpr int kPrefix = 530, kSequences = 5, kOwnBlock = 530 / 16;
  if (GetParam() == &kernels::ReferenceKernels()) GTEST_SKIP() << "it has no tiles to share";
  TestRunner runner(kDemo, *GetParam(), 2, kernels::KvDtype::kBf16);
  ASSERT_EQ(runner.error(), "");
  std::vector<TokenId> tokens;
  for (int i = 0; i < kPrefix; ++i) tokens.push_back(TokenId(i * 37 % 4000));
  runner.Run(tokens, 0, 400);
  runner.Run(tokens, 400, kPrefix - 400);
  std::vector<std::vector<BlockId>> blocks(kSequences);
  std::vector<SequenceSlice> slices;
  std::vector<TokenId> next;
  std::vector<std::int32_t> rows;
  for (int s = 0; s < kSequences; ++s) {
    for (int b = 0; b < kOwnBlock; ++b) blocks[static_cast<std::size_t>(s)].push_back(BlockId(b));
    const BlockId own(100 + s);
    runner.kv().CopyBlock(BlockId(kOwnBlock), own);
    blocks[static_cast<std::size_t>(s)].push_back(own);
    slices.push_back({s, 1, kPrefix, blocks[static_cast<std::size_t>(s)]});
    next.push_back(TokenId(100 + s));
    rows.push_back(s);
  }
  const auto vocab = static_cast<std::size_t>(runner.vocab_size());
  std::vector<float> together(kSequences * vocab), alone(kSequences * vocab);
  runner.model().Forward(runner.context(), {next, slices, rows}, &runner.kv(), together.data());
  for (std::size_t s = 0; s < kSequences; ++s) {
    const SequenceSlice slice{0, 1, kPrefix, blocks[s]};
    const std::int32_t row = 0;
    runner.model().Forward(runner.context(), {std::span(&next[s], 1), std::span(&slice, 1), std::span(&row, 1)},
                           &runner.kv(), &alone[s * vocab]);
  }
  EXPECT_EQ(together, alone);
}

// What each type of keys and values costs, as logits of every position of the golden prompts against those with F32
// keys and values on the same tier. docs/kernels.md has the table that this prints.
struct KvError {
  double mean_kl = 0;  // of the distributions, nats
  double largest = 0;  // difference of two logits
  double top1 = 0;     // part of the positions with the same most likely token
};

double LogSumExp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - largest);
  return largest + std::log(sum);
}

KvError ErrorOf(kernels::KvDtype dtype) {
  const kernels::KernelTable& kernels = *kernels::AvailableKernels().back();
  TestRunner exact(kDemo, kernels, 2, kernels::KvDtype::kF32), runner(kDemo, kernels, 2, dtype);
  const auto vocab = static_cast<std::size_t>(exact.vocab_size());
  KvError error;
  std::size_t positions = 0;
  for (const json::value& golden : Golden()) {
    std::vector<TokenId> ids = Ids(golden.at("prompt_ids"));
    for (const TokenId id : Ids(golden.at("greedy_ids"))) ids.push_back(id);
    const int count = static_cast<int>(ids.size());
    const std::vector<float> expected = exact.Run(ids, 0, count), got = runner.Run(ids, 0, count);
    for (std::size_t row = 0; row < ids.size(); ++row, ++positions) {
      const std::span p(&expected[row * vocab], vocab), q(&got[row * vocab], vocab);
      const double p_sum = LogSumExp(p), q_sum = LogSumExp(q);
      for (std::size_t i = 0; i < vocab; ++i) {
        const double log_p = double{p[i]} - p_sum, log_q = double{q[i]} - q_sum;
        error.mean_kl += std::exp(log_p) * (log_p - log_q);
        error.largest = std::max(error.largest, std::abs(double{p[i]} - double{q[i]}));
      }
      error.top1 += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin();
    }
  }
  error.mean_kl /= static_cast<double>(positions);
  error.top1 /= static_cast<double>(positions);
  return error;
}

TEST(DemoModelKvDtypeTest, ErrorsStayAtTheSizeOfTheType) {
  struct Case {
    kernels::KvDtype dtype;
    const char* name;
    double kl_max;  // about four times what was measured
  };
  for (const Case& test : {Case{kernels::KvDtype::kF32, "f32", 0}, Case{kernels::KvDtype::kBf16, "bf16", 1e-5},
                           Case{kernels::KvDtype::kFp8E4m3, "fp8_e4m3", 1e-3},
                           Case{kernels::KvDtype::kInt8, "int8", 4e-5}, Case{kernels::KvDtype::kInt4, "int4", 7e-3}}) {
    const KvError error = ErrorOf(test.dtype);
    std::printf("%-9s mean KL %.2e, largest difference of a logit %.3f, same top token %.3f\n", test.name,
                error.mean_kl, error.largest, error.top1);
    EXPECT_LE(error.mean_kl, test.kl_max) << test.name;
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
