// An engine behind its thread: what clients on other threads see.
#include "engine/local_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/fake_runner.h"

namespace quire::engine {
namespace {

using namespace std::chrono_literals;

// A runner that stands still in every step until the test lets it go on.
class GatedRunner final : public Runner {
 public:
  class Gate {
   public:
    // Lets `count` steps pass; -1: all from now on.
    void Open(int count) {
      const std::lock_guard lock(mutex_);
      num_allowed_ = count < 0 || num_allowed_ < 0 ? -1 : num_allowed_ + count;
      is_waiting_ = false;  // goes on, even if it does not know it yet
      changed_.notify_all();
    }
    // Waits until the runner stands at the gate.
    void AwaitArrival() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_waiting_; });
    }

   private:
    friend class GatedRunner;
    void Pass() {
      std::unique_lock lock(mutex_);
      is_waiting_ = num_allowed_ == 0;
      changed_.notify_all();
      changed_.wait(lock, [&] { return num_allowed_ != 0; });
      is_waiting_ = false;
      if (num_allowed_ > 0) --num_allowed_;
    }

    std::mutex mutex_;  // guards all below
    std::condition_variable changed_;
    int num_allowed_ = 0;
    bool is_waiting_ = false;
  };

  GatedRunner(const sched::SchedulerConfig& config, Gate* gate, std::atomic<bool>* fails)
      : fake_(config.num_blocks, config.block_size, config.vocab_size), gate_(gate), fails_(fails) {}

  Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) override {
    gate_->Pass();
    if (fails_->exchange(false)) fake_.FailNext();
    return fake_.Run(plan, result);
  }

 private:
  FakeRunner fake_;
  Gate* const gate_;
  std::atomic<bool>* const fails_;
};

// In each mode of asynchronous scheduling.
class LocalEngineTest : public testing::TestWithParam<int> {
 protected:
  LocalEngineTest() {
    config_.async_scheduling = GetParam();
    config_.scheduler.max_num_batched_tokens = 64;
    config_.scheduler.max_num_seqs = 4;
    config_.scheduler.max_model_len = 1000;
    config_.scheduler.num_blocks = 300;
    config_.scheduler.block_size = 4;
    config_.scheduler.vocab_size = 50;
    config_.scheduler.max_num_queued_requests = 3;
  }
  ~LocalEngineTest() override { gate_.Open(-1); }

  void Start() {
    EngineInfo info;
    info.model_path = "a model";
    auto created =
        LocalEngine::Create(config_, info, std::make_unique<GatedRunner>(config_.scheduler, &gate_, &fails_), &clock_);
    ASSERT_TRUE(created.has_value()) << created.error().message;
    engine_ = std::move(*created);
  }
  static GenerateRequest MakeRequest(std::uint64_t id, int max_tokens, int prompt_size = 5) {
    GenerateRequest request;
    request.id = RequestId(id);
    for (int i = 0; i < prompt_size; ++i) request.prompt.push_back(TokenId((static_cast<int>(id) + i) % 50));
    request.stop.max_tokens = max_tokens;
    return request;
  }
  // Reads until a choice of this request has finished, and keeps everything that was read.
  const EngineEvent* Await(std::uint64_t id, int choice = 0) {
    for (int i = 0; i < 1000; ++i) {
      for (const EngineEvent& event : events_) {
        if (event.request == RequestId(id) && event.choice == choice && event.finish_reason != FinishReason::kNone)
          return &event;
      }
      auto more = engine_->Next(1s);
      if (!more) return nullptr;
      for (EngineEvent& event : *more) events_.push_back(std::move(event));
    }
    return nullptr;
  }
  int CountTokens(std::uint64_t id) const {
    int count = 0;
    for (const EngineEvent& event : events_) {
      if (event.request == RequestId(id)) count += static_cast<int>(event.tokens.size());
    }
    return count;
  }

  EngineConfig config_;
  SteadyClock clock_;
  GatedRunner::Gate gate_;
  std::atomic<bool> fails_ = false;
  std::unique_ptr<LocalEngine> engine_;
  std::vector<EngineEvent> events_;
};

TEST_P(LocalEngineTest, RunsRequestsToTheirEnd) {
  Start();
  gate_.Open(-1);
  auto request = MakeRequest(1, 6);
  request.sampling.n = 2;
  ASSERT_TRUE(engine_->Submit(request).has_value());
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 3)).has_value());
  ASSERT_NE(Await(1, 0), nullptr);
  ASSERT_NE(Await(1, 1), nullptr);
  ASSERT_NE(Await(2), nullptr);
  EXPECT_EQ(CountTokens(1), 12);
  EXPECT_EQ(CountTokens(2), 3);
  const EngineStats stats = engine_->Stats().value();
  EXPECT_EQ(stats.generation_tokens, 15u);
  EXPECT_EQ(stats.num_requests_running + stats.num_requests_waiting, 0);
}

TEST_P(LocalEngineTest, InfoSaysWhatTheConfigurationSays) {
  Start();
  const EngineInfo info = engine_->Info().value();
  EXPECT_EQ(info.model_path, "a model");
  EXPECT_EQ(info.max_model_len, 1000);
  EXPECT_EQ(info.block_size, 4);
  EXPECT_EQ(info.num_blocks, 300);
  EXPECT_EQ(info.vocab_size, 50);
  config_.scheduler.num_blocks = 0;
  EXPECT_EQ(LocalEngine::Create(config_, {}, nullptr, &clock_).error().param, "num_blocks");
  config_.scheduler.num_blocks = 1;
  config_.eos_token_ids = {TokenId(50)};
  EXPECT_EQ(LocalEngine::Create(config_, {}, nullptr, &clock_).error().param, "eos_token_ids");
}

// HLTH-01: a step takes as long as it takes; whoever asks is answered.
TEST_P(LocalEngineTest, AnswersWhileAStepRuns) {
  Start();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 3)).has_value());
  gate_.AwaitArrival();
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 3)).has_value());
  EXPECT_TRUE(engine_->Info().has_value());
  EXPECT_EQ(engine_->Stats().value().num_requests_waiting, 1);
  EXPECT_TRUE(engine_->ResetPrefixCache().has_value());
  EXPECT_TRUE(engine_->Next(0ns)->empty());
  engine_->Abort(RequestId(2), std::nullopt);
  gate_.Open(-1);
  EXPECT_EQ(Await(2)->finish_reason, FinishReason::kAbort);
  EXPECT_EQ(Await(1)->finish_reason, FinishReason::kLength);
}

TEST_P(LocalEngineTest, RefusesWhatItCannotHold) {
  Start();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 3)).has_value());
  gate_.AwaitArrival();
  for (std::uint64_t id = 2; id <= 3; ++id) ASSERT_TRUE(engine_->Submit(MakeRequest(id, 3)).has_value());
  // The one in the step counts as queued until the step is over.
  const Result<> full = engine_->Submit(MakeRequest(4, 3));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::kUnavailable);
  const Result<> twice = engine_->Submit(MakeRequest(1, 3));
  ASSERT_FALSE(twice.has_value());
  gate_.Open(-1);
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_NE(Await(id), nullptr);
  EXPECT_TRUE(engine_->Submit(MakeRequest(4, 3)).has_value());
  EXPECT_EQ(engine_->Submit(MakeRequest(1, 3, 0)).error().param, "prompt");
  auto bad = MakeRequest(5, 3);
  bad.prompt[0] = TokenId(50);
  EXPECT_EQ(engine_->Submit(bad).error().code, ErrorCode::kInvalidArgument);
  ASSERT_NE(Await(4), nullptr);
}

// The queue has a limit in tokens, too; a request that finds it empty may be longer than that.
TEST_P(LocalEngineTest, RefusesMoreTokensThanMayWait) {
  config_.scheduler.max_num_queued_tokens = 20;
  config_.scheduler.max_num_seqs = 1;
  Start();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 3, 30)).has_value());
  gate_.AwaitArrival();
  // As above, it counts until its first step is over.
  const Result<> full = engine_->Submit(MakeRequest(2, 3, 5));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::kUnavailable);
  gate_.Open(-1);
  ASSERT_NE(Await(1), nullptr);
  EXPECT_TRUE(engine_->Submit(MakeRequest(2, 3, 15)).has_value());
  ASSERT_NE(Await(2), nullptr);
  EXPECT_EQ(engine_->Stats().value().num_queued_tokens, 0);
}

// A request that waits too long ends with kShed, through the whole engine.
TEST_P(LocalEngineTest, ShedsWhatHasWaitedTooLong) {
  config_.scheduler.max_num_seqs = 1;
  Start();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 30)).has_value());
  gate_.AwaitArrival();
  auto hasty = MakeRequest(2, 3);
  hasty.terms.queue_timeout_ms = 1;
  ASSERT_TRUE(engine_->Submit(hasty).has_value());
  // Meanwhile the engine's thread stands at the gate.
  for (const TimePoint until = clock_.Now() + 2ms; clock_.Now() < until;) std::this_thread::yield();
  gate_.Open(-1);
  const EngineEvent* const end = Await(2);
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->finish_reason, FinishReason::kShed);
  EXPECT_EQ(end->retry_after_s, 1);
  ASSERT_NE(Await(1), nullptr);
  EXPECT_EQ(CountTokens(1), 30);
}

// Nobody reads: the number of requests is bounded all the same.
TEST_P(LocalEngineTest, EventsThatNobodyFetchesAreBounded) {
  Start();
  gate_.Open(-1);
  int num_accepted = 0;
  for (std::uint64_t id = 1; id <= 1000; ++id) {
    if (engine_->Submit(MakeRequest(id, 2)).has_value()) ++num_accepted;
    if (id % 10 == 0) std::this_thread::yield();
  }
  EXPECT_LE(num_accepted, 3 + 4);
  EXPECT_GE(num_accepted, 3);
}

TEST_P(LocalEngineTest, AbortReachesARunningRequestWithinAStep) {
  Start();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 900)).has_value());
  gate_.Open(4);
  gate_.AwaitArrival();  // in the fifth step
  engine_->Abort(RequestId(1), std::nullopt);
  engine_->Abort(RequestId(1), std::nullopt);
  engine_->Abort(RequestId(99), std::nullopt);
  gate_.Open(1);
  ASSERT_NE(Await(1), nullptr);
  EXPECT_EQ(Await(1)->finish_reason, FinishReason::kAbort);
  EXPECT_LE(CountTokens(1), 5);
  EXPECT_GE(CountTokens(1), GetParam() == 0 ? 5 : 4);  // ahead, the fifth step may be in flight when the abort comes
}

TEST_P(LocalEngineTest, AbortOfOneChoiceLeavesTheOther) {
  Start();
  auto request = MakeRequest(1, 20);
  request.sampling.n = 2;
  ASSERT_TRUE(engine_->Submit(request).has_value());
  gate_.Open(4);
  gate_.AwaitArrival();  // in the fifth step
  for (const int choice : {1, 1, 2, -1}) engine_->Abort(RequestId(1), choice);
  gate_.Open(-1);
  std::map<int, FinishReason> ends;
  std::map<int, std::size_t> num_tokens;
  while (ends.size() < 2) {
    const auto events = engine_->Next(std::chrono::seconds(10));
    ASSERT_TRUE(events && !events->empty());
    for (const EngineEvent& event : *events) {
      num_tokens[event.choice] += event.tokens.size();
      if (event.finish_reason != FinishReason::kNone) ends[event.choice] = event.finish_reason;
    }
  }
  EXPECT_EQ(ends[0], FinishReason::kLength);
  EXPECT_EQ(num_tokens[0], 20u);
  EXPECT_EQ(ends[1], FinishReason::kAbort);
  EXPECT_LE(num_tokens[1], 5u);
}

TEST_P(LocalEngineTest, AFailedStepIsToldAndTheEngineLives) {
  Start();
  fails_ = true;
  gate_.Open(-1);
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 3)).has_value());
  ASSERT_NE(Await(1), nullptr);
  EXPECT_EQ(Await(1)->finish_reason, FinishReason::kError);
  EXPECT_EQ(Await(1)->error, "the fake runner was told to fail");
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 3)).has_value());
  EXPECT_EQ(Await(2)->finish_reason, FinishReason::kLength);
}

TEST_P(LocalEngineTest, DrainingFinishesWhatWasAccepted) {
  Start();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 8)).has_value());
  gate_.AwaitArrival();
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 8)).has_value());
  std::thread stopper([&] { engine_->Stop(StopMode::kDrain); });
  while (engine_->ResetPrefixCache().has_value()) std::this_thread::yield();  // until it has begun to stop
  EXPECT_EQ(engine_->Submit(MakeRequest(3, 1)).error().code, ErrorCode::kUnavailable);
  gate_.Open(-1);
  EXPECT_EQ(Await(1)->finish_reason, FinishReason::kLength);
  EXPECT_EQ(Await(2)->finish_reason, FinishReason::kLength);
  stopper.join();
  while (auto rest = engine_->Next(1s)) EXPECT_TRUE(rest->empty());
  EXPECT_EQ(engine_->Submit(MakeRequest(4, 1)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(engine_->Stats().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(engine_->ResetPrefixCache().error().code, ErrorCode::kUnavailable);
}

TEST_P(LocalEngineTest, StoppingAbortsEvenWhileItDrains) {
  Start();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 900)).has_value());
  gate_.AwaitArrival();
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 900)).has_value());
  std::thread drainer([&] { engine_->Stop(StopMode::kDrain); });
  std::thread aborter([&] { engine_->Stop(StopMode::kAbort); });
  gate_.Open(1);
  // Were the abort to come late, the engine would drain: so much is allowed, and no more.
  gate_.Open(-1);
  drainer.join();
  aborter.join();
  for (const std::uint64_t id : {1, 2}) ASSERT_NE(Await(id), nullptr);
  EXPECT_EQ(engine_->Next(0ns), std::nullopt);
}

// Many clients at once, one reader: every accepted request ends exactly once.
TEST_P(LocalEngineTest, ThreadsSubmitAndAbort) {
  config_.scheduler.max_num_queued_requests = 1000;
  Start();
  gate_.Open(-1);
  constexpr int kNumThreads = 3, kNumRequests = 60;
  std::atomic<int> num_accepted = 0;
  std::vector<std::thread> clients;
  for (int t = 0; t < kNumThreads; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < kNumRequests; ++i) {
        const auto id = static_cast<std::uint64_t>(t * 1000 + i);
        if (engine_->Submit(MakeRequest(id, 1 + i % 20)).has_value()) ++num_accepted;
        if (i % 3 == 0) engine_->Abort(RequestId(id), std::nullopt);
        if (i % 7 == 0) engine_->Stats().value();
        if (i % 20 == 0) engine_->ResetPrefixCache().value();
      }
    });
  }
  std::map<RequestId, int> num_ends;
  std::thread reader([&] {
    while (auto more = engine_->Next(100ms)) {
      for (const EngineEvent& event : *more) {
        if (event.finish_reason != FinishReason::kNone) ++num_ends[event.request];
      }
    }
  });
  for (std::thread& client : clients) client.join();
  engine_->Stop(StopMode::kDrain);
  reader.join();
  EXPECT_EQ(num_accepted, kNumThreads * kNumRequests);
  EXPECT_EQ(static_cast<int>(num_ends.size()), num_accepted);
  for (const auto& [id, count] : num_ends) EXPECT_EQ(count, 1);
}

INSTANTIATE_TEST_SUITE_P(AsyncScheduling, LocalEngineTest, testing::Values(0, 1, 2));

TEST(EventOutbox, MergesWhatNobodyFetched) {
  EventOutbox outbox;
  const auto push = [&](std::uint64_t request, int choice, int token, FinishReason reason) {
    std::vector<EngineEvent> events(1);
    events[0].request = RequestId(request);
    events[0].choice = choice;
    events[0].tokens = {TokenId(token)};
    events[0].finish_reason = reason;
    outbox.Push(&events);
    EXPECT_TRUE(events.empty());
  };
  push(1, 0, 10, FinishReason::kNone);
  push(1, 1, 20, FinishReason::kNone);
  push(1, 0, 11, FinishReason::kNone);
  push(1, 0, 12, FinishReason::kStop);
  push(1, 0, 30, FinishReason::kNone);  // another request with the same id
  auto events = outbox.Next(0ns).value();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_THAT(events[0].tokens, testing::ElementsAre(TokenId(10), TokenId(11), TokenId(12)));
  EXPECT_EQ(events[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(events[1].choice, 1);
  EXPECT_EQ(events[2].finish_reason, FinishReason::kNone);
  push(1, 0, 31, FinishReason::kNone);
  EXPECT_EQ(outbox.Next(0ns)->size(), 1u);
  push(1, 0, 32, FinishReason::kNone);
  outbox.Close();
  EXPECT_EQ(outbox.Next(0ns)->size(), 1u);
  EXPECT_FALSE(outbox.Next(1s).has_value());
}

}  // namespace
}  // namespace quire::engine
