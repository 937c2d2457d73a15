#include "wire/socket_engine_client.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include "wire/limits.h"

namespace quire::wire {
namespace {

bool InVocabulary(TokenId id, const EngineInfo& info) {
  return id.value() >= 0 && id.value() < info.vocab_size;
}

bool InVocabulary(const PositionLogprobs& position, const EngineInfo& info) {
  return InVocabulary(position.chosen.id, info) &&
         std::ranges::all_of(position.top, [&](const TokenLogprob& entry) { return InVocabulary(entry.id, info); });
}

}  // namespace

SocketEngineClient::SocketEngineClient(UniqueFd socket, Options options)
    : options_(std::move(options)),
      socket_(std::move(socket)),
      inbox_(options_.inbox != nullptr ? options_.inbox : &own_inbox_),
      send_lane_(options_.tracer != nullptr ? options_.tracer->Lane("wire send") : nullptr),
      receive_lane_(options_.tracer != nullptr ? options_.tracer->Lane("wire receive") : nullptr),
      reader_([this] { ReadLoop(); }) {}

SocketEngineClient::~SocketEngineClient() {
  socket_.ShutDown();
  reader_.join();
}

// ---- Callers
// -------------------------------------------------------------------------------------------------------

Result<> SocketEngineClient::Submit(GenerateRequest request) {
  const RequestId id = request.id;
  {
    const std::lock_guard lock(mutex_);
    QUIRE_TRY_VOID(CheckReady());
    QUIRE_TRY_VOID(CheckRequest(request, info_));
    if (EncodedBytesMax(request) > kFrameBytesMax) {
      return Fail(ErrorCode::kOutOfRange, "the request takes {} bytes; at most {} can be sent to the engine",
                  EncodedBytesMax(request), kFrameBytesMax);
    }
    Outstanding outstanding{.max_tokens = request.stop.max_tokens,
                            .num_prompt_tokens = request.prompt.size(),
                            .num_unfinished = request.sampling.n,
                            .choices = std::vector<Choice>(static_cast<std::size_t>(request.sampling.n))};
    if (!outstanding_.try_emplace(id, std::move(outstanding)).second) {
      return Fail(ErrorCode::kInvalidArgument, "request id {} is in use", id);
    }
  }
  Result<Status> status = Call<Status>(request);
  const std::lock_guard lock(mutex_);
  const auto found = outstanding_.find(id);
  // An event may overtake the answer, even the last one: the engine has the request then, whatever the call
  // says.
  if (found == outstanding_.end() || found->second.accepted) return {};
  if (status && *status) {
    found->second.accepted = true;
    return {};
  }
  outstanding_.erase(found);
  return status ? std::move(*status) : Result<>(std::unexpected(std::move(status).error()));
}

void SocketEngineClient::Abort(RequestId id, std::optional<int> choice) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kReady || !outstanding_.contains(id)) return;
  }
  // When it cannot be sent, the connection is ending and the request with it.
  (void)Send(0, AbortRequest{.request = id, .choice = choice});
}

std::optional<std::vector<EngineEvent>> SocketEngineClient::Next(std::chrono::nanoseconds timeout) {
  return inbox_->Next(timeout);
}

Result<EngineInfo> SocketEngineClient::Info() {
  const std::lock_guard lock(mutex_);
  QUIRE_TRY_VOID(CheckReady());
  return info_;
}

Result<EngineStats> SocketEngineClient::Stats() {
  return Call<EngineStats>(StatsRequest{});
}

Result<> SocketEngineClient::ResetPrefixCache() {
  QUIRE_TRY(Status status, Call<Status>(ResetPrefixCacheRequest{}));
  return status;
}

Result<TraceBatch> SocketEngineClient::Trace(TraceCommand command) {
  return Call<TraceBatch>(TraceRequest{command});
}

Result<> SocketEngineClient::CheckReady() const {
  switch (state_) {
    case State::kReady:
      return {};
    case State::kClosed:
      return Fail(ErrorCode::kUnavailable, "the engine has stopped");
    case State::kLoading:
      break;
  }
  if (progress_.total_bytes <= 0) return Fail(ErrorCode::kUnavailable, "the engine is starting");
  return Fail(
      ErrorCode::kUnavailable, "the engine is loading the model ({} %)",
      static_cast<int>(100.0 * static_cast<double>(progress_.done_bytes) / static_cast<double>(progress_.total_bytes)));
}

template <typename Request>
Result<> SocketEngineClient::Send(std::uint64_t call, const Request& request) {
  const std::lock_guard lock(send_mutex_);
  TraceSpan span(send_lane_, TraceLabel::kWireSend);
  const std::span<const std::byte> frame = encoder_.Encode(call, request);
  span.SetValue(0, std::ssize(frame));
  Result<> sent = socket_.Send(frame);
  // The stream may be cut inside a frame: the connection is of no more use.
  if (!sent) socket_.ShutDown();
  return sent;
}

template <typename Reply, typename Request>
Result<Reply> SocketEngineClient::Call(const Request& request) {
  PendingCall pending;
  std::uint64_t call = 0;
  {
    const std::lock_guard lock(mutex_);
    QUIRE_TRY_VOID(CheckReady());
    call = next_call_++;
    pending_calls_.emplace(call, &pending);
  }
  const Result<> sent = Send(call, request);
  std::unique_lock lock(mutex_);
  if (sent) {
    pending.replied.wait_for(lock, options_.call_timeout,
                             [&] { return pending.reply.has_value() || state_ == State::kClosed; });
  }
  pending_calls_.erase(call);
  const bool closed = state_ == State::kClosed;
  lock.unlock();
  if (pending.reply) {
    if (Reply* reply = std::get_if<Reply>(&*pending.reply)) return std::move(*reply);
    if (Status* status = std::get_if<Status>(&*pending.reply); status != nullptr && !*status) {
      return std::unexpected(std::move(*status).error());
    }
    socket_.ShutDown();
    return Fail(ErrorCode::kUnavailable, "the engine gave an answer of the wrong kind");
  }
  if (!sent || closed) return Fail(ErrorCode::kUnavailable, "the engine has stopped");
  // Should the engine have taken a request after all, it must not compute for nobody.
  if constexpr (std::is_same_v<Request, GenerateRequest>) {
    (void)Send(0, AbortRequest{.request = request.id, .choice = std::nullopt});
  }
  return Fail(ErrorCode::kUnavailable, "the engine did not answer within {} ms", options_.call_timeout.count());
}

// ---- The reader thread
// ---------------------------------------------------------------------------------------------

void SocketEngineClient::ReadLoop() {
  Close(ReadUntilTheEnd());
}

Error SocketEngineClient::ReadUntilTheEnd() {
  if (Result<> set = socket_.SetSendTimeout(options_.call_timeout); !set) return std::move(set).error();
  if (Result<> sent = Send(0, Hello{}); !sent) return std::move(sent).error();
  while (true) {
    Result<std::optional<std::span<const std::byte>>> frame = socket_.Receive();
    if (!frame) return std::move(frame).error();
    if (!*frame) return Error{ErrorCode::kUnavailable, "the engine closed its connection"};
    const TraceSpan span(receive_lane_, TraceLabel::kWireReceive, static_cast<std::int32_t>((*frame)->size()));
    Result<Message> message = Decode(**frame);
    if (!message) return std::move(message).error();
    if (Result<> handled = Handle(*std::move(message)); !handled) return std::move(handled).error();
  }
}

Result<> SocketEngineClient::Handle(Message message) {
  if (const Hello* hello = std::get_if<Hello>(&message.body)) {
    if (hello->version != kProtocolVersion) {
      return Fail(ErrorCode::kUnsupported, "the engine speaks version {} of the protocol; this program speaks {}",
                  hello->version, kProtocolVersion);
    }
    const std::lock_guard lock(mutex_);
    hello_received_ = true;
    return {};
  }
  std::unique_lock lock(mutex_);
  if (!hello_received_) return Fail(ErrorCode::kCorrupt, "the engine did not say hello first");
  if (auto* progress = std::get_if<LoadProgress>(&message.body)) {
    progress_ = *progress;
    lock.unlock();
    if (options_.on_progress) options_.on_progress(*progress);
    return {};
  }
  if (auto* info = std::get_if<EngineInfo>(&message.body)) {
    if (state_ != State::kLoading) return Fail(ErrorCode::kCorrupt, "the engine became ready twice");
    info_ = *info;
    state_ = State::kReady;
    lock.unlock();
    if (options_.on_ready) options_.on_ready(*info);
    return socket_.SetReceiveTimeout(options_.silence_max);
  }
  if (auto* events = std::get_if<std::vector<EngineEvent>>(&message.body)) {
    lock.unlock();
    return HandleEvents(std::move(*events));
  }
  if (std::holds_alternative<Status>(message.body) || std::holds_alternative<EngineStats>(message.body) ||
      std::holds_alternative<TraceBatch>(message.body)) {
    auto* status = std::get_if<Status>(&message.body);
    if (message.call == 0) {  // not an answer: loading failed
      if (status == nullptr || *status || state_ != State::kLoading) {
        return Fail(ErrorCode::kCorrupt, "the engine answered no question");
      }
      lock.unlock();
      if (options_.on_load_failure) options_.on_load_failure(status->error());
      return std::move(*status);
    }
    // A caller that no longer waits has taken its number away.
    if (const auto pending = pending_calls_.find(message.call); pending != pending_calls_.end()) {
      pending->second->reply = std::move(message.body);
      pending->second->replied.notify_one();
    }
    return {};
  }
  return Fail(ErrorCode::kCorrupt, "the engine sent a message that only front ends send");
}

Result<> SocketEngineClient::HandleEvents(std::vector<EngineEvent> events) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kReady) return Fail(ErrorCode::kCorrupt, "the engine sent events before it was ready");
    std::vector<EngineEvent> known;
    known.reserve(events.size());
    for (EngineEvent& event : events) {
      const auto found = outstanding_.find(event.request);
      if (found == outstanding_.end()) continue;  // given up by Submit after a time-out
      Outstanding& outstanding = found->second;
      QUIRE_TRY_VOID(CheckEvent(event, outstanding));
      outstanding.accepted = true;
      Choice& choice = outstanding.choices[static_cast<std::size_t>(event.choice)];
      choice.num_tokens += static_cast<std::int64_t>(event.tokens.size());
      if (event.finish_reason != FinishReason::kNone) {
        choice.finished = true;
        if (--outstanding.num_unfinished == 0) outstanding_.erase(found);
      }
      known.push_back(std::move(event));
    }
    events = std::move(known);
  }
  inbox_->Push(std::move(events));
  return {};
}

Result<> SocketEngineClient::CheckEvent(const EngineEvent& event, const Outstanding& outstanding) const {
  if (std::cmp_greater_equal(event.choice, outstanding.choices.size())) {
    return Fail(ErrorCode::kCorrupt, "the engine sent choice {} of a request for {}", event.choice,
                outstanding.choices.size());
  }
  const Choice& choice = outstanding.choices[static_cast<std::size_t>(event.choice)];
  if (choice.finished) return Fail(ErrorCode::kCorrupt, "the engine sent an event for a choice that had finished");
  if (choice.num_tokens + static_cast<std::int64_t>(event.tokens.size()) > outstanding.max_tokens) {
    return Fail(ErrorCode::kCorrupt, "the engine sent more than the {} tokens asked for", outstanding.max_tokens);
  }
  if (event.prompt_logprobs.size() > outstanding.num_prompt_tokens ||
      std::cmp_greater(event.num_cached_tokens, outstanding.num_prompt_tokens)) {
    return Fail(ErrorCode::kCorrupt, "the engine reported on more than the {} tokens of the prompt",
                outstanding.num_prompt_tokens);
  }
  const bool ids_are_right =
      std::ranges::all_of(event.tokens, [&](TokenId id) { return InVocabulary(id, info_); }) &&
      (!event.stop_token || InVocabulary(*event.stop_token, info_)) &&
      std::ranges::all_of(event.logprobs, [&](const PositionLogprobs& p) { return InVocabulary(p, info_); }) &&
      std::ranges::all_of(event.prompt_logprobs,
                          [&](const std::optional<PositionLogprobs>& p) { return !p || InVocabulary(*p, info_); });
  if (!ids_are_right) return Fail(ErrorCode::kCorrupt, "the engine sent a token id outside the vocabulary");
  return {};
}

void SocketEngineClient::Close(const Error& reason) {
  socket_.ShutDown();
  std::vector<EngineEvent> lost;
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kClosed;
    for (const auto& [id, outstanding] : outstanding_) {
      if (!outstanding.accepted) continue;  // its Submit is still waiting, and will fail
      for (std::size_t i = 0; i < outstanding.choices.size(); ++i) {
        if (outstanding.choices[i].finished) continue;
        EngineEvent event{.request = id, .choice = static_cast<int>(i)};
        event.finish_reason = FinishReason::kError;
        event.error = "the engine was lost while it worked on this request: " + reason.message;
        lost.push_back(std::move(event));
      }
    }
    std::erase_if(outstanding_, [](const auto& entry) { return entry.second.accepted; });
    for (const auto& [call, pending] : pending_calls_) pending->replied.notify_one();
  }
  inbox_->Push(std::move(lost));
  if (inbox_ == &own_inbox_) inbox_->Close();
  if (options_.on_closed) options_.on_closed(reason);
}

}  // namespace quire::wire
