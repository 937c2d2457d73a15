#include "bench/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/counter_rng.h"
#include "base/json.h"

namespace quire::bench {
namespace {

constexpr int kVocabulary = 11;

// A model whose answer is known: logit(next) = a table's entry for (token, next), sharper the later the token stands in
// its window, so that a token that is scored in a wrong window or at a wrong place gives another number.
class KnownModel final : public models::Model {
 public:
  explicit KnownModel(std::uint64_t seed) : seed_(seed) {
    config_.vocab_size = kVocabulary;
    config_.hidden_size = 2;
  }

  double Logit(TokenId token, int position, int next) const {
    const double draw = UniformDouble(seed_, static_cast<std::uint64_t>(token.value() * kVocabulary + next));
    return static_cast<float>(draw * (1 + 0.1 * (position % 7)));
  }
  std::vector<double> Distribution(TokenId token, int position) const {
    std::vector<double> p(kVocabulary);
    double sum = 0;
    for (int next = 0; next < kVocabulary; ++next)
      sum += p[static_cast<std::size_t>(next)] = std::exp(Logit(token, position, next));
    for (double& value : p) value /= sum;
    return p;
  }

  const weights::ModelConfig& config() const override { return config_; }
  std::int64_t num_parameters() const override { return 0; }
  std::int64_t weight_bytes() const override { return 0; }
  std::string weight_formats() const override { return ""; }
  kernels::KvLayout kv_layout() const override { return {.num_layers = 1, .num_kv_heads = 1, .head_dim = 16}; }
  std::size_t WorkspaceBytes(const kernels::KernelTable&, int, int, int) const override { return 64; }
  void ForwardHidden(const nn::ExecContext&, const models::ForwardBatch& batch, nn::KvPool*,
                     float* hidden) const override {
    const models::SequenceSlice& slice = batch.sequences[0];
    EXPECT_EQ(batch.sequences.size(), 1U);
    EXPECT_GE(static_cast<int>(slice.blocks.size()) * kernels::KvLayout::block_size,
              slice.first_position + slice.num_tokens);
    for (const std::int32_t row : batch.logit_rows) {
      *hidden++ = static_cast<float>(batch.tokens[static_cast<std::size_t>(row)].value());
      *hidden++ = static_cast<float>(slice.first_position + row);
    }
  }
  void Logits(const nn::ExecContext&, const float* hidden, int num_rows, float* logits) const override {
    for (int row = 0; row < num_rows; ++row, hidden += 2) {
      const TokenId token(static_cast<std::int32_t>(hidden[0]));
      for (int next = 0; next < kVocabulary; ++next) {
        *logits++ = static_cast<float>(Logit(token, static_cast<int>(hidden[1]), next)) + broken_;
      }
    }
  }
  void set_broken() { broken_ = NAN; }

 private:
  std::uint64_t seed_;
  weights::ModelConfig config_;
  float broken_ = 0;
};

std::vector<TokenId> RandomText(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.emplace_back(static_cast<std::int32_t>(UniformDouble(77, static_cast<std::uint64_t>(i)) * kVocabulary));
  }
  return tokens;
}

class PerplexityTest : public ::testing::Test {
 protected:
  PerplexityRun MakeRun(int num_tokens, const PerplexityOptions& options, std::vector<TokenId> prefix = {}) {
    PerplexityRun run{.model = {&model_, &kernels::ReferenceKernels()}, .pool = &pool_, .prefix = std::move(prefix)};
    run.tokens = RandomText(num_tokens);
    run.options = *options.Complete(4096, static_cast<int>(run.prefix.size()));
    return run;
  }

  ThreadPool pool_{2};
  KnownModel model_{1}, other_{2};
};

// Where each token of the text is scored: its position in the window, or −1.
std::vector<int> ScoredPositions(int num_tokens, int num_prefix, const PerplexityOptions& options) {
  std::vector<int> positions(static_cast<std::size_t>(num_tokens), -1);
  for (const TokenWindow& window : MakeWindows(num_tokens, num_prefix, options)) {
    EXPECT_LE(window.end - window.begin + num_prefix, options.context);
    for (std::int64_t i = window.first_scored; i < window.end; ++i) {
      EXPECT_EQ(positions[static_cast<std::size_t>(i)], -1) << "scored twice: " << i;
      positions[static_cast<std::size_t>(i)] = static_cast<int>(i - window.begin) + num_prefix;
    }
  }
  return positions;
}

TEST_F(PerplexityTest, EveryTokenIsScoredOnceAndAsTheRulerSays) {
  EXPECT_THAT(ScoredPositions(10, 0, {.context = 6, .stride = 3}),
              ::testing::ElementsAre(-1, 1, 2, 3, 4, 5, 3, 4, 5, 3));
  EXPECT_THAT(ScoredPositions(10, 1, {.context = 6, .stride = 3}),
              ::testing::ElementsAre(1, 2, 3, 4, 5, 3, 4, 5, 3, 4));
  // Without overlap and BOS, the first token of each window has nothing before it.
  EXPECT_THAT(ScoredPositions(7, 0, {.context = 3, .stride = 3}), ::testing::ElementsAre(-1, 1, 2, -1, 1, 2, -1));
  EXPECT_THAT(ScoredPositions(7, 1, {.context = 3, .stride = 2}), ::testing::ElementsAre(1, 2, 1, 2, 1, 2, 1));
  EXPECT_THAT(ScoredPositions(7, 0, {.context = 4, .stride = 1, .max_windows = 2}),
              ::testing::ElementsAre(-1, 1, 2, 3, 3, -1, -1));
}

TEST_F(PerplexityTest, OptionsNameTheFieldTheValueAndTheLimit) {
  EXPECT_EQ(PerplexityOptions{}.Complete(2048, 0)->context, 512);
  EXPECT_EQ(PerplexityOptions{}.Complete(2048, 0)->stride, 256);
  EXPECT_EQ(PerplexityOptions{}.Complete(100, 1)->context, 100);
  EXPECT_EQ(PerplexityOptions{.context = 2}.Complete(100, 0)->stride, 1);
  EXPECT_EQ((PerplexityOptions{.context = 3000}.Complete(2048, 0).error().param), "context");
  EXPECT_EQ((PerplexityOptions{.context = 2}.Complete(2048, 1).error().param), "context");
  EXPECT_EQ((PerplexityOptions{.context = -5}.Complete(2048, 0).error().param), "context");
  EXPECT_EQ((PerplexityOptions{.context = 64, .stride = 64}.Complete(2048, 1).error().param), "stride");
  EXPECT_EQ((PerplexityOptions{.stride = -1}.Complete(2048, 0).error().param), "stride");
  EXPECT_EQ((PerplexityOptions{.max_windows = -1}.Complete(2048, 0).error().param), "max-windows");
}

TEST_F(PerplexityTest, EqualsTheKnownDistributions) {
  // 1,300: windows longer than one forward pass, and many groups of rows.
  for (const PerplexityOptions& options :
       {PerplexityOptions{.context = 16}, PerplexityOptions{.context = 1300, .stride = 600},
        PerplexityOptions{.context = 9, .stride = 8}}) {
    for (const std::vector<TokenId>& prefix : {std::vector<TokenId>{}, std::vector<TokenId>{TokenId(3)}}) {
      PerplexityRun run = MakeRun(1500, options, prefix);
      run.reference = ModelUnderTest{&other_, &kernels::ReferenceKernels()};
      const PerplexityReport report = *MeasurePerplexity(run);

      const std::vector<int> positions = ScoredPositions(1500, static_cast<int>(prefix.size()), run.options);
      double count = 0, nll = 0, squares = 0, kl = 0, kl_max = 0, change = 0, same = 0;
      for (std::size_t i = 0; i < positions.size(); ++i) {
        if (positions[i] < 0) continue;
        const TokenId before = positions[i] == 1 && !prefix.empty() ? prefix[0] : run.tokens[i - 1];
        const auto q = model_.Distribution(before, positions[i] - 1), p = other_.Distribution(before, positions[i] - 1);
        const auto next = static_cast<std::size_t>(run.tokens[i].value());
        ++count;
        nll -= std::log(q[next]);
        squares += std::log(q[next]) * std::log(q[next]);
        change += q[next] - p[next];
        double divergence = 0;
        for (std::size_t v = 0; v < p.size(); ++v) divergence += p[v] * std::log(p[v] / q[v]);
        kl += divergence;
        kl_max = std::max(kl_max, divergence);
        same += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin() ? 1 : 0;
      }
      const double mean = nll / count;
      EXPECT_EQ(static_cast<double>(report.num_scored_tokens), count);
      EXPECT_NEAR(report.nll.mean, mean, 1e-9);
      EXPECT_NEAR(report.nll.error, std::sqrt((squares / count - mean * mean) / (count - 1)), 1e-9);
      ASSERT_TRUE(report.divergence);
      EXPECT_NEAR(report.divergence->kl.mean, kl / count, 1e-9);
      EXPECT_NEAR(report.divergence->kl.max, kl_max, 1e-9);
      EXPECT_NEAR(report.divergence->p_change.mean, change / count, 1e-9);
      EXPECT_NEAR(report.divergence->same_top.mean, same / count, 1e-9);
      EXPECT_NEAR(report.divergence->log_ratio.mean, report.nll.mean - report.divergence->nll.mean, 1e-9);
    }
  }
}

TEST_F(PerplexityTest, AModelDoesNotDifferFromItself) {
  PerplexityRun run = MakeRun(100, {.context = 16});
  run.reference = run.model;
  const PerplexityReport report = *MeasurePerplexity(run);
  EXPECT_EQ(report.divergence->kl.max, 0);
  EXPECT_EQ(report.divergence->same_top.mean, 1);
  EXPECT_EQ(report.divergence->log_ratio.mean, 0);
  EXPECT_EQ(report.divergence->p_change_square, 0);
}

TEST_F(PerplexityTest, LogitsThatAreNoNumbersAreAnErrorThatSaysWhose) {
  PerplexityRun run = MakeRun(100, {.context = 16});
  run.reference = ModelUnderTest{&other_, &kernels::ReferenceKernels()};
  other_.set_broken();
  EXPECT_THAT(MeasurePerplexity(run).error().message, ::testing::HasSubstr("the reference gives"));
  model_.set_broken();
  EXPECT_THAT(MeasurePerplexity(run).error().message, ::testing::HasSubstr("the model gives"));
}

TEST_F(PerplexityTest, ReportsAndProgressAgree) {
  PerplexityRun run = MakeRun(100, {.context = 16});
  std::int64_t last = 0, all = 0;
  run.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
  };
  const PerplexityReport report = *MeasurePerplexity(run);
  EXPECT_EQ(last, all);
  const json::value parsed = *ParseJson(report.ToJson(), "report");
  EXPECT_DOUBLE_EQ(parsed.at("perplexity").as_double(), std::exp(report.nll.mean));
  EXPECT_EQ(parsed.at("scored_tokens").as_int64(), 99);
  EXPECT_FALSE(parsed.as_object().contains("reference"));
  EXPECT_THAT(report.ToText(), ::testing::HasSubstr("windows of 16 tokens every 8; 99 tokens scored"));
}

}  // namespace
}  // namespace quire::bench
