// Serves an engine over one connected socket: the engine process's side of the conversation in protocol.fbs.
// While the model loads it reports progress; then Serve passes requests on to the engine, and its events
// back.
//
// Threads: Handshake, SendProgress, SendFailure and Serve belong to one thread; Drain may come from any.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "wire/codec.h"
#include "wire/engine_client.h"
#include "wire/frame_socket.h"

namespace quire::wire {

class EngineServer {
 public:
  explicit EngineServer(UniqueFd socket) : socket_(std::move(socket)) {}

  // What it sends and receives shows in lanes of this tracer, which outlives it. Before Serve.
  void Trace(Tracer* tracer) {
    send_lane_ = tracer->Lane("wire send");
    receive_lane_ = tracer->Lane("wire receive");
  }

  // Exchanges versions; bounded in time.
  Result<> Handshake();
  Result<> SendProgress(const LoadProgress& progress);
  // Loading failed: `error` is what the front end will show.
  Result<> SendFailure(const Error& error);

  // Until the front end ends the connection or a drain is complete; an error when the engine itself is gone
  // or the front end breaks the protocol. Requests that are still in flight then are aborted.
  Result<> Serve(EngineClient* engine);

  // Refuses new requests; Serve returns when those in flight have finished.
  void Drain();

 private:
  struct Outstanding {
    int num_unfinished = 0;
    std::vector<bool> finished;  // [n]
  };

  Result<> ReadLoop(EngineClient* engine);
  Result<> Handle(EngineClient* engine, Message message);
  Result<> Submit(EngineClient* engine, GenerateRequest request);
  void PumpEvents(EngineClient* engine);
  // Drops what belongs to no request of this connection, keeps the books, and replaces what cannot be sent.
  std::vector<EngineEvent> TakeAccount(EngineClient* engine, std::vector<EngineEvent> events);
  // In several messages when they are many; in an empty one when there are none.
  Result<> SendEvents(const std::vector<EngineEvent>& events);

  template <typename Body>
  Result<> Send(std::uint64_t call, const Body& body);

  FrameSocket socket_;
  TraceLane* send_lane_ = nullptr;
  TraceLane* receive_lane_ = nullptr;
  std::mutex send_mutex_;  // guards encoder_ and the sending side of socket_, and makes way for one span at a time
  Encoder encoder_;

  // True when a drain has nothing left to wait for. mutex_ is held.
  bool IsDrained() const { return draining_ && outstanding_.empty() && !sending_events_; }

  std::mutex mutex_;  // guards the next four
  EngineInfo info_;
  bool draining_ = false;
  bool sending_events_ = false;  // the pump holds events that are booked but not yet sent
  std::unordered_map<RequestId, Outstanding> outstanding_;

  // Flags between the reader and the pump; the thread's end orders everything else.
  std::atomic<bool> stop_{false};
  std::atomic<bool> engine_is_gone_{false};
};

}  // namespace quire::wire
