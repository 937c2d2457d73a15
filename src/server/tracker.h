// Which engine request belongs to whom. One thread takes the engine's events and puts them into the box of
// the HTTP request that waits for them; boxes are bounded, so that a client that does not read costs memory
// only up to a limit and never a step of the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "api/events.h"
#include "base/clock.h"
#include "base/tracer.h"
#include "server/reply.h"
#include "wire/engine_client.h"

namespace quire::server {

struct ArrivedEvent {
  int prompt = 0;  // index within the HTTP request
  EngineEvent event;
  TimePoint at;  // when it came to the front end
};

// The events of one HTTP request. Shared by the session that waits for them and the tracker that fills it.
class EventBox {
 public:
  // `wake` is called when the box is no longer empty, and when events were lost because it was full (then with
  // true); from the tracker's thread.
  EventBox(std::size_t bytes_max, std::function<void(bool is_lost)> wake)
      : bytes_max_(bytes_max), wake_(std::move(wake)) {}

  struct Content {
    std::vector<ArrivedEvent> events;
    bool overflowed = false;        // events were lost: the request cannot be answered
    std::optional<ApiError> ended;  // no more will come, and this is why
  };
  Content Take();

  // False when the box is full; then it stays so.
  bool Put(ArrivedEvent event);
  void End(const ApiError& why);

  // The client has gone: what is not submitted yet need not be.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }  // a hint; orders nothing

 private:
  const std::size_t bytes_max_;
  const std::function<void(bool)> wake_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;  // guards everything below
  std::size_t bytes_ = 0;
  Content content_;
};

class RequestTracker {
 public:
  RequestTracker(EngineClient* engine, const Clock* clock, TraceLane* lane)
      : engine_(engine), clock_(clock), lane_(lane) {}

  // Registers and submits; the events of the request go to the box. After an error nothing is registered.
  Result<RequestId> Submit(GenerateRequest request, int prompt, std::shared_ptr<EventBox> box);
  RequestId NextId();
  // One of several choices has come to its end here, before the engine knows.
  void AbortChoice(RequestId id, int choice);
  // Nobody waits for the request any more. Unless it has ended by itself, the engine is told.
  void Release(RequestId id);

  // Takes events until the engine is gone or `stop` is true.
  void Run(const std::atomic<bool>& stop);
  // Ends every request that has not ended, and takes no more.
  void Abandon(const ApiError& why);

  // Prompt tokens of requests from which nothing has come yet.
  std::int64_t num_waiting_tokens() const { return num_waiting_tokens_.load(std::memory_order_relaxed); }  // a count

  bool engine_gone() const { return engine_gone_.load(std::memory_order_acquire); }

 private:
  struct Entry {
    std::shared_ptr<EventBox> box;
    int prompt = 0;
    int choices_left = 0;
    std::int64_t waiting_tokens = 0;  // of the prompt; 0 once something has come
  };
  // The request waits no more.
  void StopWaiting(Entry* entry);
  bool Forget(RequestId id);
  void Dispatch(std::vector<EngineEvent> events);

  EngineClient* engine_;
  const Clock* clock_;
  TraceLane* lane_;  // of the thread in Run; or null
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<std::int64_t> num_waiting_tokens_{0};
  std::atomic<bool> engine_gone_{false};  // Submit looks at it once its entry can be seen
  std::mutex mutex_;                      // guards entries_
  std::unordered_map<RequestId, Entry> entries_;
};

}  // namespace quire::server
