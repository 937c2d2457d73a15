#include "wire/frame_socket.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/codec.h"

namespace quire::wire {
namespace {

constexpr std::size_t kReceiveStepBytes = 1 << 20;
constexpr std::size_t kKeptBufferBytes = 1 << 20;  // what stays allocated after a large frame

std::size_t WordsFor(std::size_t bytes) {
  return (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
}

bool IsTimeout(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

Result<> SetTimeout(int fd, int option, std::chrono::milliseconds timeout) {
  const timeval value{.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
  if (::setsockopt(fd, SOL_SOCKET, option, &value, sizeof value) == 0) return {};
  return Fail(ErrorCode::kIo, "setting a timeout on a socket: {}", std::strerror(errno));
}

}  // namespace

Result<> FrameSocket::Send(std::span<const std::byte> frame) {
  while (!frame.empty()) {
    const ssize_t sent = ::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (IsTimeout(errno)) return Fail(ErrorCode::kUnavailable, "the other process does not read its socket");
      return Fail(ErrorCode::kIo, "sending to the other process: {}", std::strerror(errno));
    }
    frame = frame.subspan(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<bool> FrameSocket::ReceiveExactly(std::span<std::byte> out) {
  const std::size_t wanted = out.size();
  while (!out.empty()) {
    const ssize_t received = ::recv(fd_.get(), out.data(), out.size(), 0);
    if (received < 0 && errno == EINTR) continue;
    // ECONNRESET: the other side ended with unread data. That is the end of the stream here as well.
    if (received == 0 || (received < 0 && errno == ECONNRESET)) {
      if (out.size() == wanted) return false;
      return Fail(ErrorCode::kIo, "the other process ended inside a message");
    }
    if (received < 0) {
      if (IsTimeout(errno)) return Fail(ErrorCode::kUnavailable, "the other process does not answer");
      return Fail(ErrorCode::kIo, "receiving from the other process: {}", std::strerror(errno));
    }
    out = out.subspan(static_cast<std::size_t>(received));
  }
  return true;
}

Result<std::optional<std::span<const std::byte>>> FrameSocket::Receive() {
  if (buffer_.size() > WordsFor(kKeptBufferBytes)) {
    buffer_.resize(WordsFor(kKeptBufferBytes));
    buffer_.shrink_to_fit();
  }
  std::uint32_t length = 0;
  QUIRE_TRY(const bool more, ReceiveExactly(std::as_writable_bytes(std::span(&length, 1))));
  if (!more) return std::nullopt;
  const std::size_t total = kFramePrefixBytes + length;
  if (total > kFrameBytesMax) {
    return Fail(ErrorCode::kCorrupt, "a frame of {} bytes was announced; at most {} are allowed", total,
                kFrameBytesMax);
  }
  std::size_t filled = kFramePrefixBytes;
  buffer_.resize(std::max(buffer_.size(), WordsFor(kFramePrefixBytes)));
  std::memcpy(buffer_.data(), &length, sizeof length);
  while (filled < total) {
    const std::size_t step = std::min(total - filled, std::max(kReceiveStepBytes, filled));
    buffer_.resize(std::max(buffer_.size(), WordsFor(filled + step)));
    QUIRE_TRY(const bool whole, ReceiveExactly(std::as_writable_bytes(std::span(buffer_)).subspan(filled, step)));
    if (!whole) return Fail(ErrorCode::kIo, "the other process ended inside a message");
    filled += step;
  }
  return std::as_bytes(std::span(buffer_)).first(total);
}

Result<> FrameSocket::SetSendTimeout(std::chrono::milliseconds timeout) {
  return SetTimeout(fd_.get(), SO_SNDTIMEO, timeout);
}

Result<> FrameSocket::SetReceiveTimeout(std::chrono::milliseconds timeout) {
  return SetTimeout(fd_.get(), SO_RCVTIMEO, timeout);
}

void FrameSocket::ShutDown() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

void FrameSocket::ShutDownReceiving() {
  ::shutdown(fd_.get(), SHUT_RD);
}

Result<std::pair<UniqueFd, UniqueFd>> CreateSocketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return Fail(ErrorCode::kIo, "creating a pair of sockets: {}", std::strerror(errno));
  }
  return std::pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

}  // namespace quire::wire
