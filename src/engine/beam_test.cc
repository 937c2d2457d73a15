// Beams through a whole engine: against an enumeration of everything that a model of five tokens can say, and what the
// choices are told on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/beam_text.h"
#include "engine/engine.h"
#include "engine/fake_runner.h"
#include "engine/text_side.h"
#include "kernels/kernel_table.h"
#include "sample/sampler.h"
#include "sched/beam_reference.h"

namespace quire::engine {
namespace {

constexpr int kVocabSize = 5;
constexpr TokenId kEnd(4);

// Logits that are a function of the tokens so far, and the real sampler behind them.
class ToyRunner final : public Runner {
 public:
  Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) override {
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      const sched::Sequence& sequence = *plan.sequences[i].sequence;
      if (!plan.sequences[i].samples) continue;
      std::vector<float> logits = LogitsAfter(sequence.tokens());
      sampler_.Propose(
          logits, {.params = &sequence.sampling(), .masked = sequence.masked(sequence.num_output_tokens())},
          sequence.request().num_beam_candidates, &result->sequences[i].candidates, &result->sequences[i].alternatives);
    }
    return {};
  }

  static std::vector<float> LogitsAfter(std::span<const TokenId> tokens) {
    std::uint64_t chain = FakeModel::Begin("toy");
    for (const TokenId token : tokens) chain = FakeModel::Next(chain, token);
    std::mt19937_64 random(chain);
    std::vector<float> logits(kVocabSize);
    for (float& logit : logits) logit = std::uniform_real_distribution<float>(-2, 2)(random);
    return logits;
  }
  TokenLogprob Logprob(std::span<const TokenId> tokens, TokenId next) {
    return sampler_.Logprobs(LogitsAfter(tokens), next, 0).chosen;
  }

 private:
  sample::Sampler sampler_{&kernels::ReferenceKernels(), kVocabSize};
};

EngineConfig ToyConfig() {
  EngineConfig config;
  config.scheduler.max_num_batched_tokens = 50;  // less than there are beams: a round takes several steps
  config.scheduler.max_num_seqs = 1000;
  config.scheduler.max_num_choices = 1000;
  config.scheduler.max_model_len = 32;
  config.scheduler.num_blocks = 4000;
  config.scheduler.block_size = 4;
  config.scheduler.vocab_size = kVocabSize;
  config.eos_token_ids = {kEnd};
  return config;
}

struct Said {
  std::vector<TokenId> tokens;
  std::vector<PositionLogprobs> logprobs;
  std::vector<std::vector<TokenId>> events;
  FinishReason finish_reason = FinishReason::kNone;
};

std::map<int, Said> RunAlone(Engine* engine, GenerateRequest request) {
  EXPECT_TRUE(engine->Add(std::move(request), TimePoint{}).has_value());
  std::map<int, Said> said;
  while (engine->has_work()) {
    std::vector<EngineEvent> events;
    EXPECT_TRUE(engine->Step(&events).has_value());
    engine->scheduler().CheckIntegrity();
    for (const EngineEvent& event : events) {
      Said& choice = said[event.choice];
      EXPECT_EQ(choice.finish_reason, FinishReason::kNone);
      choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
      choice.logprobs.insert(choice.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
      choice.events.emplace_back(event.tokens.begin(), event.tokens.end());
      choice.finish_reason = event.finish_reason;
    }
  }
  return said;
}

void Enumerate(ToyRunner* toy, std::vector<TokenId>* tokens, std::size_t num_prompt, int max_tokens,
               const sched::BeamProblem& problem, const sched::Hypothesis& from, std::vector<sched::Hypothesis>* all) {
  for (int id = 0; id < kVocabSize; ++id) {
    const TokenLogprob next = toy->Logprob(*tokens, TokenId(id));
    const sched::Hypothesis to = sched::ReferenceExtend(problem, from, next);
    if (to.finish_reason != FinishReason::kNone) {
      all->push_back(to);
      continue;
    }
    tokens->push_back(TokenId(id));
    Enumerate(toy, tokens, num_prompt, max_tokens, problem, to, all);
    tokens->pop_back();
  }
}

TEST(BeamEngine, EqualsExhaustiveEnumerationOfAFiveTokenModel) {
  ToyRunner toy;
  ManualClock clock;
  for (const double length_penalty : {0.0, 1.0, 2.0}) {
    for (int prompt = 0; prompt < 3; ++prompt) {
      GenerateRequest request;
      request.id = RequestId(1);
      request.prompt = {TokenId(prompt), TokenId(1), TokenId(2), TokenId(3), TokenId(0)};
      request.sampling.temperature = 0;
      request.sampling.n = 10;
      request.sampling.logprobs = 0;
      request.sampling.beam = {.width = 640, .length_penalty = length_penalty, .early_stopping = EarlyStopping::kNever};
      request.stop.max_tokens = 4;

      const sched::BeamProblem problem{
          .sampling = request.sampling, .stop = request.stop, .eos_ids = {kEnd}, .max_tokens = 4, .propose = {}};
      std::vector<sched::Hypothesis> all;
      std::vector<TokenId> tokens = request.prompt;
      Enumerate(&toy, &tokens, tokens.size(), 4, problem, {}, &all);
      ASSERT_EQ(all.size(), 1 + 4 + 16 + 64 * 5u);
      sched::SortDown(&all, &sched::Hypothesis::score);

      Engine engine(ToyConfig(), &toy, &clock);
      const std::map<int, Said> said = RunAlone(&engine, request);
      ASSERT_EQ(said.size(), 10u);
      for (int choice = 0; choice < 10; ++choice) {
        const sched::Hypothesis& expected = all[static_cast<std::size_t>(choice)];
        const Said& got = said.at(choice);
        EXPECT_EQ(got.tokens, expected.tokens) << "choice " << choice;
        EXPECT_EQ(got.finish_reason, expected.finish_reason);
        double logprob = 0;
        for (const PositionLogprobs& position : got.logprobs) logprob += static_cast<double>(position.chosen.logprob);
        EXPECT_EQ(logprob / std::pow(static_cast<double>(got.tokens.size()), length_penalty), expected.score);
      }
    }
  }
}

// Without stop ids and with little probability for all but one token the beams agree on what they begin with, and that
// is told before the end.
TEST(BeamEngine, TellsTheSettledPrefixEarly) {
  FakeRunner runner(64, 4, 100);
  ManualClock clock;
  EngineConfig config = ToyConfig();
  config.scheduler.num_blocks = 64;
  config.scheduler.vocab_size = 100;
  config.eos_token_ids.clear();
  Engine engine(config, &runner, &clock);
  runner.Watch(&engine.scheduler().kv().allocator());
  GenerateRequest request;
  request.id = RequestId(1);
  request.prompt = {TokenId(1), TokenId(2), TokenId(3), TokenId(4), TokenId(5)};
  request.sampling.temperature = 0;
  request.sampling.n = 2;
  request.sampling.beam = {.width = 3};
  request.stop.max_tokens = 25;
  const std::map<int, Said> said = RunAlone(&engine, request);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said.at(0).tokens, said.at(1).tokens);
  for (const auto& [choice, one] : said) {
    EXPECT_EQ(one.tokens.size(), 25u);
    EXPECT_GT(one.events.size(), 3u) << "everything came at once";
    for (const std::vector<TokenId>& tokens : one.events) EXPECT_FALSE(tokens.empty());
  }
}

// Blocks: the beams share the prompt's, and what they have in common behind it.
TEST(BeamEngine, BeamsShareBlocks) {
  FakeRunner runner(64, 4, 100);
  ManualClock clock;
  EngineConfig config = ToyConfig();
  config.scheduler.num_blocks = 64;
  config.scheduler.vocab_size = 100;
  config.scheduler.enable_prefix_caching = false;
  config.eos_token_ids.clear();
  Engine engine(config, &runner, &clock);
  runner.Watch(&engine.scheduler().kv().allocator());
  GenerateRequest request;
  request.id = RequestId(1);
  request.prompt.assign(21, TokenId(7));
  request.sampling.temperature = 0;
  request.sampling.beam = {.width = 8};
  request.stop.max_tokens = 5;
  ASSERT_TRUE(engine.Add(request, TimePoint{}).has_value());
  int most = 0;
  std::vector<EngineEvent> events;
  while (engine.has_work()) {
    ASSERT_TRUE(engine.Step(&events).has_value());
    most = std::max(most, config.scheduler.num_blocks - engine.scheduler().kv().num_free_blocks());
    engine.scheduler().CheckIntegrity();
  }
  EXPECT_LE(most, 5 + 8 * 2);  // five full blocks of the prompt, and up to five tokens behind one for each
  EXPECT_GT(most, 5 + 1);
  EXPECT_EQ(engine.scheduler().kv().num_free_blocks(), 64);
}

// ---- Stop strings --------------------------------------------------------------------------------------------------

const std::string kDemo = std::string(QUIRE_SOURCE_DIR) + "/models/demo";

TEST(BeamText, FindsAStopStringInTheDecodedText) {
  BeamText texts(kDemo);
  ASSERT_TRUE(texts.Prepare().has_value());
  const auto side = LoadTextSide(kDemo);
  ASSERT_TRUE(side.has_value());
  const std::vector<TokenId> tokens =
      *side->tokenizer->Encode("I would like to book a hotel", {.add_special_tokens = false});
  const auto end_of = [&](const std::string& stop, int min_tokens) {
    const auto text = texts.Make({}, {.min_tokens = min_tokens, .stop_strings = {"nowhere", stop}});
    std::unique_ptr<sched::TextStop> other;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      other = text->Clone();  // what a clone takes does not count for the others
      (void)other->Push(TokenId(5));
      if (text->Push(tokens[i])) return side->tokenizer->Decode(std::span(tokens).first(i + 1), true);
    }
    return std::string("none");
  };
  const std::string end = end_of("ike to b", 0);
  EXPECT_TRUE(end.ends_with(" book") || end.ends_with(" b")) << end;
  EXPECT_EQ(end_of("hostel", 0), "none");
  EXPECT_EQ(end_of("I w", 0).substr(0, 3), "I w");
  EXPECT_EQ(end_of("I w", 100), "none");
}

TEST(BeamText, WithoutATokenizerStopStringsAreRefused) {
  BeamText texts("/nowhere/at/all");
  for (int i = 0; i < 2; ++i) {
    const Result<> prepared = texts.Prepare();
    ASSERT_FALSE(prepared.has_value());
    EXPECT_EQ(prepared.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(prepared.error().param, "stop");
  }
}

}  // namespace
}  // namespace quire::engine
