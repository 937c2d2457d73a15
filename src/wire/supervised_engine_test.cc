// The kill matrix (security.md 24), with real processes: wire_fake_engine is the engine, and once the front
// end too.
#include "wire/supervised_engine.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>

#include "wire/testing/fake_engine.h"

namespace quire::wire {
namespace {

using namespace std::chrono_literals;
using testing::MakeRequest;

constexpr auto kLongTime = 20s;
constexpr int kCrashToken = 666, kDrainToken = 667;

bool EndsWithin(pid_t pid, std::chrono::milliseconds timeout) {
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) return true;  // gone, and its zombie too
  pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, static_cast<int>(timeout.count())) == 1;
}

// An engine and what its observer has seen.
class Supervised {
 public:
  explicit Supervised(const std::string& mode, int restarts_max = 5, std::chrono::milliseconds silence_max = 30s) {
    SupervisorConfig config;
    config.program = QUIRE_FAKE_ENGINE;
    config.arguments = {"engine-under-test", "engine", mode};
    config.backoff_min = 10ms;
    config.restarts_max = restarts_max;
    config.stop_timeout = 500ms;
    config.silence_max = silence_max;
    SupervisedEngine::Observer observer;
    observer.on_start = [this](pid_t started) { pid = started; };
    observer.on_progress = [this](const LoadProgress& progress) { Note("progress " + progress.tensor); };
    observer.on_ready = [this](const EngineInfo&) { Note("ready"); };
    observer.on_death = [this](const EngineDeath& death) {
      Note(death.what + (death.is_orderly ? " (orderly)" : "") + (death.restart_in ? ", restarting" : ", for good"));
    };
    engine = std::make_unique<SupervisedEngine>(std::move(config), std::move(observer));
    engine->Start();
  }

  void Note(std::string text) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(std::move(text));
    changed_.notify_all();
  }
  // Waits until a note holds `text` for the nth time.
  bool WaitFor(std::string_view text, int times = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLongTime, [&] {
      return std::ranges::count_if(notes_, [&](const std::string& n) { return n.find(text) != n.npos; }) >= times;
    });
  }

  std::atomic<pid_t> pid{0};
  std::unique_ptr<SupervisedEngine> engine;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
};

// The finish reason of the next choice that ends.
FinishReason NextEnd(EngineClient* engine) {
  const auto deadline = std::chrono::steady_clock::now() + kLongTime;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto events = engine->Next(1s);
    if (!events) break;
    for (const EngineEvent& event : *events) {
      if (event.finish_reason != FinishReason::kNone) return event.finish_reason;
    }
  }
  return FinishReason::kNone;
}

TEST(SupervisedEngine, LoadsGeneratesAndEnds) {
  Supervised supervised("ready");
  EXPECT_EQ(supervised.engine->Info().error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(supervised.WaitFor("progress embedding"));
  ASSERT_TRUE(supervised.WaitFor("ready"));
  EXPECT_EQ(supervised.engine->Info()->vocab_size, testing::FakeEngine::kVocabSize);
  ASSERT_TRUE(supervised.engine->Submit(MakeRequest(1, 5, 10)).has_value());
  EXPECT_EQ(NextEnd(supervised.engine.get()), FinishReason::kLength);
  const pid_t pid = supervised.pid;
  supervised.engine.reset();
  EXPECT_TRUE(EndsWithin(pid, 0ms));
}

// HLTH-02: SIGKILL of the engine in the middle of a request.
TEST(SupervisedEngine, AKilledEngineFailsItsRequestsAndComesBack) {
  Supervised supervised("ready");
  ASSERT_TRUE(supervised.WaitFor("ready"));
  for (int round = 1; round <= 3; ++round) {
    const pid_t before = supervised.pid;
    ASSERT_TRUE(supervised.engine->Submit(MakeRequest(1, 5, 1'000'000'000)).has_value());
    ::kill(before, SIGKILL);
    const auto killed_at = std::chrono::steady_clock::now();
    EXPECT_EQ(NextEnd(supervised.engine.get()), FinishReason::kError);
    EXPECT_LT(std::chrono::steady_clock::now() - killed_at, 1s);
    ASSERT_TRUE(supervised.WaitFor("was killed by signal 9 (Killed), restarting", round));
    ASSERT_TRUE(supervised.WaitFor("ready", round + 1));
    EXPECT_NE(supervised.pid, before);
  }
  ASSERT_TRUE(supervised.engine->Submit(MakeRequest(2, 5, 10)).has_value());
  EXPECT_EQ(NextEnd(supervised.engine.get()), FinishReason::kLength);
}

// It hangs (here: it is stopped) and is not dead: its requests fail, and it is killed and started again.
TEST(SupervisedEngine, AnEngineThatHangsIsReplaced) {
  Supervised supervised("ready", /*restarts_max=*/5, /*silence_max=*/3s);
  ASSERT_TRUE(supervised.WaitFor("ready"));
  ASSERT_TRUE(supervised.engine->Submit(MakeRequest(1, 5, 1'000'000'000)).has_value());
  ::kill(supervised.pid, SIGSTOP);
  EXPECT_EQ(NextEnd(supervised.engine.get()), FinishReason::kError);
  ASSERT_TRUE(supervised.WaitFor("was killed by signal 9 (Killed): the other process does not answer, restarting"));
  ASSERT_TRUE(supervised.WaitFor("ready", 2));
}

// The engine speaks without being asked to, so that silence means something.
TEST(SupervisedEngine, AnIdleEngineIsNotTakenForOneThatHangs) {
  Supervised supervised("ready", /*restarts_max=*/0, /*silence_max=*/3s);
  ASSERT_TRUE(supervised.WaitFor("ready"));
  const auto events = supervised.engine->Next(4s);
  ASSERT_TRUE(events.has_value());
  EXPECT_TRUE(events->empty());
  EXPECT_TRUE(supervised.engine->Info().has_value());
}

// PROC-02: an engine that cannot live is given up, and that can be seen.
TEST(SupervisedEngine, TooManyDeathsAreTheEnd) {
  Supervised supervised("ready", /*restarts_max=*/2);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(supervised.WaitFor("ready", round));
    // The engine dies while it handles this request, so that the call itself fails.
    EXPECT_EQ(supervised.engine->Submit(MakeRequest(1, kCrashToken, 10)).error().code, ErrorCode::kUnavailable);
  }
  ASSERT_TRUE(supervised.WaitFor("was killed by signal 9 (Killed), for good"));
  EXPECT_EQ(supervised.engine->Next(kLongTime), std::nullopt);
  ASSERT_TRUE(supervised.engine->failure().has_value());
  EXPECT_EQ(supervised.engine->failure()->message, "the engine process was killed by signal 9 (Killed)");
  EXPECT_EQ(supervised.engine->Info().error().code, ErrorCode::kUnavailable);
}

TEST(SupervisedEngine, AModelThatCannotBeLoadedIsNotTriedAgain) {
  Supervised supervised("fail");
  EXPECT_EQ(supervised.engine->Next(kLongTime), std::nullopt);
  ASSERT_TRUE(supervised.engine->failure().has_value());
  EXPECT_EQ(supervised.engine->failure()->code, ErrorCode::kCorrupt);
  EXPECT_EQ(supervised.engine->failure()->message, "model.safetensors is broken");
}

TEST(SupervisedEngine, ACrashWhileLoadingIsNotTriedAgain) {
  Supervised supervised("crash");
  EXPECT_EQ(supervised.engine->Next(kLongTime), std::nullopt);
  EXPECT_EQ(supervised.engine->failure()->message, "the engine process exited with status 3");
}

TEST(SupervisedEngine, AProgramThatDoesNotExistIsReported) {
  SupervisorConfig config;
  config.program = "/does/not/exist";
  config.arguments = {"exist"};
  SupervisedEngine engine(std::move(config), {});
  EXPECT_EQ(engine.Info().error().code, ErrorCode::kUnavailable);
  engine.Start();
  EXPECT_EQ(engine.Next(kLongTime), std::nullopt);
  EXPECT_EQ(engine.failure()->message, "the engine process could not be executed");
}

// A process group may get SIGTERM as a whole: an engine that drains by itself loses nothing, and is not a crash.
TEST(SupervisedEngine, AnEngineThatEndsByItselfIsReplaced) {
  Supervised supervised("ready");
  ASSERT_TRUE(supervised.WaitFor("ready"));
  ASSERT_TRUE(supervised.engine->Submit(MakeRequest(1, kDrainToken, 2000)).has_value());
  EXPECT_EQ(NextEnd(supervised.engine.get()), FinishReason::kLength);
  ASSERT_TRUE(supervised.WaitFor("exited with status 0 (orderly), restarting"));
  ASSERT_TRUE(supervised.WaitFor("ready", 2));
}

TEST(SupervisedEngine, CanBeEndedWhileLoading) {
  Supervised supervised("load");
  ASSERT_TRUE(supervised.WaitFor("progress"));
  EXPECT_NE(supervised.engine->Info().error().message.find("25 %"), std::string::npos);
  const pid_t pid = supervised.pid;
  supervised.engine.reset();
  EXPECT_TRUE(EndsWithin(pid, 0ms));
}

TEST(SupervisedEngine, AnEngineThatDoesNotEndIsKilled) {
  Supervised supervised("deaf");
  ASSERT_TRUE(supervised.WaitFor("ready"));
  const pid_t pid = supervised.pid;
  supervised.engine.reset();
  EXPECT_TRUE(EndsWithin(pid, 0ms));
}

// PROC-01: SIGKILL of the front end leaves no orphan.
TEST(SupervisedEngine, AKilledFrontEndTakesItsEngineAlong) {
  UniqueFd socket;
  Result<ChildProcess> front = ChildProcess::Start(QUIRE_FAKE_ENGINE, {QUIRE_FAKE_ENGINE, "front"}, &socket);
  ASSERT_TRUE(front.has_value());
  pid_t engine_pid = 0;
  ASSERT_EQ(::recv(socket.get(), &engine_pid, sizeof engine_pid, MSG_WAITALL), ssize_t{sizeof engine_pid});
  ASSERT_FALSE(EndsWithin(engine_pid, 0ms));
  front->Kill(SIGKILL);
  EXPECT_TRUE(EndsWithin(engine_pid, 5s));
}

}  // namespace
}  // namespace quire::wire
