#include "wire/engine_server.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <thread>
#include <utility>

#include "wire/limits.h"

namespace quire::wire {
namespace {

constexpr std::chrono::milliseconds kHandshakeTimeout{10'000};
// How long the pump sleeps without events before it looks whether the connection has ended.
constexpr std::chrono::milliseconds kPumpInterval{100};
// A front end takes an engine that is silent for many of these for one that hangs.
constexpr std::chrono::milliseconds kHeartbeatInterval{1'000};
// Messages stay well below what the verifier counts, and small enough that the first of many events is not
// late.
constexpr std::size_t kEventsPerMessageMax = 1024;
constexpr std::size_t kMessageBytesSoftMax = 1 << 20;
constexpr std::size_t kEventBytesMax = kFrameBytesMax - 4096;

}  // namespace

Result<> EngineServer::Handshake() {
  QUIRE_TRY_VOID(socket_.SetReceiveTimeout(kHandshakeTimeout));
  QUIRE_TRY_VOID(Send(0, Hello{}));
  QUIRE_TRY(const auto frame, socket_.Receive());
  if (!frame) return Fail(ErrorCode::kUnavailable, "the front end closed its connection");
  QUIRE_TRY(const Message message, Decode(*frame));
  const Hello* hello = std::get_if<Hello>(&message.body);
  if (hello == nullptr) return Fail(ErrorCode::kCorrupt, "the front end did not say hello first");
  if (hello->version != kProtocolVersion) {
    return Fail(ErrorCode::kUnsupported, "the front end speaks version {} of the protocol; this program speaks {}",
                hello->version, kProtocolVersion);
  }
  return socket_.SetReceiveTimeout(std::chrono::milliseconds(0));
}

Result<> EngineServer::SendProgress(const LoadProgress& progress) {
  return Send(0, progress);
}

Result<> EngineServer::SendFailure(const Error& error) {
  return Send(0, Status(std::unexpected(error)));
}

template <typename Body>
Result<> EngineServer::Send(std::uint64_t call, const Body& body) {
  const std::lock_guard lock(send_mutex_);
  TraceSpan span(send_lane_, TraceLabel::kWireSend);
  const std::span<const std::byte> frame = encoder_.Encode(call, body);
  span.SetValue(0, std::ssize(frame));
  return socket_.Send(frame);
}

Result<> EngineServer::Serve(EngineClient* engine) {
  QUIRE_TRY(EngineInfo info, engine->Info());
  QUIRE_TRY_VOID(Send(0, info));
  {
    const std::lock_guard lock(mutex_);
    info_ = std::move(info);
    if (draining_) return {};
  }
  std::thread pump([&] { PumpEvents(engine); });
  Result<> outcome = ReadLoop(engine);
  stop_.store(true, std::memory_order_relaxed);  // the join orders the rest
  socket_.ShutDown();                            // wakes a pump that waits for a front end that does not read
  pump.join();
  for (const auto& [id, outstanding] : outstanding_) engine->Abort(id, std::nullopt);
  outstanding_.clear();
  if (engine_is_gone_.load(std::memory_order_relaxed)) return Fail(ErrorCode::kInternal, "the engine has stopped");
  return outcome;
}

void EngineServer::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  if (IsDrained()) socket_.ShutDownReceiving();
}

Result<> EngineServer::ReadLoop(EngineClient* engine) {
  while (true) {
    QUIRE_TRY(const auto frame, socket_.Receive());
    if (!frame) return {};
    const TraceSpan span(receive_lane_, TraceLabel::kWireReceive, static_cast<std::int32_t>(frame->size()));
    QUIRE_TRY(Message message, Decode(*frame));
    QUIRE_TRY_VOID(Handle(engine, std::move(message)));
  }
}

Result<> EngineServer::Handle(EngineClient* engine, Message message) {
  if (auto* request = std::get_if<GenerateRequest>(&message.body)) {
    return Send(message.call, Status(Submit(engine, std::move(*request))));
  }
  if (const auto* abort = std::get_if<AbortRequest>(&message.body)) {
    engine->Abort(abort->request, abort->choice);
    return {};
  }
  if (std::holds_alternative<StatsRequest>(message.body)) {
    const Result<EngineStats> stats = engine->Stats();
    if (stats) return Send(message.call, *stats);
    return Send(message.call, Status(std::unexpected(stats.error())));
  }
  if (const auto* trace = std::get_if<TraceRequest>(&message.body)) {
    const Result<TraceBatch> batch = engine->Trace(trace->command);
    if (batch) return Send(message.call, *batch);
    return Send(message.call, Status(std::unexpected(batch.error())));
  }
  if (std::holds_alternative<ResetPrefixCacheRequest>(message.body)) {
    return Send(message.call, Status(engine->ResetPrefixCache()));
  }
  return Fail(ErrorCode::kCorrupt, "the front end sent a message that only engines send");
}

Result<> EngineServer::Submit(EngineClient* engine, GenerateRequest request) {
  const RequestId id = request.id;
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return Fail(ErrorCode::kUnavailable, "the engine is stopping");
    QUIRE_TRY_VOID(CheckRequest(request, info_));
    Outstanding outstanding{.num_unfinished = request.sampling.n,
                            .finished = std::vector<bool>(static_cast<std::size_t>(request.sampling.n))};
    if (!outstanding_.try_emplace(id, std::move(outstanding)).second) {
      return Fail(ErrorCode::kInvalidArgument, "request id {} is in use", id);
    }
  }
  Result<> submitted = engine->Submit(std::move(request));
  if (!submitted) {
    const std::lock_guard lock(mutex_);
    outstanding_.erase(id);
    if (IsDrained()) socket_.ShutDownReceiving();
  }
  return submitted;
}

void EngineServer::PumpEvents(EngineClient* engine) {
  auto last_sent = std::chrono::steady_clock::now();
  while (!stop_.load(std::memory_order_relaxed)) {
    std::optional<std::vector<EngineEvent>> events = engine->Next(kPumpInterval);
    if (!events) {
      engine_is_gone_.store(true, std::memory_order_relaxed);
      socket_.ShutDown();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (events->empty() && now - last_sent < kHeartbeatInterval) continue;
    last_sent = now;
    if (!SendEvents(TakeAccount(engine, *std::move(events)))) {
      socket_.ShutDown();
      return;
    }
    const std::lock_guard lock(mutex_);
    sending_events_ = false;
    if (IsDrained()) socket_.ShutDownReceiving();
  }
}

std::vector<EngineEvent> EngineServer::TakeAccount(EngineClient* engine, std::vector<EngineEvent> events) {
  std::vector<EngineEvent> kept;
  kept.reserve(events.size());
  const std::lock_guard lock(mutex_);
  sending_events_ = true;
  for (EngineEvent& event : events) {
    const auto found = outstanding_.find(event.request);
    if (found == outstanding_.end()) continue;
    Outstanding& outstanding = found->second;
    const auto choice = static_cast<std::size_t>(event.choice);
    if (outstanding.finished[choice]) continue;
    if (EncodedBytesMax(event) > kEventBytesMax) {
      EngineEvent error{.request = event.request, .choice = event.choice};
      error.finish_reason = FinishReason::kError;
      error.times = event.times;
      error.error = fmt::format("the logprobs of this request take {} bytes; at most {} can be sent",
                                EncodedBytesMax(event), kEventBytesMax);
      event = std::move(error);
      engine->Abort(event.request, std::nullopt);
    }
    if (event.finish_reason != FinishReason::kNone) {
      outstanding.finished[choice] = true;
      if (--outstanding.num_unfinished == 0) outstanding_.erase(found);
    }
    kept.push_back(std::move(event));
  }
  return kept;
}

Result<> EngineServer::SendEvents(const std::vector<EngineEvent>& events) {
  const std::span<const EngineEvent> all(events);
  if (all.empty()) return Send(0, all);  // the heartbeat
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin + 1;
    std::size_t bytes = EncodedBytesMax(all[begin]);
    while (end < all.size() && end - begin < kEventsPerMessageMax) {
      bytes += EncodedBytesMax(all[end]);
      if (bytes > kMessageBytesSoftMax) break;
      ++end;
    }
    QUIRE_TRY_VOID(Send(0, all.subspan(begin, end - begin)));
    begin = end;
  }
  return {};
}

}  // namespace quire::wire
