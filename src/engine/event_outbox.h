// Events on their way from the engine's thread to whoever reads them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "api/events.h"

namespace quire::engine {

// Events of one choice that nobody has fetched are merged into one, so a slow reader holds nobody up and
// costs no more than the tokens that it asked for. Any thread.
class EventOutbox final {
 public:
  // Takes the events out of `events`.
  void Push(std::vector<EngineEvent>* events);
  // No event will follow.
  void Close();
  // Waits for events, for at most `timeout`; empty when none came; nullopt when the outbox is closed and
  // empty.
  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout);

 private:
  struct ChoiceKey {
    RequestId request;
    int choice = 0;
    friend bool operator==(const ChoiceKey&, const ChoiceKey&) = default;
  };
  struct ChoiceHash {
    std::size_t operator()(const ChoiceKey& key) const;
  };

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<EngineEvent> events_;
  std::unordered_map<ChoiceKey, std::size_t, ChoiceHash> index_;  // of each choice's event in events_
  bool closed_ = false;
};

}  // namespace quire::engine
