// A scheduler with a hand on every step, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "api/events.h"
#include "api/request.h"
#include "base/clock.h"
#include "sched/batch_plan.h"
#include "sched/scheduler.h"

namespace quire::sched {

// `count` consecutive ids from `first` on.
inline std::vector<TokenId> Ids(int first, int count) {
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(TokenId(first + i));
  return ids;
}

// Blocks of four tokens, no policy but the order of arrival, room for everything: what a test does not set.
inline SchedulerConfig TestConfig() {
  SchedulerConfig config;
  config.max_num_batched_tokens = 64;
  config.max_num_seqs = 8;
  config.max_model_len = 64;
  config.num_blocks = 64;
  config.block_size = 4;
  config.vocab_size = 1000;
  config.policy = PolicyKind::kFcfs;
  return config;
}

inline constexpr TokenId kEos(999);

class SchedulerHarness {
 public:
  // What a step did with one sequence.
  struct Ran {
    std::uint64_t request = 0;
    int choice = 0;
    int first = 0;
    int count = 0;
    bool samples = false;
    friend bool operator==(const Ran&, const Ran&) = default;
    friend void PrintTo(const Ran& ran, std::ostream* out) {
      *out << "request " << ran.request << "." << ran.choice << " [" << ran.first << ", +" << ran.count << ")"
           << (ran.samples ? " samples" : "");
    }
  };

  explicit SchedulerHarness(const SchedulerConfig& config) : scheduler(config, {kEos}) {}

  static GenerateRequest MakeRequest(std::uint64_t id, std::vector<TokenId> prompt, int max_tokens) {
    GenerateRequest request;
    request.id = RequestId(id);
    request.prompt = std::move(prompt);
    request.stop.max_tokens = max_tokens;
    return request;
  }
  Result<> Add(GenerateRequest request) { return scheduler.Add(std::move(request), now); }
  void Add(std::uint64_t id, std::vector<TokenId> prompt, int max_tokens) {
    ASSERT_TRUE(Add(MakeRequest(id, std::move(prompt), max_tokens)).has_value());
  }
  void Abort(std::uint64_t id, std::optional<int> choice = std::nullopt) {
    scheduler.Abort(RequestId(id), choice, &events);
  }

  // Plans one step.
  std::vector<Ran> Plan() {
    now += std::chrono::milliseconds(1);
    scheduler.Shed(now, &events);
    scheduler.CheckIntegrity();
    scheduler.Plan(now, &plan);
    std::vector<Ran> ran;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      const Sequence& sequence = *scheduled.sequence;
      ran.push_back({sequence.request().id.value(), sequence.choice(), scheduled.first_position, scheduled.num_tokens,
                     scheduled.samples});
    }
    return ran;
  }
  // Commits it with the tokens that `sample` says.
  void Commit() {
    if (plan.empty()) return;
    StepResult result;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      SequenceResult& found = result.sequences.emplace_back();
      const Sequence& sequence = *scheduled.sequence;
      if (scheduled.samples && sequence.request().num_beam_candidates > 0) {
        found.candidates = propose(sequence);
      } else if (scheduled.samples) {
        found.tokens.push_back(sample(sequence));
        if (sequence.sampling().logprobs) found.logprobs.emplace_back();
      }
      if (scheduled.prompt_logprobs) {
        for (int p = scheduled.first_position; p < scheduled.first_position + scheduled.num_tokens; ++p) {
          if (p + 1 >= sequence.num_prompt_tokens()) break;
          const TokenId next = sequence.tokens()[static_cast<std::size_t>(p) + 1];
          found.prompt_logprobs.push_back({.chosen = {.id = next, .logprob = -static_cast<float>(p)}, .top = {}});
        }
      }
    }
    now += step_time(plan);
    scheduler.Commit(&plan, &result, now, &events);
    scheduler.CheckIntegrity();
  }
  std::vector<Ran> Step() {
    std::vector<Ran> ran = Plan();
    Commit();
    for (const Ran& one : ran) num_tokens_run += one.count;
    return ran;
  }
  void RunToEnd(int most_steps = 1000) {
    while (scheduler.has_unfinished()) {
      ASSERT_GT(most_steps--, 0) << "no end";
      ASSERT_FALSE(Step().empty());
    }
  }

  // All tokens of a choice so far, and its end.
  std::vector<TokenId> TokensOf(std::uint64_t request, int choice = 0) const {
    std::vector<TokenId> tokens;
    for (const EngineEvent& event : events) {
      if (event.request != RequestId(request) || event.choice != choice) continue;
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    }
    return tokens;
  }
  const EngineEvent& EndOf(std::uint64_t request, int choice = 0) const {
    static const EngineEvent kNoEvent;
    const EngineEvent* end = nullptr;
    for (const EngineEvent& event : events) {
      if (event.request != RequestId(request) || event.choice != choice) continue;
      EXPECT_EQ(end, nullptr) << "an event after the end";
      if (event.finish_reason != FinishReason::kNone) end = &event;
    }
    return end != nullptr ? *end : kNoEvent;
  }
  EngineStats Stats() const {
    EngineStats stats;
    scheduler.ReadStats(&stats);
    return stats;
  }

  TimePoint now{};
  Scheduler scheduler;
  BatchPlan plan;
  std::vector<EngineEvent> events;
  int num_tokens_run = 0;
  // What a step takes, besides the millisecond between a Commit and the next Plan.
  std::function<Duration(const BatchPlan&)> step_time = [](const BatchPlan&) { return Duration::zero(); };
  // By default the token tells how long the output is.
  std::function<TokenId(const Sequence&)> sample = [](const Sequence& sequence) {
    return TokenId(500 + sequence.num_output_tokens());
  };
  // Of beams: the more likely token is the smaller one, and all of them differ from the last.
  std::function<std::vector<TokenLogprob>(const Sequence&)> propose = [](const Sequence& sequence) {
    std::vector<TokenLogprob> proposed;
    for (int i = 0; i < sequence.request().num_beam_candidates; ++i) {
      proposed.push_back(
          {TokenId(500 + 10 * sequence.num_output_tokens() + i), -0.5f - 0.25f * static_cast<float>(i), i + 1});
    }
    return proposed;
  };
};

}  // namespace quire::sched
