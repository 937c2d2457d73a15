// Which models are loaded, who waits, and that memory stays within its limit whatever happens at the same time.
#include "server/model_manager.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <random>
#include <thread>

#include "server/testing/model_park.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// What a session does with a lease: sleeps until it is woken.
class Bell {
 public:
  std::function<void()> wake() {
    return [this] {
      const std::lock_guard lock(mutex_);
      rung_ = true;
      changed_.notify_all();
    };
  }
  // False after a minute.
  bool Wait() {
    std::unique_lock lock(mutex_);
    const bool rung = changed_.wait_for(lock, 60s, [&] { return rung_; });
    rung_ = false;
    return rung;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 12'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

class ModelManagerTest : public ::testing::Test {
 protected:
  void Start(ModelsConfig config = {.memory_bytes = 200}) {
    manager = std::make_unique<ModelManager>(config, park.Specs(), &server, &clock);
    const Result<> started = manager->Start();
    ASSERT_TRUE(started.has_value()) << started.error().message;
  }
  ModelState StateOf(const std::string& name) { return manager->Find(name)->state; }
  bool Becomes(const std::string& name, ModelState state) {
    return Eventually([&] { return StateOf(name) == state; });
  }
  // A lease that is granted at last.
  ModelLease Get(const std::string& name) {
    Bell bell;
    auto lease = manager->Acquire(name, bell.wake());
    EXPECT_TRUE(lease.has_value()) << lease.error().message;
    if (!lease) return {};
    while (lease->is_waiting()) {
      if (!bell.Wait()) break;
    }
    const auto backend = lease->backend();
    EXPECT_TRUE(backend.has_value()) << backend.error().message;
    return *std::move(lease);
  }
  std::string ErrorOf(const std::string& name, bool again = false) {
    const auto lease = manager->Acquire(name, {}, again);
    return lease ? "" : lease.error().message;
  }

  testing::ModelPark park;
  ServerConfig server{.drain_timeout = 100ms};
  SteadyClock clock;
  std::unique_ptr<ModelManager> manager;
};

TEST_F(ModelManagerTest, LoadsAtTheFirstRequest) {
  park.Add("a", 100);
  Start();
  EXPECT_EQ(StateOf("a"), ModelState::kUnloaded);
  EXPECT_EQ(park.bytes_now(), 0);
  const ModelLease lease = Get("a");
  EXPECT_EQ(StateOf("a"), ModelState::kLoaded);
  EXPECT_EQ((*lease.backend())->model().names.front(), "a");
  EXPECT_NE((*lease.backend())->Context(), nullptr);
  EXPECT_EQ(manager->Find("a")->num_requests, 1);
  EXPECT_EQ(manager->Find("a")->memory_bytes, 100);
  const auto unknown = manager->Acquire("b", {});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
}

TEST_F(ModelManagerTest, LoadsAtStartWhatFitsAndEvictsNobodyForIt) {
  for (const char* name : {"a", "b", "c"}) park.Add(name, 100).load_at_start = true;
  park.model("a").is_slow = true;
  Start();
  EXPECT_TRUE(manager->is_starting());
  ASSERT_TRUE(Eventually([&] { return park.WithEngine("a", [](auto&) {}); }));
  park.Finish("a");
  EXPECT_TRUE(Becomes("a", ModelState::kLoaded));
  EXPECT_TRUE(Becomes("b", ModelState::kLoaded));
  EXPECT_FALSE(manager->is_starting());
  EXPECT_EQ(StateOf("c"), ModelState::kUnloaded);
}

TEST_F(ModelManagerTest, AModelForTheStartThatCannotFitIsAnError) {
  park.Add("a", 201).load_at_start = true;
  manager = std::make_unique<ModelManager>(ModelsConfig{.memory_bytes = 200}, park.Specs(), &server, &clock);
  const Result<> started = manager->Start();
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().message, HasSubstr("the model a cannot be loaded: its weights take"));
}

TEST_F(ModelManagerTest, TheLeastRecentlyUsedMakesRoom) {
  for (const char* name : {"a", "b", "c"}) park.Add(name, 100);
  Start();
  (void)Get("a");
  (void)Get("b");
  (void)Get("a");
  (void)Get("c");
  EXPECT_EQ(StateOf("a"), ModelState::kLoaded);
  EXPECT_EQ(StateOf("b"), ModelState::kUnloaded);
  EXPECT_EQ(park.bytes_peak(), 200);
  EXPECT_EQ(manager->Find("b")->num_unloads[static_cast<std::size_t>(UnloadReason::kEvicted)], 1);
}

TEST_F(ModelManagerTest, AsManyMakeRoomAsItTakes) {
  park.Add("a", 60);
  park.Add("b", 60);
  park.Add("c", 60);
  park.Add("large", 130);
  Start();
  for (const char* name : {"a", "b", "c"}) (void)Get(name);
  (void)Get("large");
  EXPECT_EQ(StateOf("a"), ModelState::kUnloaded);
  EXPECT_EQ(StateOf("b"), ModelState::kUnloaded);
  EXPECT_EQ(StateOf("c"), ModelState::kLoaded);
  EXPECT_LE(park.bytes_peak(), 200);
}

TEST_F(ModelManagerTest, WhatIsInUseIsWaitedFor) {
  park.Add("a", 200);
  park.Add("b", 100);
  Start();
  ModelLease using_a = Get("a");
  Bell bell;
  auto waiting = manager->Acquire("b", bell.wake());
  ASSERT_TRUE(waiting.has_value());
  EXPECT_TRUE(waiting->is_waiting());
  EXPECT_EQ(manager->Find("b")->num_waiting, 1);
  EXPECT_EQ(StateOf("a"), ModelState::kLoaded);  // it may still be asked for
  using_a = {};
  ASSERT_TRUE(bell.Wait());
  EXPECT_TRUE(waiting->backend().has_value());
  EXPECT_EQ(StateOf("a"), ModelState::kUnloaded);
  EXPECT_EQ(park.bytes_peak(), 200);
}

TEST_F(ModelManagerTest, NoMoreModelsThanAllowed) {
  for (const char* name : {"a", "b", "c"}) park.Add(name, 1);
  Start({.memory_bytes = 200, .loaded_max = 2});
  for (const char* name : {"a", "b", "c", "a"}) (void)Get(name);
  EXPECT_EQ(park.models_peak(), 2);
}

TEST_F(ModelManagerTest, WhoeverCameFirstIsServedFirst) {
  for (const char* name : {"a", "b", "c"}) park.Add(name, 200);
  Start();
  ModelLease using_a = Get("a");
  Bell bell_c, bell_b;
  auto c = manager->Acquire("c", bell_c.wake());
  auto b = manager->Acquire("b", bell_b.wake());
  ASSERT_TRUE(b && c);
  using_a = {};
  ASSERT_TRUE(bell_c.Wait());
  EXPECT_TRUE(b->is_waiting());
  *c = {};
  ASSERT_TRUE(bell_b.Wait());
  EXPECT_TRUE(b->backend().has_value());
}

TEST_F(ModelManagerTest, NothingIsLoadedForThoseWhoLeft) {
  park.Add("a", 200);
  park.Add("b", 200);
  park.Add("c", 200);
  Start();
  ModelLease using_a = Get("a");
  {
    auto b = manager->Acquire("b", {});
    ASSERT_TRUE(b && b->is_waiting());
  }
  EXPECT_EQ(manager->Find("b")->num_waiting, 0);
  using_a = {};
  (void)Get("c");
  EXPECT_EQ(park.model("b").num_loads, 0);
}

TEST_F(ModelManagerTest, AsManyWaitAsMayAndNoMore) {
  park.Add("a", 100).is_slow = true;
  Start({.memory_bytes = 200, .waiting_max = 2});
  Bell bell;
  auto first = manager->Acquire("a", bell.wake());
  auto second = manager->Acquire("a", {});
  ASSERT_TRUE(first && second);
  const auto third = manager->Acquire("a", {});
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(third.error().message, HasSubstr("2 requests wait"));
  *second = {};
  EXPECT_TRUE(manager->Acquire("a", {}).has_value());
  ASSERT_TRUE(Eventually([&] { return park.WithEngine("a", [](auto&) {}); }));
  park.Finish("a");
  ASSERT_TRUE(bell.Wait());
  EXPECT_TRUE(first->backend().has_value());
}

TEST_F(ModelManagerTest, AFailureIsToldToAllWhoWaitAndNotTriedAgainAtOnce) {
  park.Add("a", 100);
  park.Add("b", 100).is_broken = true;
  Start();
  Bell bell;
  auto lease = manager->Acquire("b", bell.wake());
  ASSERT_TRUE(lease.has_value());
  while (lease->is_waiting()) ASSERT_TRUE(bell.Wait());
  ASSERT_FALSE(lease->backend().has_value());
  EXPECT_EQ(lease->backend().error().message, "the model b cannot be loaded: the tokenizer is broken");
  EXPECT_EQ(lease->backend().error().code, ErrorCode::kInternal);
  EXPECT_TRUE(Becomes("b", ModelState::kUnloaded));
  EXPECT_THAT(ErrorOf("b"), HasSubstr("the tokenizer is broken"));
  EXPECT_EQ(park.model("b").num_loads, 1);
  EXPECT_THAT(manager->Find("b")->error, HasSubstr("the tokenizer is broken"));
  park.model("b").is_broken = false;
  auto again = manager->Acquire("b", bell.wake(), /*again=*/true);
  ASSERT_TRUE(again.has_value());
  while (again->is_waiting()) ASSERT_TRUE(bell.Wait());
  EXPECT_TRUE(again->backend().has_value());
  EXPECT_EQ(manager->Find("b")->error, "");
  (void)Get("a");
}

TEST_F(ModelManagerTest, WhatCannotFitIsRefusedAndCostsNobodyItsPlace) {
  park.Add("a", 100);
  park.Add("large", 201);
  park.Add("missing", 1).is_missing = true;
  Start();
  (void)Get("a");
  EXPECT_THAT(ErrorOf("large"), HasSubstr("the model large cannot be loaded: its weights take"));
  EXPECT_THAT(ErrorOf("missing"), HasSubstr("there is no such file"));
  EXPECT_EQ(StateOf("a"), ModelState::kLoaded);
  park.model("missing").is_missing = false;
  (void)Get("missing");  // a file that has come meanwhile
}

TEST_F(ModelManagerTest, AModelThatTakesMoreThanMeasuredDoesNotStay) {
  park.Add("a", 100);
  park.Add("b", 90).real_bytes = 150;
  Start();
  ModelLease using_a = Get("a");
  Bell bell;
  auto lease = manager->Acquire("b", bell.wake());
  ASSERT_TRUE(lease.has_value());
  while (lease->is_waiting()) ASSERT_TRUE(bell.Wait());
  EXPECT_FALSE(lease->backend().has_value());
  EXPECT_TRUE(Becomes("b", ModelState::kUnloaded));
  using_a = {};
  Bell bell_again;
  auto again = manager->Acquire("b", bell_again.wake(), /*again=*/true);  // now its size is known
  ASSERT_TRUE(again.has_value());
  while (again->is_waiting()) ASSERT_TRUE(bell_again.Wait());
  EXPECT_TRUE(again->backend().has_value());
  EXPECT_EQ(StateOf("a"), ModelState::kUnloaded);
}

TEST_F(ModelManagerTest, UnloadingLetsWhatRunsFinishAndLoadsAgainForWhoeverComes) {
  server.drain_timeout = 10s;
  park.Add("a", 100);
  Start();
  ModelLease using_a = Get("a");
  ASSERT_TRUE(manager->Unload("a").has_value());
  EXPECT_EQ(StateOf("a"), ModelState::kUnloading);
  Bell bell;
  auto next = manager->Acquire("a", bell.wake());
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(next->is_waiting());
  EXPECT_TRUE(using_a.backend().has_value());
  using_a = {};
  ASSERT_TRUE(bell.Wait());
  EXPECT_TRUE(next->backend().has_value());
  EXPECT_EQ(park.model("a").num_loads, 2);
  EXPECT_FALSE(manager->Unload("unknown").has_value());
}

TEST_F(ModelManagerTest, UnloadingEndsWhatDoesNotFinishInTime) {
  park.Add("a", 100);
  Start();
  ModelLease lease = Get("a");
  Bell bell;
  auto box = std::make_shared<EventBox>(1000, [wake = bell.wake()](bool) { wake(); });
  GenerateRequest request;
  ModelBackend* backend = *lease.backend();
  park.WithEngine("a", [](testing::ScriptedEngine& engine) { engine.Hold(true); });
  request.id = backend->tracker().NextId();
  request.prompt = {TokenId(1)};
  ASSERT_TRUE(backend->tracker().Submit(request, 0, box).has_value());
  ASSERT_TRUE(manager->Unload("a").has_value());
  ASSERT_TRUE(bell.Wait());
  const auto content = box->Take();
  ASSERT_TRUE(content.ended.has_value());
  EXPECT_EQ(content.ended->message, "the model was unloaded");
  lease = {};
  EXPECT_TRUE(Becomes("a", ModelState::kUnloaded));
}

TEST_F(ModelManagerTest, UnloadingStopsALoad) {
  park.Add("a", 100).is_slow = true;
  Start();
  Bell bell;
  auto lease = manager->Acquire("a", bell.wake());
  ASSERT_TRUE(lease.has_value());
  ASSERT_TRUE(Eventually([&] { return park.WithEngine("a", [](auto&) {}); }));
  ASSERT_TRUE(manager->Unload("a").has_value());
  ASSERT_TRUE(bell.Wait());
  ASSERT_FALSE(lease->backend().has_value());
  EXPECT_EQ(lease->backend().error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(Becomes("a", ModelState::kUnloaded));
  EXPECT_EQ(park.bytes_now(), 0);
}

TEST_F(ModelManagerTest, AnEngineThatIsGoneForGoodTakesItsModelAndNoOther) {
  park.Add("a", 100);
  park.Add("b", 100);
  Start();
  ModelLease using_b = Get("b");
  (void)Get("a");
  park.WithEngine("a", [](testing::ScriptedEngine& engine) { engine.Vanish(); });
  EXPECT_TRUE(Becomes("a", ModelState::kUnloaded));
  EXPECT_NE(ErrorOf("a"), "");
  EXPECT_EQ(manager->Find("a")->num_unloads[static_cast<std::size_t>(UnloadReason::kDied)], 1);
  EXPECT_TRUE((*using_b.backend())->is_ready());
}

TEST_F(ModelManagerTest, AnEngineThatDiesWhileItLoadsIsAFailure) {
  park.Add("a", 100).is_slow = true;
  Start();
  Bell bell;
  auto lease = manager->Acquire("a", bell.wake());
  ASSERT_TRUE(lease.has_value());
  ASSERT_TRUE(
      Eventually([&] { return park.WithEngine("a", [](testing::ScriptedEngine& engine) { engine.Vanish(); }); }));
  ASSERT_TRUE(bell.Wait());
  EXPECT_FALSE(lease->backend().has_value());
  EXPECT_TRUE(Becomes("a", ModelState::kUnloaded));
}

TEST_F(ModelManagerTest, IdleModelsGo) {
  park.Add("a", 100);
  Start({.memory_bytes = 200, .idle_timeout = 20ms});
  ModelLease lease = Get("a");
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(StateOf("a"), ModelState::kLoaded);  // in use
  lease = {};
  EXPECT_TRUE(Becomes("a", ModelState::kUnloaded));
  EXPECT_EQ(manager->Find("a")->num_unloads[static_cast<std::size_t>(UnloadReason::kIdle)], 1);
}

TEST_F(ModelManagerTest, ResetsTheCachesOfWhatIsLoaded) {
  park.Add("a", 100);
  park.Add("b", 100);
  Start();
  (void)Get("a");
  EXPECT_TRUE(manager->ResetPrefixCaches().has_value());
  park.WithEngine("a", [](testing::ScriptedEngine& engine) { EXPECT_EQ(engine.num_resets(), 1); });
  EXPECT_EQ(StateOf("b"), ModelState::kUnloaded);
}

TEST_F(ModelManagerTest, EndsInTheMiddleOfALoad) {
  park.Add("a", 100).is_slow = true;
  Start();
  {
    const auto lease = manager->Acquire("a", {});
    ASSERT_TRUE(Eventually([&] { return park.WithEngine("a", [](auto&) {}); }));
  }
  manager.reset();
  EXPECT_EQ(park.bytes_now(), 0);
}

TEST_F(ModelManagerTest, Metrics) {
  park.Add("a\"b", 100);
  Start();
  (void)Get("a\"b");
  const std::string text = ModelMetrics(manager->List(), 200);
  EXPECT_THAT(text, HasSubstr("quire:models_memory_limit_bytes 200\n"));
  EXPECT_THAT(text, HasSubstr("quire:model_state{model_name=\"a\\\"b\",state=\"loaded\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("quire:model_state{model_name=\"a\\\"b\",state=\"unloaded\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("quire:model_memory_bytes{model_name=\"a\\\"b\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("quire:model_loads_total{model_name=\"a\\\"b\"} 1\n"));
}

// Requests, cancellations, unloads, deaths and failures all at once: memory stays within its limit, everybody gets an
// answer, and in the end nothing is left.
TEST_F(ModelManagerTest, HoldsItsLimitsWhateverHappensAtOnce) {
  constexpr int kNumThreads = 6, kNumRounds = 60;
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  for (std::size_t i = 0; i < names.size(); ++i) park.Add(names[i], 40 + 20 * static_cast<std::int64_t>(i));
  server.drain_timeout = 1ms;
  Start({.memory_bytes = 200, .loaded_max = 3, .waiting_max = 4});
  std::atomic<int> num_granted{0};
  const auto play = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < kNumRounds; ++round) {
      const std::string& name = names[random() % names.size()];
      switch (random() % 16) {
        case 0:
          EXPECT_TRUE(manager->Unload(name).has_value());
          continue;
        case 1:
          park.WithEngine(name, [](testing::ScriptedEngine& engine) { engine.Vanish(); });
          continue;
        case 2:
          (void)manager->List();
          continue;
        default:
          break;
      }
      const bool leaves = random() % 4 == 0;
      Bell bell;
      auto lease = manager->Acquire(name, bell.wake(), /*again=*/true);
      if (!lease || leaves) continue;
      while (lease->is_waiting()) ASSERT_TRUE(bell.Wait()) << "seed " << seed;
      if (const auto backend = lease->backend()) {
        ++num_granted;
        EXPECT_EQ((*backend)->model().names.front(), name);
        (void)(*backend)->Context();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= kNumThreads; ++seed) threads.emplace_back(play, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_granted, kNumThreads);
  EXPECT_LE(park.bytes_peak(), 200);
  EXPECT_LE(park.models_peak(), 3);
  for (const ModelStatus& model : manager->List()) {
    EXPECT_EQ(model.num_requests, 0);
    EXPECT_EQ(model.num_waiting, 0);
  }
  manager.reset();
  EXPECT_EQ(park.bytes_now(), 0);
}

}  // namespace
}  // namespace quire::server
