#include "cli/serve_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>

#include "bench/load/runner.h"

namespace quire::cli {
namespace {

constexpr std::chrono::seconds kStartMax{60};   // to its address
constexpr std::chrono::seconds kLoadMax{3600};  // of a large model
constexpr std::chrono::seconds kStopMax{30};

}  // namespace

Result<ServeProcess> ServeProcess::Start(const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return Fail(ErrorCode::kIo, "cannot find this program: {}", error.message());
  // The shell makes the child's socket its standard output.
  std::vector<std::string> command = {"sh", "-c", R"(exec "$@" >&3)", "sh", program, "serve", "--port", "0"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  UniqueFd output;
  QUIRE_TRY(wire::ChildProcess process, wire::ChildProcess::Start("/bin/sh", command, &output));
  ServeProcess server(std::move(process), std::move(output));
  QUIRE_TRY_VOID(server.WaitForAddress());
  QUIRE_TRY_VOID(server.WaitUntilReady());
  return server;
}

Result<> ServeProcess::WaitForAddress() {
  constexpr std::string_view kWords = "listening on ";
  std::string said;
  while (true) {
    pollfd waiting{.fd = output_.get(), .events = POLLIN, .revents = 0};
    char buffer[4096];
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kStartMax).count()));
    const ssize_t count = ready > 0 ? ::recv(output_.get(), buffer, sizeof buffer, 0) : 0;
    if (count <= 0) return Fail(ErrorCode::kUnavailable, "quire serve did not start");
    said.append(buffer, static_cast<std::size_t>(count));
    const std::size_t at = said.find(kWords);
    const std::size_t end = at == std::string::npos ? at : said.find('\n', at);
    if (end == std::string::npos) continue;
    url_ = said.substr(at + kWords.size(), end - at - kWords.size());
    return {};
  }
}

Result<> ServeProcess::WaitUntilReady() {
  QUIRE_TRY(const bench::load::Target target, bench::load::Target::Parse(url_));
  const bench::load::TrafficConfig patience;
  constexpr std::chrono::milliseconds kPause{100};
  for (auto waited = std::chrono::milliseconds(0); waited < kLoadMax; waited += kPause) {
    if (bench::load::Get(target, "/health", patience)) return {};
    if (const auto status = process_->WaitFor(kPause)) {
      return Fail(ErrorCode::kUnavailable, "quire serve {}", wire::DescribeWaitStatus(*status));
    }
  }
  return Fail(ErrorCode::kUnavailable, "quire serve did not load its model within {} s", kLoadMax.count());
}

ServeProcess::~ServeProcess() {
  if (!process_) return;
  process_->Kill(SIGTERM);
  process_->WaitFor(kStopMax);  // else ~ChildProcess kills it
}

}  // namespace quire::cli
