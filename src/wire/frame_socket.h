// Frames (see codec.h) over a connected stream socket. Sending and receiving may go on at the same time in
// two threads; each of them is for one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace quire::wire {

class FrameSocket {
 public:
  explicit FrameSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // Sends all of `frame`. After an error the stream may be cut inside a frame: nothing more can be sent.
  Result<> Send(std::span<const std::byte> frame);

  // The next whole frame with its prefix, 8-byte aligned, valid until the next call; nothing at the orderly
  // end of the stream. Memory grows with the bytes that have come, not with the length that the other side
  // announces.
  Result<std::optional<std::span<const std::byte>>> Receive();

  // A Send or Receive that makes no progress for this long fails with kUnavailable; zero waits for ever.
  Result<> SetSendTimeout(std::chrono::milliseconds timeout);
  Result<> SetReceiveTimeout(std::chrono::milliseconds timeout);

  // From any thread: wakes Send and Receive here, and ends the stream for the other side.
  void ShutDown();
  // From any thread: Receive delivers what has come and then the end; Send still works.
  void ShutDownReceiving();

  int fd() const { return fd_.get(); }

 private:
  // False at the end of the stream before the first byte of `out`.
  Result<bool> ReceiveExactly(std::span<std::byte> out);

  UniqueFd fd_;
  std::vector<std::uint64_t> buffer_;  // of 64-bit words for their alignment
};

// Two connected ends, both close-on-exec.
Result<std::pair<UniqueFd, UniqueFd>> CreateSocketPair();

}  // namespace quire::wire
