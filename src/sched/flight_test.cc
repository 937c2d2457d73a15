// Steps that are planned while the one before them is computed: what each plan says, and what becomes of a plan when the
// step before it ends somebody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sched/scheduler_test_util.h"

namespace quire::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TokenId kPlaceholder(-1);

class FlightTest : public testing::Test {
 protected:
  FlightTest() { config_.max_num_seqs = 4; }

  void Add(std::uint64_t id, int prompt_size, int max_tokens, int n = 1) {
    GenerateRequest request =
        SchedulerHarness::MakeRequest(id, Ids(static_cast<int>(100 * id), prompt_size), max_tokens);
    request.sampling.n = n;
    ASSERT_TRUE(scheduler_.Add(std::move(request), now_).has_value());
  }
  // "1.0 [0, +4) samples": request, choice, slice.
  std::vector<std::string> Plan(BatchPlan* plan) {
    now_ += std::chrono::milliseconds(1);
    scheduler_.Plan(now_, plan);
    return Tell(*plan);
  }
  static std::vector<std::string> Tell(const BatchPlan& plan) {
    std::vector<std::string> lines;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      lines.push_back(fmt::format("{}.{} [{}, +{}){}", scheduled.sequence->request().id.value(),
                                  scheduled.sequence->choice(), scheduled.first_position, scheduled.num_tokens,
                                  scheduled.samples ? " samples" : ""));
    }
    return lines;
  }
  // Every sequence that samples says `token`, beams propose it and those behind it.
  static StepResult Found(const BatchPlan& plan, TokenId token) {
    StepResult result;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      SequenceResult& found = result.sequences.emplace_back();
      if (!scheduled.samples) continue;
      const int num_candidates = scheduled.sequence->request().num_beam_candidates;
      if (num_candidates == 0) found.tokens.push_back(token);
      for (int i = 0; i < num_candidates; ++i) {
        found.candidates.push_back({TokenId(token.value() + i), -1.0f - static_cast<float>(i), i + 1});
      }
    }
    return result;
  }
  void Commit(BatchPlan* plan, TokenId token) {
    StepResult result = Found(*plan, token);
    scheduler_.Commit(plan, &result, now_, &events_);
  }
  void FillIn(BatchPlan* plan, TokenId token) { Scheduler::FillIn(plan, Found(*plan, token)); }
  // The tokens of a request, and "." behind its end.
  std::string Said(std::uint64_t id) const {
    std::string text;
    for (const EngineEvent& event : events_) {
      if (event.request != RequestId(id)) continue;
      for (const TokenId token : event.tokens) text += fmt::format("{} ", token.value());
      if (event.finish_reason != FinishReason::kNone) text += ".";
    }
    return text;
  }

  SchedulerConfig config_ = TestConfig();
  Scheduler scheduler_{config_, {kEos}};
  BatchPlan first_, second_;
  TimePoint now_{};
  std::vector<EngineEvent> events_;
};

TEST_F(FlightTest, APlanStandsOnTheStepBeforeIt) {
  Add(1, 4, /*max_tokens=*/3);
  EXPECT_THAT(Plan(&first_), ElementsAre("1.0 [0, +4) samples"));
  ASSERT_TRUE(scheduler_.Launch(&first_));
  EXPECT_THAT(Plan(&second_), ElementsAre("1.0 [4, +1) samples"));
  EXPECT_EQ(second_.sequences[0].tokens.back(), kPlaceholder);
  EXPECT_EQ(first_.sequences[0].tokens.size(), 4u) << "a step that runs sees no placeholder";
  Commit(&first_, TokenId(7));
  EXPECT_EQ(second_.sequences[0].tokens.back(), TokenId(7));
  ASSERT_TRUE(scheduler_.Launch(&second_));
  scheduler_.CheckIntegrity();

  EXPECT_THAT(Plan(&first_), ElementsAre("1.0 [5, +1) samples"));
  Commit(&second_, TokenId(8));
  ASSERT_TRUE(scheduler_.Launch(&first_));
  EXPECT_THAT(Plan(&second_), IsEmpty()) << "the third token is the last by length";
  Commit(&first_, TokenId(9));
  EXPECT_EQ(Said(1), "7 8 9 .");
  EXPECT_FALSE(scheduler_.has_unfinished());
}

TEST_F(FlightTest, WhoHasEndedLeavesThePlan) {
  Add(1, 4, 10);
  Add(2, 4, 10);
  Plan(&first_);
  scheduler_.Launch(&first_);
  EXPECT_THAT(Plan(&second_), ElementsAre("1.0 [4, +1) samples", "2.0 [4, +1) samples"));
  StepResult result = Found(first_, TokenId(7));
  result.sequences[0].tokens[0] = kEos;
  scheduler_.Commit(&first_, &result, now_, &events_);
  EXPECT_THAT(Tell(second_), ElementsAre("2.0 [4, +1) samples"));
  EXPECT_EQ(second_.num_tokens, 1);

  ASSERT_TRUE(scheduler_.Launch(&second_));
  EXPECT_THAT(Plan(&first_), ElementsAre("2.0 [5, +1) samples"));
  Commit(&second_, kEos);
  EXPECT_FALSE(scheduler_.Launch(&first_)) << "nothing is left of it";
  EXPECT_THAT(Plan(&first_), IsEmpty());
  EXPECT_EQ(Said(1), "999 .");
  EXPECT_EQ(Said(2), "7 999 .");
  scheduler_.CheckIntegrity();
}

TEST_F(FlightTest, WhatRunsForAnEndedSequenceIsDropped) {
  Add(1, 4, 10);
  Plan(&first_);
  scheduler_.Launch(&first_);
  Plan(&second_);
  FillIn(&first_, kEos);
  ASSERT_TRUE(scheduler_.Launch(&second_));
  EXPECT_EQ(second_.sequences[0].tokens.back(), kEos);
  Commit(&first_, kEos);
  EXPECT_EQ(Said(1), "999 .");
  EXPECT_FALSE(scheduler_.IsUnfinished(RequestId(1)));
  EXPECT_EQ(scheduler_.kv().num_owned_blocks(), 0) << "its memory is free while its last step runs";
  Add(1, 3, 1);                                                    // the id is free as well
  EXPECT_THAT(Plan(&first_), ElementsAre("1.0 [2, +1) samples"));  // the cache has its prompt
  Commit(&second_, TokenId(5));
  EXPECT_EQ(Said(1), "999 .") << "an event after the end";
  ASSERT_TRUE(scheduler_.Launch(&first_));
  Commit(&first_, TokenId(6));
  EXPECT_EQ(Said(1), "999 .6 .");
  scheduler_.CheckIntegrity();
}

TEST_F(FlightTest, AnAbortMeetsAStepInFlight) {
  Add(1, 4, 10);
  Add(2, 4, 10);
  Plan(&first_);
  scheduler_.Launch(&first_);
  scheduler_.Abort(RequestId(1), std::nullopt, &events_);
  EXPECT_EQ(Said(1), ".");
  EXPECT_THAT(Plan(&second_), ElementsAre("2.0 [4, +1) samples"));
  Commit(&first_, TokenId(7));
  EXPECT_EQ(Said(1), ".");
  EXPECT_EQ(Said(2), "7 ");
  scheduler_.CheckIntegrity();
}

// The first choice goes on at once; the second runs the prompt's last block again, since the first writes there.
TEST_F(FlightTest, ForksBeginOneStepLater) {
  Add(1, 6, 3, /*n=*/2);
  EXPECT_THAT(Plan(&first_), ElementsAre("1.0 [0, +6) samples"));
  scheduler_.Launch(&first_);
  EXPECT_THAT(Plan(&second_), ElementsAre("1.0 [6, +1) samples"));
  Commit(&first_, TokenId(7));
  scheduler_.Launch(&second_);
  EXPECT_THAT(Plan(&first_), ElementsAre("1.0 [7, +1) samples", "1.1 [4, +2) samples"));
  Commit(&second_, TokenId(8));
  scheduler_.Launch(&first_);
  scheduler_.CheckIntegrity();
}

TEST_F(FlightTest, BeamsWaitForTheStep) {
  Add(1, 4, 4);
  GenerateRequest beams = SchedulerHarness::MakeRequest(2, Ids(200, 4), 3);
  beams.sampling.temperature = 0;
  beams.sampling.beam = {.width = 2};
  ASSERT_TRUE(scheduler_.Add(std::move(beams), now_).has_value());
  EXPECT_THAT(Plan(&first_), ElementsAre("1.0 [0, +4) samples", "2.0 [0, +4) samples"));
  scheduler_.Launch(&first_);
  EXPECT_THAT(Plan(&second_), ElementsAre("1.0 [4, +1) samples"));
  Commit(&first_, TokenId(7));
  scheduler_.Launch(&second_);
  EXPECT_THAT(Plan(&first_), ElementsAre("1.0 [5, +1) samples", "2.0 [4, +1) samples", "2.1 [4, +1) samples"));
  Commit(&second_, TokenId(8));
  scheduler_.CheckIntegrity();
}

TEST_F(FlightTest, AFailedStepTakesItsRequestsOutOfTheNext) {
  Add(1, 4, 10);
  Plan(&first_);
  scheduler_.Launch(&first_);
  Add(2, 4, 10);
  EXPECT_THAT(Plan(&second_), ElementsAre("1.0 [4, +1) samples", "2.0 [0, +4) samples"));
  scheduler_.Fail(&first_, Error{ErrorCode::kInternal, "broken", {}}, &events_);
  EXPECT_EQ(Said(1), ".");
  EXPECT_EQ(events_.back().finish_reason, FinishReason::kError);
  EXPECT_THAT(Tell(second_), ElementsAre("2.0 [0, +4) samples"));
  ASSERT_TRUE(scheduler_.Launch(&second_));
  Commit(&second_, TokenId(7));
  EXPECT_EQ(Said(2), "7 ");
  scheduler_.CheckIntegrity();
}

}  // namespace
}  // namespace quire::sched
