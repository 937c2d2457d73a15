#include "sample/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "kernels/kernels_test_util.h"

namespace quire::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(int n, std::uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(static_cast<std::size_t>(n));
  for (float& x : logits) x = normal(random);
  return logits;
}

std::vector<TokenId> Ids(std::initializer_list<int> values) {
  std::vector<TokenId> ids;
  for (const int value : values) ids.push_back(TokenId(value));
  return ids;
}

// The specification, written for clarity: the probabilities with which each token may be drawn.
std::vector<double> ExpectedProbabilities(std::vector<float> logits, const SamplingParams& params) {
  const std::size_t n = logits.size();
  const double max = *std::ranges::max_element(logits);
  std::vector<double> p(n);
  for (std::size_t i = 0; i < n; ++i) p[i] = std::exp((double{logits[i]} - max) / params.temperature);
  const auto normalise = [&] {
    double sum = 0;
    for (const double x : p) sum += x;
    for (double& x : p) x /= sum;
  };
  normalise();
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  std::ranges::sort(
      order, [&](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  const double most = p[order[0]];
  for (double& x : p) {
    if (x < params.min_p * most * (1 - 1e-9)) x = 0;
  }
  normalise();
  if (params.top_k > 0) {
    for (std::size_t i = static_cast<std::size_t>(params.top_k); i < n; ++i) p[order[i]] = 0;
    normalise();
  }
  double sum = 0;
  for (const std::size_t i : order) {
    if (sum >= params.top_p) p[i] = 0;
    sum += p[i];
  }
  normalise();
  return p;
}

class SamplerTest : public kernels::TierTest {
 protected:
  Sampled SampleOne(std::vector<float> logits, const SampleRequest& request) {
    Sampler sampler(GetParam(), static_cast<int>(logits.size()));
    return sampler.Sample(logits, request);
  }
  int Token(const std::vector<float>& logits, const SamplingParams& params, std::vector<TokenId> output = {}) {
    return SampleOne(logits, {.params = &params, .choice = 0, .prompt = {}, .output = output, .masked = {}})
        .token.value();
  }
};

INSTANTIATE_TEST_SUITE_P(Tiers, SamplerTest, kernels::EveryTier(), kernels::TierName);

TEST_P(SamplerTest, GreedyTakesTheLowestIndexOfTheLargest) {
  SamplingParams params{.temperature = 0};
  std::vector<float> logits = RandomLogits(5000, 1);
  logits[1023] = logits[1024] = logits[4999] = 100;  // ties across the chunks of the reduction
  EXPECT_EQ(Token(logits, params), 1023);
  logits[3] = 100;
  EXPECT_EQ(Token(logits, params), 3);
}

// SAMP-03: greedy rows do not divide by their temperature; masked logits stay out of every row.
TEST_P(SamplerTest, MaskedLogitsNeverWinAndNeverMakeNaN) {
  for (const double temperature : {0.0, 1e-7, 0.5, 1.0, 100.0}) {
    SamplingParams params{.temperature = temperature, .seed = 7};
    params.logprobs = 3;
    std::vector<float> logits(2000, -kInfinity);
    logits[1500] = -3e38f;
    const Sampled sampled = SampleOne(logits, {.params = &params});
    EXPECT_EQ(sampled.token.value(), 1500) << temperature;
    EXPECT_EQ(sampled.logprobs->chosen.logprob, 0.0f);
    EXPECT_THAT(sampled.logprobs->top, testing::SizeIs(1));  // LOGP-01: no -inf among the alternatives
  }
}

TEST_P(SamplerTest, NaNAndInfinityFallBackToTheLargest) {
  for (const double top_p : {1.0, 0.9}) {
    SamplingParams params{.temperature = 1, .top_p = top_p, .seed = 3};
    params.logprobs = 2;
    std::vector<float> logits = RandomLogits(100, 5);
    logits[17] = std::nanf("");
    logits[42] = kInfinity;
    Sampled sampled = SampleOne(logits, {.params = &params});
    EXPECT_EQ(sampled.token.value(), 42);
    EXPECT_EQ(sampled.logprobs->chosen.logprob, 0.0f);
    std::ranges::fill(logits, std::nanf(""));
    sampled = SampleOne(logits, {.params = &params});
    EXPECT_GE(sampled.token.value(), 0);
    EXPECT_LT(sampled.token.value(), 100);
    EXPECT_FALSE(std::isnan(sampled.logprobs->chosen.logprob));
  }
}

// SAMP-02: at least the most likely token survives each filter.
TEST_P(SamplerTest, TheBestTokenSurvivesEveryFilter) {
  const std::vector<float> logits = RandomLogits(3000, 2);
  const int best = static_cast<int>(std::ranges::max_element(logits) - logits.begin());
  const auto params = [](int top_k, double top_p, double min_p) {
    return SamplingParams{.temperature = 2, .top_k = top_k, .top_p = top_p, .min_p = min_p};
  };
  for (SamplingParams p : {params(1, 0.8, 0), params(0, 1e-9, 0), params(0, 0, 0), params(0, 1, 1), params(5, 1e-9, 1),
                           params(400, 1e-9, 0), params(2000, 1e-12, 1)}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      p.seed = seed;
      EXPECT_EQ(Token(logits, p), best);
    }
  }
}

// SAMP-06: k distinct candidates also when most of the row is masked; lower ids among equals.
TEST_P(SamplerTest, TopKKeepsExactlyKWithLowIdsFirst) {
  for (const int k : {2, 3, 300}) {
    SamplingParams params{.temperature = 1, .top_k = k};
    std::vector<float> logits(4000, -kInfinity);
    for (int i = 0; i < 1000; ++i) logits[static_cast<std::size_t>(i * 4 + 3)] = 1.5f;
    std::map<int, int> seen;
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
      params.seed = seed;
      ++seen[Token(logits, params)];
    }
    EXPECT_LE(static_cast<int>(seen.size()), k);
    EXPECT_GE(static_cast<int>(seen.size()), k * 9 / 10);
    EXPECT_LE(seen.rbegin()->first, 4 * k - 1);
  }
}

// SAMP-06 and the scope of every filter: the draws follow the distribution of the specification. The seeds
// are fixed, so the test is deterministic; the bound is 6 standard deviations of chi-square.
TEST_P(SamplerTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = RandomLogits(1500, 11, 2);
  const auto params = [](double temperature, int top_k, double top_p, double min_p) {
    return SamplingParams{.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
  };
  for (SamplingParams p : {params(1, 0, 1, 0), params(0.5, 0, 1, 0), params(1, 20, 1, 0), params(1, 0, 0.7, 0),
                           params(1, 0, 0.999, 0), params(1, 0, 1, 0.1), params(0.7, 40, 0.9, 0),
                           params(0.7, 300, 0.9, 0.02), params(1.3, 0, 0.8, 0.05), params(50, 0, 0.9, 0)}) {
    const std::vector<double> expected = ExpectedProbabilities(logits, p);
    constexpr int kDraws = 20000;
    std::vector<int> count(logits.size());
    Sampler sampler(GetParam(), static_cast<int>(logits.size()));
    std::vector<float> row;
    for (int draw = 0; draw < kDraws; ++draw) {
      row = logits;
      p.seed = static_cast<std::uint64_t>(draw);
      ++count[static_cast<std::size_t>(sampler.Sample(row, {.params = &p}).token.value())];
    }
    double chi_square = 0, rest_expected = 0, rest_count = 0;
    int cells = 0;
    const auto add_cell = [&](double e, double c) {
      chi_square += (c - e) * (c - e) / e;
      ++cells;
    };
    for (std::size_t i = 0; i < count.size(); ++i) {
      const double e = expected[i] * kDraws;
      if (e == 0) {
        EXPECT_EQ(count[i], 0) << "token " << i << " must not be drawn";
      }
      if (e >= 5) {
        add_cell(e, count[i]);
      } else {
        rest_expected += e;
        rest_count += count[i];
      }
    }
    if (rest_expected >= 5) add_cell(rest_expected, rest_count);
    EXPECT_LE(chi_square, cells - 1 + 6 * std::sqrt(2.0 * cells) + 1)
        << "temperature " << p.temperature << " top_k " << p.top_k << " top_p " << p.top_p << " min_p " << p.min_p;
  }
}

// SAMP-05: presence and frequency see the output only, repetition the prompt too.
TEST_P(SamplerTest, ScopeOfThePenalties) {
  std::vector<float> logits(100, 0);
  logits[5] = 4;
  logits[6] = 3;
  const std::vector<TokenId> five = Ids({5});
  SamplingParams presence{.temperature = 0, .presence_penalty = 2, .frequency_penalty = 2};
  EXPECT_EQ(
      SampleOne(logits, {.params = &presence, .choice = 0, .prompt = five, .output = {}, .masked = {}}).token.value(),
      5);
  EXPECT_EQ(
      SampleOne(logits, {.params = &presence, .choice = 0, .prompt = {}, .output = five, .masked = {}}).token.value(),
      6);
  SamplingParams repetition{.temperature = 0, .repetition_penalty = 2};
  EXPECT_EQ(
      SampleOne(logits, {.params = &repetition, .choice = 0, .prompt = five, .output = {}, .masked = {}}).token.value(),
      6);
  EXPECT_EQ(
      SampleOne(logits, {.params = &repetition, .choice = 0, .prompt = {}, .output = five, .masked = {}}).token.value(),
      6);
}

TEST_P(SamplerTest, PenaltiesCountOccurrencesAndApplyOnce) {
  Sampler sampler(GetParam(), 8);
  SamplingParams params{.temperature = 0, .repetition_penalty = 2, .presence_penalty = 0.25, .frequency_penalty = 0.5};
  const std::vector<TokenId> prompt = Ids({1, 1, 2, 99, -4}), output = Ids({1, 3, 3, 3, 1000});
  for (int repeat = 0; repeat < 3; ++repeat) {  // scratch of one row must not leak into the next
    std::vector<float> row = {1, 1, -1, 8, -kInfinity, 0, 0, 0};
    sampler.Sample(row, {.params = &params, .choice = 0, .prompt = prompt, .output = output, .masked = {}});
    EXPECT_THAT(row, testing::ElementsAre(1, 0.5f - 0.5f - 0.25f, -2, 4 - 1.5f - 0.25f, -kInfinity, 0, 0, 0));
  }
}

TEST_P(SamplerTest, BiasAndMaskComeFirst) {
  std::vector<float> logits(10, 0);
  logits[2] = 1;
  SamplingParams params{.temperature = 0,
                        .logit_bias = {{TokenId(7), 5.0f}, {TokenId(99), 100.0f}, {TokenId(-1), 100.0f}}};
  EXPECT_EQ(Token(logits, params), 7);
  params.logit_bias.push_back({TokenId(8), 100.0f});
  const std::vector<TokenId> masked = Ids({8, 12345});
  EXPECT_EQ(
      SampleOne(logits, {.params = &params, .choice = 0, .prompt = {}, .output = {}, .masked = masked}).token.value(),
      7);
}

// LOGP-04: logprobs are of the raw logits, whatever the temperature and the filters; they add up to one.
TEST_P(SamplerTest, LogprobsAreOfTheRawLogits) {
  const std::vector<float> logits = RandomLogits(3000, 9);
  double max = -1e9, sum = 0;
  for (const float x : logits) max = std::max(max, double{x});
  for (const float x : logits) sum += std::exp(double{x} - max);
  SamplingParams greedy{.temperature = 0};
  greedy.logprobs = 10;
  SamplingParams wild{.temperature = 1, .top_k = 1, .repetition_penalty = 1.7, .logit_bias = {{TokenId(3), -100.0f}}};
  wild.logprobs = 10;
  const std::vector<TokenId> masked = Ids({4}), output = Ids({7, 8});
  const auto a = SampleOne(logits, {.params = &greedy}).logprobs;
  const auto b =
      SampleOne(logits, {.params = &wild, .choice = 0, .prompt = {}, .output = output, .masked = masked}).logprobs;
  EXPECT_EQ(a->top, b->top);
  ASSERT_THAT(a->top, testing::SizeIs(10));
  EXPECT_EQ(a->chosen.rank, 1);
  EXPECT_EQ(a->top[0], a->chosen);
  for (std::size_t i = 0; i < a->top.size(); ++i) {
    const TokenLogprob& top = a->top[i];
    EXPECT_EQ(top.rank, static_cast<int>(i) + 1);
    if (i > 0) {
      EXPECT_LE(top.logprob, a->top[i - 1].logprob);
    }
    EXPECT_NEAR(top.logprob, logits[static_cast<std::size_t>(top.id.value())] - max - std::log(sum), 2e-6);
  }
  Sampler sampler(GetParam(), 3000);
  double total = 0;
  for (const TokenLogprob& top : sampler.Logprobs(logits, TokenId(0), -1).top) total += std::exp(double{top.logprob});
  EXPECT_NEAR(total, 1, 1e-5);
}

TEST_P(SamplerTest, RankCountsTiesByIdOrder) {
  Sampler sampler(GetParam(), 5);
  const std::vector<float> logits = {1, 3, 2, 2, 2};
  EXPECT_EQ(sampler.Logprobs(logits, TokenId(1), 0).chosen.rank, 1);
  EXPECT_EQ(sampler.Logprobs(logits, TokenId(2), 0).chosen.rank, 2);
  EXPECT_EQ(sampler.Logprobs(logits, TokenId(4), 0).chosen.rank, 4);
  EXPECT_EQ(sampler.Logprobs(logits, TokenId(0), 3).top[2].id.value(), 3);
}

// SEED-01 and SEED-03: the same (prompt, parameters, seed, choice, position) gives the same token, whatever
// the sampler did before; choices and positions have their own draws.
TEST_P(SamplerTest, DrawsAreAFunctionOfSeedChoiceAndPosition) {
  const std::vector<float> logits = RandomLogits(2000, 21, 1);
  Sampler used(GetParam(), 2000);
  SamplingParams params{.temperature = 1, .top_p = 0.95, .repetition_penalty = 1.1};
  std::map<int, int> by_choice, by_position;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    params.seed = seed;
    for (int choice = 0; choice < 4; ++choice) {
      std::vector<float> row = logits, again = logits;
      const SampleRequest request{.params = &params, .choice = choice};
      const TokenId token = used.Sample(row, request).token;
      EXPECT_EQ(Sampler(GetParam(), 2000).Sample(again, request).token, token);
      if (seed == 1) ++by_choice[token.value()];
    }
    ++by_position[Token(logits, params, std::vector<TokenId>(seed, TokenId(1999)))];
  }
  EXPECT_GT(by_choice.size(), 1u);
  EXPECT_GT(by_position.size(), 5u);
}

TEST_P(SamplerTest, SelectionsAgreeWithASortOnRandomRows) {
  std::mt19937 random(77);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const int n = 1 + static_cast<int>(random() % 3000);
    std::vector<float> logits(static_cast<std::size_t>(n));
    for (float& x : logits) x = static_cast<float>(random() % 50);  // many ties
    Sampler sampler(GetParam(), n);
    const int count = static_cast<int>(random() % 600);
    const auto top = sampler.Logprobs(logits, TokenId(0), count).top;
    std::vector<int> order(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
    std::ranges::sort(order, [&](int a, int b) {
      const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    });
    ASSERT_EQ(static_cast<int>(top.size()), std::min(n, count));
    for (std::size_t i = 0; i < top.size(); ++i) ASSERT_EQ(top[i].id.value(), order[i]) << "seed 77, row " << repeat;
  }
}

// Of a large vocabulary most chunks are never looked at; values that are no numbers, ties and chunks without any
// candidate must not mislead what decides that.
TEST_P(SamplerTest, SelectionsAndRanksOfALargeVocabularyAgreeWithASort) {
  constexpr int kSize = 60000;
  std::mt19937 random(78);
  Sampler sampler(GetParam(), kSize);
  for (int repeat = 0; repeat < 24; ++repeat) {
    std::vector<float> logits = RandomLogits(kSize, 100 + static_cast<std::uint32_t>(repeat));
    for (float& x : logits) {
      if (repeat % 4 == 1) x = std::round(x * 4);  // ties
      if (repeat % 4 == 2 && random() % 3 == 0) x = random() % 2 == 0 ? -kInfinity : std::nanf("");
    }
    if (repeat % 4 >= 2) {
      std::fill_n(logits.begin() + 2048, 1024 * (random() % 50), repeat % 4 == 2 ? std::nanf("") : -kInfinity);
    }
    std::vector<int> order;
    for (int i = 0; i < kSize; ++i) {
      if (logits[static_cast<std::size_t>(i)] > -kInfinity) order.push_back(i);
    }
    std::ranges::sort(order, [&](int a, int b) {
      const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    });
    for (const int count : {1, 2, 5, 40, 58, 59, 200, 300}) {
      const auto expected = std::min(static_cast<std::size_t>(count), order.size());
      const std::size_t rank = random() % order.size();
      const PositionLogprobs found = sampler.Logprobs(logits, TokenId(order[rank]), count);
      ASSERT_EQ(found.chosen.rank, static_cast<int>(rank) + 1) << "row " << repeat;
      ASSERT_EQ(found.top.size(), expected) << "row " << repeat;
      for (std::size_t i = 0; i < expected; ++i) {
        ASSERT_EQ(found.top[i].id.value(), order[i]) << "row " << repeat << ", best of " << count;
      }
      // One of the best `count`, and one of those within min_p of the first.
      SamplingParams params{.temperature = 1, .top_k = count, .min_p = 0.2, .seed = random()};
      std::vector<float> row = logits;
      const TokenId token = sampler.Sample(row, {.params = &params}).token;
      EXPECT_LT(std::ranges::find(order, token.value()) - order.begin(), count);
      EXPECT_GE(logits[static_cast<std::size_t>(token.value())],
                logits[static_cast<std::size_t>(order[0])] + std::log(0.2f) - 1e-5f);
    }
  }
}

// What beams are proposed: the best of a sort, with the logprobs and ranks that Logprobs() reports.
TEST_P(SamplerTest, ProposesTheLikeliestTokens) {
  std::mt19937 random(79);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const int n = 1 + static_cast<int>(random() % 3000);
    std::vector<float> logits = RandomLogits(n, random());
    for (float& x : logits) {
      if (repeat % 3 == 1) x = std::round(x);  // ties
    }
    SamplingParams params;
    std::vector<TokenId> masked;
    if (repeat % 2 == 1) {
      for (int i = 0; i < 4; ++i) masked.push_back(TokenId(static_cast<int>(random() % static_cast<unsigned>(n))));
      params.logit_bias = {{TokenId(0), 2.5f}, {TokenId(n - 1), -100.0f}};
    }
    params.logprobs = 3;
    std::vector<float> changed = logits;
    changed[0] += repeat % 2 == 1 ? 2.5f : 0;
    changed[static_cast<std::size_t>(n) - 1] -= repeat % 2 == 1 ? 100 : 0;
    for (const TokenId id : masked) changed[static_cast<std::size_t>(id.value())] = -kInfinity;
    std::vector<int> order;
    for (int i = 0; i < n; ++i) {
      if (changed[static_cast<std::size_t>(i)] > -kInfinity) order.push_back(i);
    }
    std::ranges::sort(order, [&](int a, int b) {
      const float x = changed[static_cast<std::size_t>(a)], y = changed[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    });

    const int count = 1 + static_cast<int>(random() % 300);
    Sampler sampler(GetParam(), n);
    std::vector<float> row = logits;
    std::vector<TokenLogprob> proposed, alternatives;
    sampler.Propose(row, {.params = &params, .masked = masked}, count, &proposed, &alternatives);
    if (order.empty()) {
      ASSERT_EQ(proposed.size(), 1u);
      continue;
    }
    ASSERT_EQ(proposed.size(), std::min(order.size(), static_cast<std::size_t>(count)));
    for (std::size_t i = 0; i < proposed.size(); ++i) {
      ASSERT_EQ(proposed[i].id.value(), order[i]) << "row " << repeat;
      ASSERT_EQ(proposed[i], sampler.Logprobs(logits, proposed[i].id, 0).chosen) << "row " << repeat;
    }
    EXPECT_EQ(alternatives, sampler.Logprobs(logits, TokenId(0), 3).top);
  }
}

TEST_P(SamplerTest, ProposesSomethingInAnyCase) {
  const SamplingParams params;
  std::vector<TokenLogprob> proposed, alternatives;
  for (const float all : {-kInfinity, kInfinity, std::nanf("")}) {
    std::vector<float> row(70, all);
    Sampler(GetParam(), 70).Propose(row, {.params = &params}, 4, &proposed, &alternatives);
    ASSERT_FALSE(proposed.empty());
    for (const TokenLogprob& token : proposed) EXPECT_FALSE(std::isnan(token.logprob));
  }
  const std::vector<TokenId> masked = Ids({0, 1});
  std::vector<float> row{1, 2};
  Sampler(GetParam(), 2).Propose(row, {.params = &params, .masked = masked}, 4, &proposed, &alternatives);
  ASSERT_EQ(proposed.size(), 1u);
  EXPECT_EQ(proposed[0].logprob, -kInfinity);
}

}  // namespace
}  // namespace quire::sample
