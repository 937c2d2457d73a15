#include "server/http_post.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/unique_fd.h"

namespace quire::server {
namespace {

using SteadyClockTime = std::chrono::steady_clock::time_point;

// How long one waits, and when one stops waiting.
struct Patience {
  SteadyClockTime deadline;
  const std::function<bool()>* give_up;

  // Until the socket can be read or written, as `events` says.
  Result<> Await(int fd, short events) const {
    constexpr std::chrono::milliseconds kSlice{50};
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return Fail(ErrorCode::kUnavailable, "the other side takes too long");
      if ((*give_up)()) return Fail(ErrorCode::kUnavailable, "given up");
      pollfd poll_fd{.fd = fd, .events = events, .revents = 0};
      const int ready = ::poll(&poll_fd, 1, static_cast<int>(std::min(left, kSlice).count()));
      if (ready > 0) return {};
      if (ready < 0 && errno != EINTR) return Fail(ErrorCode::kIo, "poll: {}", std::strerror(errno));
    }
  }
};

Result<UniqueFd> ConnectTo(const addrinfo& address, const Patience& patience) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Fail(ErrorCode::kIo, "socket: {}", std::strerror(errno));
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return Fail(ErrorCode::kIo, "connect: {}", std::strerror(errno));
  QUIRE_TRY_VOID(patience.Await(fd.get(), POLLOUT));
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Fail(ErrorCode::kIo, "connect: {}", std::strerror(error));
  return fd;
}

Result<UniqueFd> Connect(const HttpUrl& url, const Patience& patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found); error != 0) {
    return Fail(ErrorCode::kIo, "{}: {}", url.host, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  Result<UniqueFd> fd = Fail(ErrorCode::kIo, "{} has no address", url.host);
  for (const addrinfo* address = found; address != nullptr && !fd; address = address->ai_next) {
    fd = ConnectTo(*address, patience);
  }
  return fd;
}

Result<> SendAll(int fd, std::string_view text, const Patience& patience) {
  while (!text.empty()) {
    const ssize_t count = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      QUIRE_TRY_VOID(patience.Await(fd, POLLOUT));
    } else if (errno != EINTR) {
      return Fail(ErrorCode::kIo, "send: {}", std::strerror(errno));
    }
  }
  return {};
}

// "HTTP/1.1 200 OK" → 200.
Result<int> ReadStatus(int fd, const Patience& patience) {
  constexpr std::size_t kPrefixBytes = 12;
  std::string head;
  while (head.size() < kPrefixBytes) {
    char bytes[256];
    const ssize_t count = ::recv(fd, bytes, sizeof bytes, 0);
    if (count > 0) {
      head.append(bytes, static_cast<std::size_t>(count));
    } else if (count == 0) {
      return Fail(ErrorCode::kIo, "the connection ended without an answer");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      QUIRE_TRY_VOID(patience.Await(fd, POLLIN));
    } else if (errno != EINTR) {
      return Fail(ErrorCode::kIo, "recv: {}", std::strerror(errno));
    }
  }
  int status = 0;
  const char* const digits = head.data() + 9;
  if (!head.starts_with("HTTP/1.") || std::from_chars(digits, digits + 3, status).ptr != digits + 3) {
    return Fail(ErrorCode::kIo, "the answer is not HTTP/1.1");
  }
  return status;
}

bool IsPort(std::string_view port) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc() && end == port.data() + port.size() && number >= 1 && number <= 65535;
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(std::string_view url, const std::string& param) {
  const auto refuse = [&] {
    return FailParam(param, "{} must be a URL such as http://127.0.0.1:4318/v1/traces, got \"{}\"", param, url);
  };
  constexpr std::string_view kScheme = "http://";
  constexpr std::size_t kUrlBytesMax = 2048;
  const bool is_plain = std::ranges::all_of(url, [](char c) { return c > 0x20 && c < 0x7f && c != '@' && c != '#'; });
  if (!url.starts_with(kScheme) || url.size() > kUrlBytesMax || !is_plain) return refuse();
  std::string_view rest = url.substr(kScheme.size());
  HttpUrl parsed;
  const std::size_t slash = rest.find_first_of("/?");
  parsed.authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) parsed.path = rest.substr(slash);
  if (parsed.path.starts_with('?')) parsed.path.insert(0, "/");
  std::string_view host = parsed.authority, port;
  if (host.starts_with('[')) {
    const std::size_t bracket = host.find(']');
    if (bracket == std::string_view::npos) return refuse();
    port = host.substr(bracket + 1);
    host = host.substr(1, bracket - 1);
    if (!port.empty() && !port.starts_with(':')) return refuse();
  } else if (const std::size_t colon = host.find(':'); colon != std::string_view::npos) {
    port = host.substr(colon);
    host = host.substr(0, colon);
  }
  if (!port.empty()) {
    if (!IsPort(port.substr(1))) return refuse();
    parsed.port = port.substr(1);
  }
  if (host.empty()) return refuse();
  parsed.host = host;
  return parsed;
}

Result<int> PostJson(const HttpUrl& url, std::string_view body, std::chrono::milliseconds timeout,
                     const std::function<bool()>& give_up) {
  const Patience patience{.deadline = std::chrono::steady_clock::now() + timeout, .give_up = &give_up};
  QUIRE_TRY(const UniqueFd fd, Connect(url, patience));
  const std::string head = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n",
      url.path, url.authority, body.size());
  QUIRE_TRY_VOID(SendAll(fd.get(), head, patience));
  QUIRE_TRY_VOID(SendAll(fd.get(), body, patience));
  return ReadStatus(fd.get(), patience);
}

}  // namespace quire::server
