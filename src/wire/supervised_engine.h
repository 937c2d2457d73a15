// An engine in a process of its own that is started, watched and started again: what `quire serve` talks to.
//
// When the process ends, its requests get kError events at once, calls give kUnavailable until the next
// process has loaded the model, and after too many deaths the engine is gone for good: Next says so, and
// failure() why. The first process must become ready: a model that cannot be loaded is not tried again.
//
// Threads: a supervising thread starts the processes and outlives them (a child is killed with the thread
// that started it); callers as EngineClient says.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "wire/child_process.h"
#include "wire/engine_client.h"
#include "wire/event_inbox.h"
#include "wire/socket_engine_client.h"

namespace quire::wire {

struct SupervisorConfig {
  std::string program;                 // path
  std::vector<std::string> arguments;  // beginning with its name; its socket is ChildProcess::kSocketFd
  // A process that died is started again after a pause that doubles with each death within the window …
  std::chrono::milliseconds backoff_min{250};
  std::chrono::milliseconds backoff_max{10'000};
  // … unless it was restarted this often within the window already: then the engine is gone for good.
  int restarts_max = 5;
  std::chrono::milliseconds restart_window{10 * 60 * 1000};
  // How long a process may take to end when it is asked to, before it is killed.
  std::chrono::milliseconds stop_timeout{5'000};
  std::chrono::milliseconds call_timeout{10'000};
  // A process that has loaded its model and then says nothing for so long hangs: it is killed, and started again. No
  // step keeps it from speaking, however long that takes. Zero: it may be silent for ever.
  std::chrono::milliseconds silence_max{30'000};
};

// A process that ended unasked.
struct EngineDeath {
  std::string what;  // "was killed by signal 9 (Killed)"
  // It drained, on a signal that somebody sent to it or to all processes of a group: no request was lost.
  bool is_orderly = false;
  std::optional<std::chrono::milliseconds> restart_in;  // nothing: never
};

class SupervisedEngine final : public EngineClient {
 public:
  // For logs and progress bars; from threads of the engine's own, one call at a time, which must not call the
  // engine.
  struct Observer {
    std::function<void(pid_t pid)> on_start;
    std::function<void(const LoadProgress&)> on_progress;
    std::function<void(const EngineInfo&)> on_ready;
    std::function<void(const EngineDeath&)> on_death;
  };

  // Calls give kUnavailable until Start. `tracer`: as in SocketEngineClient::Options.
  SupervisedEngine(SupervisorConfig config, Observer observer, Tracer* tracer = nullptr);
  // Asks the process to end, and sees to it that it does.
  ~SupervisedEngine() override;

  // Starts the first process and returns at once. Once.
  void Start();

  Result<> Submit(GenerateRequest request) override;
  void Abort(RequestId id, std::optional<int> choice) override;
  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) override;
  Result<EngineInfo> Info() override;
  Result<EngineStats> Stats() override;
  Result<> ResetPrefixCache() override;
  Result<TraceBatch> Trace(TraceCommand command) override;

  // Why the engine is gone for good; nothing while it is not.
  std::optional<Error> failure() const;

 private:
  // How one process ended.
  struct Death {
    std::string what;
    bool was_ready = false;
    bool is_orderly = false;
    std::optional<Error> load_failure;  // in the engine's own words
  };

  void Supervise();
  // Starts a process and returns when it has ended; nothing when that was asked for.
  std::optional<Death> RunOnce();
  // Waits until the process ends, its connection does, or the end is asked for.
  void Watch(const ChildProcess& child);
  // Makes sure that the process ends: its wait status, or nothing when it cannot even be killed. `*was_killed` becomes
  // true when it had to be.
  std::optional<int> Reap(ChildProcess* child, bool* was_killed);
  // Waits until the client's reader thread has made its last call.
  void WaitForConnectionEnd();
  // The pause before the next start; nothing when there have been too many.
  std::optional<std::chrono::milliseconds> PlanRestart();
  // Waits; false when the end is asked for.
  bool Pause(std::chrono::milliseconds pause);
  void GiveUp(Error reason);
  void Wake();
  void ForgetWakes();

  // The client of the living process, or why there is none. Shared by callers in the middle of a call and the
  // supervising thread, so that a client lives as long as somebody uses it.
  Result<std::shared_ptr<SocketEngineClient>> Current() const;

  const SupervisorConfig config_;
  const Observer observer_;
  Tracer* const tracer_;
  EventInbox inbox_;
  UniqueFd wake_fd_;  // an eventfd: the connection ended, or the end is asked for

  mutable std::mutex mutex_;  // guards everything below
  std::shared_ptr<SocketEngineClient> client_;
  bool stop_ = false;
  bool has_been_ready_ = false;  // some process was
  bool is_ready_ = false;        // this one was
  std::optional<Error> connection_end_;
  std::optional<Error> load_failure_;
  std::optional<Error> failure_;

  std::deque<std::chrono::steady_clock::time_point> restarts_;  // of the window; the supervising thread's own
  std::thread supervisor_;
};

}  // namespace quire::wire
