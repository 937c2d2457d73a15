// A real Redis server for tests, on a Unix socket of a temporary folder.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

namespace quire::engine {

class RedisProcess {
 public:
  // "" when there is none.
  static std::string FindBinary() {
    const char* path = std::getenv("PATH");
    std::string_view rest = path == nullptr ? "/usr/bin" : path;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(':'), rest.size());
      const std::string file = std::string(rest.substr(0, end)) + "/redis-server";
      if (::access(file.c_str(), X_OK) == 0) return file;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return "";
  }

  explicit RedisProcess(const std::filesystem::path& folder, std::string max_memory = "64mb")
      : folder_(folder), max_memory_(std::move(max_memory)) {
    Start();
  }
  ~RedisProcess() { Stop(SIGTERM); }

  std::string url() const { return "unix://" + (folder_ / "socket").string(); }
  void Signal(int signal) const { ::kill(pid_, signal); }
  void Stop(int signal) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    ::kill(pid_, SIGCONT);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    std::filesystem::remove(folder_ / "socket");
  }
  // Returns when it listens.
  void Start() {
    const std::string binary = FindBinary(), socket = (folder_ / "socket").string();
    pid_ = ::fork();
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, STDOUT_FILENO);
      ::dup2(null, STDERR_FILENO);
      ::execl(binary.c_str(), "redis-server", "--port", "0", "--unixsocket", socket.c_str(), "--save", "",
              "--appendonly", "no", "--dir", folder_.c_str(), "--maxmemory", max_memory_.c_str(), nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 1000 && ::access(socket.c_str(), F_OK) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  const std::filesystem::path folder_;
  const std::string max_memory_;
  pid_t pid_ = -1;
};

}  // namespace quire::engine
