// A program for the tests of supervision, in two roles:
//   wire_fake_engine engine MODE     a fake engine on descriptor 3. MODE: `ready`, `fail` (cannot load its
//   model),
//                                    `crash` (dies while loading), `load` (loads for ever), `deaf` (never
//                                    ends by itself). A request whose prompt begins with kCrashToken kills
//                                    it.
//   wire_fake_engine front           a front end that supervises such an engine, writes the engine's pid to
//                                    descriptor 3, and waits to be killed
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "wire/child_process.h"
#include "wire/engine_server.h"
#include "wire/supervised_engine.h"
#include "wire/testing/fake_engine.h"

namespace quire::wire {
namespace {

constexpr int kCrashToken = 666, kDrainToken = 667;

// Ends by its own hand when it meets one of the tokens.
class MortalEngine final : public EngineClient {
 public:
  explicit MortalEngine(EngineServer* server) : server_(server) {}

  Result<> Submit(GenerateRequest request) override {
    if (request.prompt[0].value() == kCrashToken) ::raise(SIGKILL);
    if (request.prompt[0].value() == kDrainToken) server_->Drain();
    return engine_.Submit(std::move(request));
  }
  void Abort(RequestId id, std::optional<int> choice) override { engine_.Abort(id, choice); }
  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) override {
    return engine_.Next(timeout);
  }
  Result<EngineInfo> Info() override { return engine_.Info(); }
  Result<EngineStats> Stats() override { return engine_.Stats(); }
  Result<> ResetPrefixCache() override { return engine_.ResetPrefixCache(); }
  Result<TraceBatch> Trace(TraceCommand command) override { return engine_.Trace(command); }

 private:
  EngineServer* server_;
  testing::FakeEngine engine_;
};

void WaitForEver() {
  while (true) ::poll(nullptr, 0, -1);
}

int RunEngine(std::string_view mode) {
  // Tests look for descriptors that leaked into this process.
  for (int fd = ChildProcess::kSocketFd + 1; fd < 64; ++fd) CHECK(::close(fd) != 0);
  EngineServer server{UniqueFd(ChildProcess::kSocketFd)};
  if (!server.Handshake()) return 2;
  (void)server.SendProgress({.done_bytes = 25, .total_bytes = 100, .tensor = "embedding"});
  if (mode == "fail") {
    (void)server.SendFailure({ErrorCode::kCorrupt, "model.safetensors is broken"});
    return 1;
  }
  if (mode == "crash") return 3;
  if (mode == "load") WaitForEver();
  MortalEngine engine(&server);
  const Result<> served = server.Serve(&engine);
  if (mode == "deaf") WaitForEver();
  return served ? 0 : 1;
}

int RunFront(const char* program) {
  SupervisorConfig config;
  config.program = program;
  config.arguments = {program, "engine", "ready"};
  SupervisedEngine::Observer observer;
  pid_t pid = 0;
  observer.on_start = [&](pid_t started) { pid = started; };
  observer.on_ready = [&](const EngineInfo&) {
    [[maybe_unused]] const ssize_t written = ::write(ChildProcess::kSocketFd, &pid, sizeof pid);
  };
  SupervisedEngine engine(std::move(config), std::move(observer));
  engine.Start();
  WaitForEver();
  return 0;
}

}  // namespace
}  // namespace quire::wire

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "engine" && argc == 3) return quire::wire::RunEngine(argv[2]);
  if (role == "front") return quire::wire::RunFront(argv[0]);
  std::fprintf(stderr, "usage: wire_fake_engine engine MODE | front\n");
  return 2;
}
