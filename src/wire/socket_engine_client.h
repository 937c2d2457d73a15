// An engine at the other end of a socket. What comes from there is checked: ids against the vocabulary,
// choices and numbers of tokens against what was asked; an engine that breaks the rules is treated like one
// that died.
//
// Threads: a reader thread of its own takes in all messages; it never waits for a caller, so that any thread
// may call Submit and Next. When the connection ends, every choice in flight gets a kError event and every
// waiting call fails.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "wire/codec.h"
#include "wire/engine_client.h"
#include "wire/event_inbox.h"
#include "wire/frame_socket.h"

namespace quire::wire {

class SocketEngineClient final : public EngineClient {
 public:
  // The callbacks come from the reader thread and must not call this client.
  struct Options {
    std::chrono::milliseconds call_timeout{10'000};  // for an answer, and for the socket to take a message
    // An engine that has been ready and then says nothing for so long hangs, and is left (EngineServer speaks every
    // second, from a thread that no step holds up); zero: it never is.
    std::chrono::milliseconds silence_max{0};
    std::function<void(const LoadProgress&)> on_progress;
    std::function<void(const EngineInfo&)> on_ready;
    // The engine says that it cannot load its model.
    std::function<void(const Error&)> on_load_failure;
    // The last callback: why the connection ended.
    std::function<void(const Error&)> on_closed;
    // Where events go, when they outlive the connection; it is then not closed with it. Null: an inbox of its
    // own.
    EventInbox* inbox = nullptr;
    // Where it shows what it sends and receives; outlives the client. Null: nowhere.
    Tracer* tracer = nullptr;
  };

  // Starts the conversation; the engine may still be loading (see Info).
  SocketEngineClient(UniqueFd socket, Options options);
  ~SocketEngineClient() override;

  Result<> Submit(GenerateRequest request) override;
  void Abort(RequestId id, std::optional<int> choice) override;
  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) override;
  Result<EngineInfo> Info() override;
  Result<EngineStats> Stats() override;
  Result<> ResetPrefixCache() override;
  Result<TraceBatch> Trace(TraceCommand command) override;

  // Ends the connection from this side; on_closed follows.
  void Disconnect() { socket_.ShutDown(); }
  // Nothing more is sent; what the engine has sent already is still taken in.
  void DisconnectAfterReading() { socket_.ShutDownReceiving(); }

 private:
  enum class State { kLoading, kReady, kClosed };

  struct Choice {
    std::int64_t num_tokens = 0;
    bool finished = false;
  };
  struct Outstanding {
    std::int64_t max_tokens = 0;
    std::size_t num_prompt_tokens = 0;
    bool accepted = false;  // the engine answered Submit, or has sent an event
    int num_unfinished = 0;
    std::vector<Choice> choices;  // [n]
  };
  struct PendingCall {
    std::optional<Body> reply;
    std::condition_variable replied;
  };

  void ReadLoop();
  Error ReadUntilTheEnd();
  Result<> Handle(Message message);
  Result<> HandleEvents(std::vector<EngineEvent> events);
  Result<> CheckEvent(const EngineEvent& event, const Outstanding& outstanding) const;
  void Close(const Error& reason);

  template <typename Request>
  Result<> Send(std::uint64_t call, const Request& request);
  // Sends a question and waits for its answer; kUnavailable when none comes.
  template <typename Reply, typename Request>
  Result<Reply> Call(const Request& request);
  // kUnavailable with words for the user, unless the engine is ready. mutex_ is held.
  Result<> CheckReady() const;

  const Options options_;
  FrameSocket socket_;
  EventInbox own_inbox_;
  EventInbox* const inbox_;

  TraceLane* const send_lane_;
  TraceLane* const receive_lane_;
  std::mutex send_mutex_;  // guards encoder_ and the sending side of socket_, and makes way for one span at a time
  Encoder encoder_;

  mutable std::mutex mutex_;  // guards everything below
  State state_ = State::kLoading;
  bool hello_received_ = false;
  LoadProgress progress_;
  EngineInfo info_;
  std::uint64_t next_call_ = 1;
  std::unordered_map<std::uint64_t, PendingCall*> pending_calls_;  // on the stacks of their callers
  std::unordered_map<RequestId, Outstanding> outstanding_;

  std::thread reader_;
};

}  // namespace quire::wire
