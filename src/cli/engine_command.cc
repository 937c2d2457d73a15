// `quire engine`: the engine process of `quire serve`. It loads the model and serves it over an inherited socket, until
// the front end closes that. Not for people: `quire serve` starts it, with its configuration as JSON.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/model_location.h"
#include "engine/loader.h"
#include "wire/child_process.h"
#include "wire/engine_server.h"

namespace quire::cli {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(50);

struct EngineFlags {
  int fd = wire::ChildProcess::kSocketFd;
  std::string config_json = "{}";
  std::string log_level = "info";
};

sigset_t TerminationSignal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  return set;
}

// Turns SIGTERM into a drain. To be created before all other threads, so that they inherit the blocked signal.
class DrainOnTermination {
 public:
  DrainOnTermination() {
    const sigset_t set = TerminationSignal();
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    waiter_ = std::thread([this] { Wait(); });
  }
  ~DrainOnTermination() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    ::pthread_kill(waiter_.native_handle(), SIGTERM);
    waiter_.join();
  }
  DrainOnTermination(const DrainOnTermination&) = delete;
  DrainOnTermination& operator=(const DrainOnTermination&) = delete;

  // From now on there is something to drain; before, the process just ends.
  void Drains(wire::EngineServer* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
  }

 private:
  void Wait() {
    const sigset_t set = TerminationSignal();
    while (true) {
      int signal = 0;
      ::sigwait(&set, &signal);
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      if (server_ == nullptr) ::_exit(kExitSuccess);
      spdlog::info("draining");
      server_->Drain();
    }
  }

  std::mutex mutex_;  // guards the next two
  wire::EngineServer* server_ = nullptr;
  bool ended_ = false;
  std::thread waiter_;
};

void LogQuantization(const engine::EngineOptions& options, const engine::LoadedModel& loaded) {
  const std::string text = engine::DescribeQuantization(options, loaded);
  if (!text.empty()) spdlog::info("{}", text);
  for (const weights::MatrixError& matrix : loaded.quantization_errors) {
    spdlog::debug("{}: {}, relative RMS error {:.4f}, {} columns in BF16", matrix.name, matrix.type,
                  matrix.relative_rms(), matrix.num_outlier_columns);
  }
}

Result<> LoadAndServe(const EngineFlags& flags, wire::EngineServer* server, DrainOnTermination* termination) {
  QUIRE_TRY(auto options, ConfigFromJson<engine::EngineOptions>(flags.config_json, "--config"));
  QUIRE_TRY_VOID(CompletePackedCache(&options));
  CompleteKvRedis(&options);
  const SteadyClock clock;
  TimePoint last_report{};
  const auto report = [&](std::int64_t done, std::int64_t total, std::string_view tensor) {
    const TimePoint now = clock.Now();
    if (done < total && now - last_report < kProgressInterval) return;
    last_report = now;
    // When it cannot be sent, the front end is gone, and this process with it.
    (void)server->SendProgress({.done_bytes = done, .total_bytes = total, .tensor = std::string(tensor)});
  };
  Result<engine::LoadedEngine> loaded = engine::LoadEngine(options, report);
  if (!loaded) {
    (void)server->SendFailure(loaded.error());
    return std::unexpected(std::move(loaded).error());
  }
  LogQuantization(options, loaded->loaded);
  const engine::PackedCacheReport& packed = loaded->loaded.packed_cache;
  if (!packed.warning.empty()) spdlog::warn("{}", packed.warning);
  if (!packed.note.empty()) spdlog::info("{}", packed.note);
  spdlog::info("ready: {}", loaded->loaded.description);
  server->Trace(loaded->tracer.get());
  termination->Drains(server);
  return server->Serve(loaded->engine.get());
}

int RunEngine(const EngineFlags& flags) {
  ::prctl(PR_SET_NAME, "quire engine");
  // Ctrl-C goes to all processes of a terminal: the front end decides what it means. A front end that is gone shows
  // as an error of send, not as a signal.
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  if (const Result<> log = InitLog(flags.log_level, "engine"); !log) return ReportError("engine", log.error());
  struct stat status;
  if (::fstat(flags.fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    return ReportError("engine",
                       {ErrorCode::kInvalidArgument,
                        fmt::format("descriptor {} is no socket; `quire serve` starts this command", flags.fd), "fd"});
  }
  DrainOnTermination termination;
  wire::EngineServer server{UniqueFd(flags.fd)};
  if (const Result<> greeted = server.Handshake(); !greeted) {
    // A front end that ends at once, because its port is taken for instance, says so itself.
    const ErrorCode code = greeted.error().code;
    if (code != ErrorCode::kIo && code != ErrorCode::kUnavailable) return ReportError("engine", greeted.error());
    spdlog::debug("ending: {}", greeted.error().message);
    return kExitFailure;
  }
  const Result<> served = LoadAndServe(flags, &server, &termination);
  if (served) return kExitSuccess;
  spdlog::debug("ending: {}", served.error().message);  // the front end reports it
  return kExitFailure;
}

}  // namespace

void AddEngineCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "engine",
      "(internal) the engine process that `serve` starts and talks to over a socket\n\n"
      "It takes its configuration as JSON, with the names of the flags of `quire serve`, underscores for hyphens:\n"
      "  quire engine --fd 3 --config '{\"model\": \"models/demo\", \"max_num_seqs\": 64}'\n\n"
      "SIGTERM: refuses new requests, finishes what runs, ends. SIGINT is ignored. The end of the socket ends it.");
  auto flags = std::make_shared<EngineFlags>();  // shared by the parser's callback and the flags that fill it
  command->add_option("--fd", flags->fd, "descriptor of a connected stream socket")->capture_default_str();
  command->add_option("--config", flags->config_json, "JSON object")->type_name("JSON");
  command->add_option("--log-level", flags->log_level, "trace, debug, info, warn, error or off")->capture_default_str();
  SetRun(command, slot, "engine", [flags] { return RunEngine(*flags); });
}

}  // namespace quire::cli
