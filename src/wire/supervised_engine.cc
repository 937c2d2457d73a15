#include "wire/supervised_engine.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace quire::wire {

using std::chrono::milliseconds;

SupervisedEngine::SupervisedEngine(SupervisorConfig config, Observer observer, Tracer* tracer)
    : config_(std::move(config)),
      observer_(std::move(observer)),
      tracer_(tracer),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void SupervisedEngine::Start() {
  CHECK(!supervisor_.joinable());
  supervisor_ = std::thread([this] { Supervise(); });
}

SupervisedEngine::~SupervisedEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  Wake();
  if (supervisor_.joinable()) supervisor_.join();
}

// ---- Callers
// -------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<SocketEngineClient>> SupervisedEngine::Current() const {
  const std::lock_guard lock(mutex_);
  if (client_) return client_;
  if (failure_) return Fail(ErrorCode::kUnavailable, "the engine has stopped: {}", failure_->message);
  return Fail(ErrorCode::kUnavailable, "the engine is {}", has_been_ready_ ? "being restarted" : "starting");
}

Result<> SupervisedEngine::Submit(GenerateRequest request) {
  QUIRE_TRY(const auto client, Current());
  return client->Submit(std::move(request));
}

void SupervisedEngine::Abort(RequestId id, std::optional<int> choice) {
  if (const auto client = Current()) (*client)->Abort(id, choice);
}

std::optional<std::vector<EngineEvent>> SupervisedEngine::Next(std::chrono::nanoseconds timeout) {
  return inbox_.Next(timeout);
}

Result<EngineInfo> SupervisedEngine::Info() {
  QUIRE_TRY(const auto client, Current());
  return client->Info();
}

Result<EngineStats> SupervisedEngine::Stats() {
  QUIRE_TRY(const auto client, Current());
  return client->Stats();
}

Result<> SupervisedEngine::ResetPrefixCache() {
  QUIRE_TRY(const auto client, Current());
  return client->ResetPrefixCache();
}

Result<TraceBatch> SupervisedEngine::Trace(TraceCommand command) {
  QUIRE_TRY(const auto client, Current());
  return client->Trace(command);
}

std::optional<Error> SupervisedEngine::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// ---- The supervising thread
// ----------------------------------------------------------------------------------------

void SupervisedEngine::Supervise() {
  if (!wake_fd_.valid()) return GiveUp({ErrorCode::kIo, "no file descriptor is left to watch the engine with"});
  while (true) {
    std::optional<Death> death = RunOnce();
    if (!death) return inbox_.Close();
    bool retry = false;
    {
      const std::lock_guard lock(mutex_);
      has_been_ready_ |= death->was_ready;
      retry = has_been_ready_;
    }
    const std::optional<milliseconds> pause = retry ? PlanRestart() : std::nullopt;
    if (observer_.on_death) {
      observer_.on_death({.what = death->what, .is_orderly = death->is_orderly, .restart_in = pause});
    }
    if (!pause) {
      return GiveUp(death->load_failure.value_or(Error{ErrorCode::kInternal, "the engine process " + death->what}));
    }
    if (!Pause(*pause)) return inbox_.Close();
  }
}

std::optional<SupervisedEngine::Death> SupervisedEngine::RunOnce() {
  UniqueFd socket;
  Result<ChildProcess> child = ChildProcess::Start(config_.program, config_.arguments, &socket);
  if (!child) return Death{.what = "could not be started: " + child.error().message};
  if (observer_.on_start) observer_.on_start(child->pid());

  SocketEngineClient::Options options;
  options.call_timeout = config_.call_timeout;
  options.silence_max = config_.silence_max;
  options.inbox = &inbox_;
  options.tracer = tracer_;
  options.on_progress = observer_.on_progress;
  options.on_ready = [this](const EngineInfo& info) {
    {
      const std::lock_guard lock(mutex_);
      is_ready_ = true;
    }
    if (observer_.on_ready) observer_.on_ready(info);
  };
  options.on_load_failure = [this](const Error& error) {
    const std::lock_guard lock(mutex_);
    load_failure_ = error;
  };
  options.on_closed = [this](const Error& reason) {
    {
      const std::lock_guard lock(mutex_);
      connection_end_ = reason;
    }
    Wake();
  };
  {
    const std::lock_guard lock(mutex_);
    is_ready_ = false;
    connection_end_.reset();
    load_failure_.reset();
  }
  auto client = std::make_shared<SocketEngineClient>(std::move(socket), std::move(options));
  {
    const std::lock_guard lock(mutex_);
    client_ = client;
  }
  Watch(*child);

  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    stopping = stop_;
    client_.reset();
  }
  // When we end it, the end of the stream tells the engine. When it died, the stream ends by itself, but for
  // a descriptor that leaked somewhere: then it ends here, after what the engine still said.
  if (stopping) {
    client->Disconnect();
  } else {
    client->DisconnectAfterReading();
  }
  bool was_killed = false;
  const std::optional<int> status = Reap(&*child, &was_killed);
  WaitForConnectionEnd();
  if (stopping) return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::string what = status ? DescribeWaitStatus(*status) : "does not end";
  if (was_killed && connection_end_) what += ": " + connection_end_->message;
  if (load_failure_) what = load_failure_->message;
  return Death{.what = std::move(what),
               .was_ready = is_ready_,
               .is_orderly = is_ready_ && status == 0,
               .load_failure = load_failure_};
}

void SupervisedEngine::Watch(const ChildProcess& child) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || connection_end_) return;
    }
    pollfd fds[] = {{.fd = child.pidfd(), .events = POLLIN, .revents = 0},
                    {.fd = wake_fd_.get(), .events = POLLIN, .revents = 0}};
    if (::poll(fds, std::size(fds), -1) < 0 && errno != EINTR) return;
    if (fds[0].revents != 0) return;
    ForgetWakes();
  }
}

std::optional<int> SupervisedEngine::Reap(ChildProcess* child, bool* was_killed) {
  std::optional<int> status = child->WaitFor(config_.stop_timeout);
  if (!status) {
    child->Kill(SIGKILL);
    *was_killed = true;
    status = child->WaitFor(milliseconds(60'000));  // a process that pages in may take its time to die
  }
  return status;
}

std::optional<milliseconds> SupervisedEngine::PlanRestart() {
  const auto now = std::chrono::steady_clock::now();
  while (!restarts_.empty() && now - restarts_.front() > config_.restart_window) restarts_.pop_front();
  if (std::cmp_greater_equal(restarts_.size(), config_.restarts_max)) return std::nullopt;
  const auto doublings = std::min<std::size_t>(restarts_.size(), 20);
  restarts_.push_back(now);
  return std::min(config_.backoff_max, config_.backoff_min * (std::int64_t{1} << doublings));
}

bool SupervisedEngine::Pause(milliseconds pause) {
  const auto end = std::chrono::steady_clock::now() + pause;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return false;
    }
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return true;
    pollfd wake{.fd = wake_fd_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wake, 1, static_cast<int>(left.count()));
    ForgetWakes();
  }
}

void SupervisedEngine::GiveUp(Error reason) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(reason);
  }
  inbox_.Close();
}

void SupervisedEngine::WaitForConnectionEnd() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (connection_end_) return;
    }
    pollfd wake{.fd = wake_fd_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wake, 1, -1);
    ForgetWakes();
  }
}

void SupervisedEngine::Wake() {
  const std::uint64_t one = 1;
  // It cannot fail but by overflow, and then the other side is awake anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
}

void SupervisedEngine::ForgetWakes() {
  std::uint64_t count = 0;
  while (::read(wake_fd_.get(), &count, sizeof count) > 0) {
  }
}

}  // namespace quire::wire
