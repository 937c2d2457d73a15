// A child process with one connected socket, watched through a pidfd. It is killed when the thread that
// started it dies, with its process or alone; it inherits no descriptor but the standard ones and its socket.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace quire::wire {

class ChildProcess {
 public:
  // The number under which the child finds its end of the socket.
  static constexpr int kSocketFd = 3;

  // Runs the program at a path, with arguments that begin with its name, and hands out the other end of the child's
  // socket. The child starts with an empty signal mask and default dispositions.
  static Result<ChildProcess> Start(const std::string& program, const std::vector<std::string>& arguments,
                                    UniqueFd* socket);

  // A process that still runs is killed and waited for.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // Becomes readable when the process ends.
  int pidfd() const { return pidfd_.get(); }

  void Kill(int signal);
  // The wait status, when the process ends within the time.
  std::optional<int> WaitFor(std::chrono::milliseconds timeout);

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_ = -1;  // -1: moved from, or waited for
  UniqueFd pidfd_;
  std::optional<int> status_;
};

// "exited with status 1", "was killed by signal 9 (Killed)"
std::string DescribeWaitStatus(int status);

}  // namespace quire::wire
