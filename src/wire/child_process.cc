#include "wire/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/frame_socket.h"

namespace quire::wire {
namespace {

constexpr int kExecFailedStatus = 127;
constexpr int kOldKernelFdMax = 65536;  // closed one by one where close_range (Linux 5.9) is missing

// After fork in a process with threads: async-signal-safe calls only, no allocation.
[[noreturn]] void RunChild(const char* program, char* const* arguments, int socket, pid_t parent) {
  // The parent may die before the request takes effect; then nobody would.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(kExecFailedStatus);
  if (socket == ChildProcess::kSocketFd) {
    ::fcntl(socket, F_SETFD, 0);
  } else if (::dup2(socket, ChildProcess::kSocketFd) < 0) {
    ::_exit(kExecFailedStatus);
  }
  // Libraries open sockets without close-on-exec; a client's connection must not live on in here.
  if (::syscall(SYS_close_range, ChildProcess::kSocketFd + 1, ~0u, 0) != 0) {
    for (int fd = ChildProcess::kSocketFd + 1; fd < kOldKernelFdMax; ++fd) ::close(fd);
  }
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(program, arguments);
  ::_exit(kExecFailedStatus);
}

}  // namespace

Result<ChildProcess> ChildProcess::Start(const std::string& program, const std::vector<std::string>& arguments,
                                         UniqueFd* socket) {
  QUIRE_TRY(auto ends, CreateSocketPair());
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  // No handler of ours may run in the child before its dispositions are reset.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) RunChild(program.c_str(), argv.data(), ends.second.get(), parent);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return Fail(ErrorCode::kIo, "starting the process {}: {}", program, std::strerror(fork_error));
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec by definition
  const int pidfd_error = errno;
  ChildProcess child(pid, std::move(pidfd));
  if (!child.pidfd_.valid()) {
    return Fail(ErrorCode::kIo, "watching the process {}: {}", program, std::strerror(pidfd_error));
  }
  *socket = std::move(ends.first);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)), status_(other.status_) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::Kill(int signal) {
  if (pid_ > 0) ::kill(pid_, signal);  // not waited for yet: the number is still ours
}

std::optional<int> ChildProcess::WaitFor(std::chrono::milliseconds timeout) {
  if (status_) return status_;
  pollfd poll_pidfd{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&poll_pidfd, 1, static_cast<int>(timeout.count())) <= 0) return std::nullopt;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  status_ = status;
  return status_;
}

std::string DescribeWaitStatus(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExecFailedStatus) return "could not be executed";
  return fmt::format("exited with status {}", WIFEXITED(status) ? WEXITSTATUS(status) : status);
}

}  // namespace quire::wire
