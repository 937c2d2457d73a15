#include "server/testing/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/check.h"

namespace quire::server::testing {
namespace {
constexpr int kPatienceMs = 10'000;
}

std::vector<std::string> HttpAnswer::Events() const {
  std::vector<std::string> events;
  std::string_view rest = body;
  while (true) {
    const std::size_t end = rest.find("\n\n");
    if (end == std::string_view::npos) return events;
    const std::string_view event = rest.substr(0, end);
    if (event.starts_with("data: ")) events.emplace_back(event.substr(6));
    rest.remove_prefix(end + 2);
  }
}

HttpClient::HttpClient(int port, int receive_buffer) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  CHECK(fd_.valid());
  if (receive_buffer > 0) {
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd waiting{.fd = fd_.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&waiting, 1, kPatienceMs) <= 0) return false;
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool HttpClient::ReceiveMore() {
  pollfd waiting{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, kPatienceMs) <= 0) return false;
  char buffer[65536];
  const ssize_t count = ::recv(fd_.get(), buffer, sizeof buffer, 0);
  if (count <= 0) return false;
  received_.append(buffer, static_cast<std::size_t>(count));
  return true;
}

bool HttpClient::ParseHead(HttpAnswer* answer) {
  std::size_t end = 0;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!ReceiveMore()) return false;
  }
  const std::string head = received_.substr(0, end + 2);
  received_.erase(0, end + 4);
  answer->status = std::atoi(head.c_str() + std::min<std::size_t>(head.size(), 9));
  if (answer->status == 100) return ParseHead(answer);
  for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
    const std::size_t line_end = head.find("\r\n", at);
    const std::size_t colon = head.find(": ", at);
    std::string name = head.substr(at, colon - at);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    answer->headers[name] = head.substr(colon + 2, line_end - colon - 2);
    at = line_end + 2;
  }
  body_left_ = std::strtoull(answer->header("content-length").c_str(), nullptr, 10);
  return true;
}

bool HttpClient::ParseBody(HttpAnswer* answer) {
  if (answer->header("transfer-encoding") == "chunked") {
    while (true) {
      const std::size_t line_end = received_.find("\r\n");
      if (line_end == std::string::npos) return false;
      const std::size_t size = std::strtoull(received_.c_str(), nullptr, 16);
      if (received_.size() < line_end + 2 + size + 2) return false;
      answer->body += received_.substr(line_end + 2, size);
      received_.erase(0, line_end + 2 + size + 2);
      if (size == 0) return true;
    }
  }
  if (is_head_request_ || answer->status == 204) return true;
  if (answer->headers.contains("content-length")) {
    const std::size_t part = std::min(body_left_, received_.size());
    answer->body += received_.substr(0, part);
    received_.erase(0, part);
    body_left_ -= part;
    return body_left_ == 0;
  }
  answer->body += std::exchange(received_, {});
  return false;  // until the connection ends
}

HttpAnswer HttpClient::ReadUntil(std::string_view text) {
  HttpAnswer answer;
  if (partial_) {
    answer = *std::exchange(partial_, std::nullopt);
  } else if (!ParseHead(&answer)) {
    return answer;
  }
  while (!(answer.complete = ParseBody(&answer))) {
    if (!text.empty() && answer.body.find(text) != std::string::npos) {
      partial_ = answer;
      return answer;
    }
    if (!ReceiveMore()) {
      // Without a length the end of the connection is the end of the body.
      answer.complete = !answer.headers.contains("content-length") && !answer.headers.contains("transfer-encoding");
      return answer;
    }
  }
  return answer;
}

HttpAnswer HttpClient::Read() {
  return ReadUntil({});
}

bool HttpClient::IsClosed() {
  char byte = 0;
  pollfd waiting{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, kPatienceMs) <= 0) return false;
  return ::recv(fd_.get(), &byte, 1, MSG_PEEK) <= 0;
}

void HttpClient::HalfClose() {
  ::shutdown(fd_.get(), SHUT_WR);
}

HttpAnswer HttpClient::Get(const std::string& target, const std::string& more_headers) {
  Send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", target, more_headers));
  return Read();
}

std::string HttpClient::PostBytes(const std::string& target, std::string_view body, const std::string& more_headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", target,
      body.size(), more_headers, body);
}

HttpAnswer HttpClient::Post(const std::string& target, std::string_view body, const std::string& more_headers) {
  Send(PostBytes(target, body, more_headers));
  return Read();
}

}  // namespace quire::server::testing
