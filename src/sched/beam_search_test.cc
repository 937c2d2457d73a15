// Beam search against an enumeration of every continuation, and against a second implementation.
#include "sched/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "sched/beam_reference.h"

namespace quire::sched {
namespace {

using testing::ElementsAre;

constexpr TokenId kEnd(4);

// Five tokens, whose probabilities are a function of the output so far.
std::vector<TokenLogprob> Propose(std::uint64_t seed, std::span<const TokenId> output) {
  std::uint64_t hash = seed;
  for (const TokenId token : output)
    hash = (hash ^ static_cast<std::uint64_t>(token.value() + 1)) * 0x9E3779B97F4A7C15u;
  std::mt19937_64 random(hash);
  std::vector<double> logits(5);
  for (double& logit : logits) logit = std::uniform_real_distribution<double>(-2, 2)(random);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  std::vector<TokenLogprob> proposed;
  for (int id = 0; id < 5; ++id) {
    const double logprob = logits[static_cast<std::size_t>(id)] - std::log(sum);
    proposed.push_back({TokenId(id), static_cast<float>(logprob), 0});
  }
  SortDown(&proposed, &TokenLogprob::logprob);
  return proposed;
}

BeamProblem Problem(std::uint64_t seed, BeamParams beam, int n, int max_tokens) {
  BeamProblem problem;
  problem.sampling.beam = beam;
  problem.sampling.n = n;
  problem.eos_ids = {kEnd};
  problem.max_tokens = max_tokens;
  problem.propose = [seed](std::span<const TokenId> output) { return Propose(seed, output); };
  return problem;
}

// The text of a token is a letter; a stop string is searched for at the end.
class Letters final : public TextStop {
 public:
  explicit Letters(std::string stop) : stop_(std::move(stop)) {}
  std::unique_ptr<TextStop> Clone() const override { return std::make_unique<Letters>(*this); }
  bool Push(TokenId token) override {
    text_ += static_cast<char>('a' + token.value());
    return text_.ends_with(stop_);
  }

 private:
  std::string stop_, text_;
};

std::size_t NumCandidates(const BeamProblem& problem) {
  return static_cast<std::size_t>(BeamSearch::NumCandidates(
      *problem.sampling.beam, problem.stop, problem.eos_ids.size() + problem.stop.stop_token_ids.size(), 5));
}

// Runs a search, and holds what it calls settled against what comes of it.
std::vector<Hypothesis> Search(const BeamProblem& problem) {
  std::unique_ptr<TextStop> text;
  if (!problem.stop.stop_strings.empty()) text = std::make_unique<Letters>(problem.stop.stop_strings.front());
  BeamSearch search(problem.sampling, problem.stop, problem.eos_ids, problem.max_tokens, std::move(text));
  std::vector<TokenId> settled;
  while (!search.is_done()) {
    std::vector<std::vector<TokenId>> before;
    for (int beam = 0; beam < search.num_live(); ++beam) {
      before.push_back(search.live(beam).tokens);
      std::vector<TokenLogprob> candidates = problem.propose(search.live(beam).tokens), top;
      candidates.resize(std::min(candidates.size(), NumCandidates(problem)));
      search.SetCandidates(beam, &candidates, &top);
    }
    EXPECT_TRUE(search.is_ready());
    search.Advance();
    if (search.is_done()) break;
    for (int beam = 0; beam < search.num_live(); ++beam) {
      const std::vector<TokenId>& tokens = search.live(beam).tokens;
      EXPECT_TRUE(
          std::equal(tokens.begin(), tokens.end() - 1, before[static_cast<std::size_t>(search.parent(beam))].begin()));
      EXPECT_GE(static_cast<int>(tokens.size()), search.num_settled_tokens());
      EXPECT_LE(search.num_settled_tokens(), search.num_common_tokens());
    }
    EXPECT_GE(search.num_settled_tokens(), static_cast<int>(settled.size()));
    settled.assign(search.live(0).tokens.begin(), search.live(0).tokens.begin() + search.num_settled_tokens());
  }
  const auto finished = search.finished();
  std::vector<Hypothesis> best(finished.begin(),
                               finished.begin() + std::min<std::ptrdiff_t>(problem.sampling.n, std::ssize(finished)));
  for (const Hypothesis& hypothesis : best) {
    EXPECT_LE(settled.size(), hypothesis.tokens.size());
    EXPECT_TRUE(std::equal(settled.begin(), settled.end(), hypothesis.tokens.begin()));
  }
  return best;
}

void Enumerate(const BeamProblem& problem, const Hypothesis& from, std::vector<Hypothesis>* all) {
  for (const TokenLogprob& next : problem.propose(from.tokens)) {
    const Hypothesis to = ReferenceExtend(problem, from, next);
    if (to.finish_reason == FinishReason::kNone) {
      Enumerate(problem, to, all);
    } else {
      all->push_back(to);
    }
  }
}

void ExpectEqual(std::span<const Hypothesis> got, std::span<const Hypothesis> expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tokens, expected[i].tokens) << "hypothesis " << i;
    EXPECT_EQ(got[i].score, expected[i].score) << "hypothesis " << i;
    EXPECT_EQ(got[i].finish_reason, expected[i].finish_reason) << "hypothesis " << i;
    EXPECT_EQ(got[i].stop_token, expected[i].stop_token) << "hypothesis " << i;
    EXPECT_EQ(got[i].ended_by_text, expected[i].ended_by_text) << "hypothesis " << i;
  }
}

// A search that is wide enough to lose nothing finds what an enumeration of all 1365 outputs finds.
TEST(BeamSearch, EqualsExhaustiveEnumeration) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const double length_penalty : {-1.0, 0.0, 0.5, 1.0, 2.0}) {
      for (const int n : {1, 5, 40}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", length_penalty " + std::to_string(length_penalty));
        const BeamProblem problem = Problem(
            seed, {.width = 640, .length_penalty = length_penalty, .early_stopping = EarlyStopping::kNever}, n, 5);
        std::vector<Hypothesis> all;
        Enumerate(problem, {}, &all);
        EXPECT_EQ(all.size(), 1 + 4 + 16 + 64 + 256 * 5u);
        SortDown(&all, &Hypothesis::score);
        ExpectEqual(Search(problem), std::span(all).first(static_cast<std::size_t>(n)));
      }
    }
  }
}

TEST(BeamSearch, EqualsASecondImplementation) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  std::map<FinishReason, int> ends;
  int num_by_text = 0, num_by_id = 0;
  for (int round = 0; round < 2000; ++round) {
    const int width = draw(1, 6);
    BeamProblem problem = Problem(
        random(),
        {.width = width, .length_penalty = draw(-4, 8) / 4.0, .early_stopping = static_cast<EarlyStopping>(draw(0, 2))},
        draw(1, width), draw(1, 12));
    if (draw(0, 3) == 0) problem.eos_ids.clear();
    if (draw(0, 3) == 0) problem.stop.stop_token_ids = {TokenId(draw(0, 3))};
    if (draw(0, 3) == 0) problem.stop.min_tokens = draw(0, problem.max_tokens);
    if (draw(0, 2) == 0) {
      const std::string stop = draw(0, 1) == 0 ? "ab" : "c";
      problem.stop.stop_strings = {stop};
      problem.ends_by_text = [stop](std::span<const TokenId> output) {
        std::string text;
        for (const TokenId token : output) text += static_cast<char>('a' + token.value());
        return text.ends_with(stop);
      };
    }
    // What ends an output is no candidate before min_tokens.
    const auto all = problem.propose;
    const BeamProblem fixed = problem;
    problem.propose = [all, fixed](std::span<const TokenId> output) {
      std::vector<TokenLogprob> proposed = all(output);
      if (static_cast<int>(output.size()) >= fixed.stop.min_tokens) return proposed;
      std::erase_if(proposed, [&](const TokenLogprob& token) {
        const auto is_in = [&](const auto& ids) { return std::ranges::find(ids, token.id) != ids.end(); };
        return is_in(fixed.eos_ids) || is_in(fixed.stop.stop_token_ids);
      });
      return proposed;
    };
    const std::vector<Hypothesis> got = Search(problem);
    ExpectEqual(got, ReferenceBeamSearch(problem, NumCandidates(problem)));
    if (HasFailure()) return;
    for (const Hypothesis& hypothesis : got) {
      ++ends[hypothesis.finish_reason];
      num_by_text += hypothesis.ended_by_text;
      num_by_id += hypothesis.stop_token.has_value();
    }
    EXPECT_TRUE(std::ranges::is_sorted(got, std::ranges::greater(), &Hypothesis::score));
  }
  EXPECT_GT(ends[FinishReason::kStop], 500);
  EXPECT_GT(ends[FinishReason::kLength], 500);
  EXPECT_GT(num_by_text, 100);
  EXPECT_GT(num_by_id, 100);
}

// BEAM-01: what length_penalty does to a short output, by hand. "end" at once has the probability 0.4; "a a end" has
// 0.5 · 0.8 · 0.9 = 0.36.
BeamProblem ShortOrLong(double length_penalty, EarlyStopping early_stopping) {
  BeamProblem problem =
      Problem(0, {.width = 2, .length_penalty = length_penalty, .early_stopping = early_stopping}, 2, 8);
  problem.propose = [](std::span<const TokenId> output) {
    const auto with = [](double end, double a) {
      const double rest = (1 - end - a) / 3;
      std::vector<TokenLogprob> all;
      for (const auto& [id, p] : {std::pair{4, end}, {0, a}, {1, rest}, {2, rest}, {3, rest}}) {
        all.push_back({TokenId(id), static_cast<float>(std::log(p)), 0});
      }
      SortDown(&all, &TokenLogprob::logprob);
      return all;
    };
    if (output.empty()) return with(0.4, 0.5);
    return output.size() == 1 ? with(0.01, 0.8) : with(0.9, 0.05);
  };
  return problem;
}

TEST(BeamSearch, LengthPenaltyDecidesBetweenShortAndLong) {
  using enum EarlyStopping;
  const std::vector<TokenId> shorter{kEnd}, longer{TokenId(0), TokenId(0), kEnd};
  EXPECT_EQ(Search(ShortOrLong(0, kNever))[0].tokens, shorter);
  EXPECT_EQ(Search(ShortOrLong(1, kNever))[0].tokens, longer);
  EXPECT_EQ(Search(ShortOrLong(2, kHeuristic))[0].tokens, longer);
  const auto scores = Search(ShortOrLong(1, kNever));
  EXPECT_NEAR(scores[0].score, std::log(0.36) / 3, 1e-6);
  EXPECT_NEAR(scores[1].score, std::log(0.4), 1e-6);
}

TEST(BeamSearch, ReportsALogprobForEachToken) {
  BeamProblem problem = Problem(7, {.width = 3}, 3, 6);
  problem.sampling.logprobs = 1;
  for (const Hypothesis& hypothesis : Search(problem)) {
    ASSERT_EQ(hypothesis.logprobs.size(), hypothesis.tokens.size());
    double sum = 0;
    for (std::size_t i = 0; i < hypothesis.tokens.size(); ++i) {
      EXPECT_EQ(hypothesis.logprobs[i]->chosen.id, hypothesis.tokens[i]);
      sum += static_cast<double>(hypothesis.logprobs[i]->chosen.logprob);
    }
    EXPECT_EQ(sum, hypothesis.logprob);
  }
}

TEST(BeamSearch, BiasCounts) {
  BeamProblem problem = Problem(3, {.width = 2, .early_stopping = EarlyStopping::kNever}, 1, 4);
  problem.sampling.logit_bias = {{TokenId(2), 50.0f}};
  const auto all = problem.propose;
  problem.propose = [all](std::span<const TokenId> output) {  // what is likeliest with the bias, as a sampler does
    std::vector<TokenLogprob> proposed = all(output);
    const auto favoured = std::ranges::find(proposed, TokenId(2), &TokenLogprob::id);
    std::rotate(proposed.begin(), favoured, favoured + 1);
    return proposed;
  };
  const std::vector<Hypothesis> best = Search(problem);
  EXPECT_THAT(best[0].tokens, ElementsAre(TokenId(2), TokenId(2), TokenId(2), TokenId(2)));
  EXPECT_GT(best[0].score, 45);
}

// Fewer beams than the search is wide, and then as many again.
TEST(BeamSearch, BeamsThatEndMakeRoom) {
  BeamProblem problem = Problem(5, {.width = 4}, 4, 6);
  problem.stop.stop_token_ids = {TokenId(0), TokenId(1), TokenId(2)};  // one way to go on
  const std::vector<Hypothesis> got = Search(problem);
  ExpectEqual(got, ReferenceBeamSearch(problem, NumCandidates(problem)));
  EXPECT_EQ(got.size(), 4u);
}

}  // namespace
}  // namespace quire::sched
