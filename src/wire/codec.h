// Messages between front end and engine as bytes, and back. Decoding takes hostile bytes: the FlatBuffers
// verifier runs first, then every field is checked against the range of its type; what a field means for one
// particular request (is this id in the vocabulary?) is checked by the receiver, see limits.h and
// socket_engine_client.h.
//
// A frame is a size-prefixed FlatBuffer: 4 bytes of little-endian length, then that many bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/engine_info.h"
#include "api/events.h"
#include "api/request.h"
#include "base/result.h"
#include "base/tracer.h"

namespace quire::wire {

// Both sides must speak the same version; the two processes are one program, so that there is nothing to
// negotiate.
inline constexpr std::uint32_t kProtocolVersion = 4;

inline constexpr std::size_t kFramePrefixBytes = 4;
// The largest message is the prompt logprobs of a long prompt: 128k positions × 21 entries × 12 bytes = 33
// MB.
inline constexpr std::size_t kFrameBytesMax = std::size_t{128} << 20;

struct Hello {
  std::uint32_t version = kProtocolVersion;
};

// How far loading the model is.
struct LoadProgress {
  std::int64_t done_bytes = 0;
  std::int64_t total_bytes = 0;
  std::string tensor;
};

struct AbortRequest {
  RequestId request;
  std::optional<int> choice;  // nothing: all of them
};
struct StatsRequest {};
struct ResetPrefixCacheRequest {};
struct TraceRequest {
  TraceCommand command = TraceCommand::kTake;
};
// The outcome of a call without a value.
using Status = Result<>;

using Body = std::variant<Hello, LoadProgress, EngineInfo, Status, GenerateRequest, AbortRequest, StatsRequest,
                          EngineStats, ResetPrefixCacheRequest, std::vector<EngineEvent>, TraceRequest, TraceBatch>;

struct Message {
  std::uint64_t call = 0;  // pairs an answer with its question; 0 for messages that are neither
  Body body;
};

// Writes messages into a buffer that it keeps. One thread at a time; each returned frame (with its prefix) is
// valid until the next call.
class Encoder {
 public:
  Encoder();
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  std::span<const std::byte> Encode(std::uint64_t call, const Hello& hello);
  std::span<const std::byte> Encode(std::uint64_t call, const LoadProgress& progress);
  std::span<const std::byte> Encode(std::uint64_t call, const EngineInfo& info);
  std::span<const std::byte> Encode(std::uint64_t call, const Status& status);
  std::span<const std::byte> Encode(std::uint64_t call, const GenerateRequest& request);
  std::span<const std::byte> Encode(std::uint64_t call, const AbortRequest& abort);
  std::span<const std::byte> Encode(std::uint64_t call, const StatsRequest& request);
  std::span<const std::byte> Encode(std::uint64_t call, const EngineStats& stats);
  std::span<const std::byte> Encode(std::uint64_t call, const ResetPrefixCacheRequest& request);
  std::span<const std::byte> Encode(std::uint64_t call, std::span<const EngineEvent> events);
  std::span<const std::byte> Encode(std::uint64_t call, const TraceRequest& request);
  std::span<const std::byte> Encode(std::uint64_t call, const TraceBatch& batch);

 private:
  struct Builder;  // hides the generated code
  std::unique_ptr<Builder> builder_;
};

// About how many bytes an event takes in a message; never less than it really takes.
std::size_t EncodedBytesMax(const EngineEvent& event);
std::size_t EncodedBytesMax(const GenerateRequest& request);

// `frame` is a whole frame with its prefix, at an address that is a multiple of 8. kCorrupt says what is
// wrong.
Result<Message> Decode(std::span<const std::byte> frame);

}  // namespace quire::wire
