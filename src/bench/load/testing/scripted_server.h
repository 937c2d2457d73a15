// A server for tests that answers each request with the bytes that it is told to, in pieces and with pauses, and does
// to connections whatever a bad server does. On the loopback address, a thread for each connection.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/unique_fd.h"

namespace quire::bench::load::testing {

struct Piece {
  std::string bytes;
  std::chrono::milliseconds pause{0};  // before them
};

struct Answer {
  std::vector<Piece> pieces;
  bool then_close = false;  // else the next request may come
};

struct Asked {
  std::string head, body;
};

class ScriptedServer {
 public:
  // `index` counts the requests of all connections. Called from several threads, one at a time.
  using Script = std::function<Answer(const Asked& asked, int index)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    CHECK(::listen(listener_.get(), 128) == 0);
    CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~ScriptedServer() {
    is_stopped_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int num_connections() const { return num_connections_; }
  int most_at_a_time() const { return most_at_a_time_; }

 private:
  static constexpr int kPollMs = 20;

  bool IsReadable(int fd) const {
    while (!is_stopped_) {
      pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, kPollMs) > 0) return true;
    }
    return false;
  }

  void Accept() {
    while (IsReadable(listener_.get())) {
      UniqueFd fd(::accept(listener_.get(), nullptr, nullptr));
      if (!fd.valid()) continue;
      ++num_connections_;
      threads_.emplace_back([this, connection = std::move(fd)] { Serve(connection.get()); });
    }
  }

  bool Receive(int fd, std::string* bytes) const {
    char buffer[65536];
    if (!IsReadable(fd)) return false;
    const ssize_t count = ::recv(fd, buffer, sizeof buffer, 0);
    if (count <= 0) return false;
    bytes->append(buffer, static_cast<std::size_t>(count));
    return true;
  }

  void Serve(int fd) {
    std::string received;
    while (true) {
      std::size_t head_end = 0;
      while ((head_end = received.find("\r\n\r\n")) == std::string::npos) {
        if (!Receive(fd, &received)) return;
      }
      Asked asked{.head = received.substr(0, head_end + 4), .body = {}};
      const std::size_t length_at = asked.head.find("Content-Length: ");
      const std::size_t length =
          length_at == std::string::npos ? 0 : std::strtoull(asked.head.c_str() + length_at + 16, nullptr, 10);
      while (received.size() < asked.head.size() + length) {
        if (!Receive(fd, &received)) return;
      }
      asked.body = received.substr(asked.head.size(), length);
      received.erase(0, asked.head.size() + length);
      if (!Reply(fd, asked)) return;
    }
  }

  bool Reply(int fd, const Asked& asked) {
    Answer answer;
    {
      const std::lock_guard lock(mutex_);
      answer = script_(asked, num_requests_++);
      most_at_a_time_ = std::max<int>(most_at_a_time_, ++num_running_);
    }
    bool goes_on = !answer.then_close;
    for (const Piece& piece : answer.pieces) {
      for (auto left = piece.pause; left.count() > 0 && !is_stopped_; left -= std::chrono::milliseconds(5)) {
        std::this_thread::sleep_for(std::min(left, std::chrono::milliseconds(5)));
      }
      std::string_view rest = piece.bytes;
      while (!rest.empty() && !is_stopped_) {
        const ssize_t sent = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent <= 0) goes_on = false;
        if (sent <= 0) break;
        rest.remove_prefix(static_cast<std::size_t>(sent));
      }
    }
    const std::lock_guard lock(mutex_);
    --num_running_;
    return goes_on;
  }

  std::mutex mutex_;  // guards script_ and num_requests_, num_running_
  const Script script_;
  UniqueFd listener_;
  int port_ = 0;
  int num_requests_ = 0, num_running_ = 0;
  // Counters and a flag that nothing else is read after: their order does not matter.
  std::atomic<int> num_connections_ = 0, most_at_a_time_ = 0;
  std::atomic<bool> is_stopped_ = false;
  std::list<std::thread> threads_;  // of the acceptor until it has ended
  std::thread acceptor_;
};

inline std::string StreamHead() {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
}
inline std::string Chunked(std::string_view text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}
inline std::string TokenEvent(std::string_view text, bool is_last = false) {
  return fmt::format("data: {{\"choices\":[{{\"index\":0,\"text\":\"{}\",\"finish_reason\":{}}}]}}\n\n", text,
                     is_last ? "\"length\"" : "null");
}
inline std::string UsageEvent(int prompt, int completion, int cached = 0) {
  return fmt::format(
      "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},"
      "\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}}}\n\n",
      prompt, completion, cached);
}
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// A whole answer of so many tokens, in one piece.
inline Answer WholeStream(int num_tokens, std::chrono::milliseconds pause = {}) {
  std::string body;
  for (int i = 0; i < num_tokens; ++i) body += TokenEvent("a", i + 1 == num_tokens);
  body += UsageEvent(7, num_tokens, 3);
  body += kDoneEvent;
  return {.pieces = {{StreamHead() + Chunked(body) + "0\r\n\r\n", pause}}};
}

}  // namespace quire::bench::load::testing
