// Events that wait for the front end to fetch them. What comes for a choice that already waits is merged into
// the waiting event, so that a slow consumer costs one entry for each choice in flight, holding at most the
// tokens that the choice may generate: the inbox is bounded without ever making the engine wait. Any number
// of producers; one consumer at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "api/events.h"

namespace quire::wire {

// Adds `next`, which comes after `event` for the same choice.
void MergeEvent(EngineEvent next, EngineEvent* event);

class EventInbox {
 public:
  // Ignored after Close.
  void Push(std::vector<EngineEvent> events);
  // As EngineClient::Next.
  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout);
  // No events will follow; those that wait are still delivered.
  void Close();

 private:
  struct Key {
    RequestId request;
    int choice;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct HashKey {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::uint64_t>()(key.request.value() * 0x9E3779B97F4A7C15u +
                                        static_cast<std::uint64_t>(key.choice));
    }
  };

  std::mutex mutex_;  // guards everything below
  std::condition_variable not_empty_;
  std::vector<EngineEvent> waiting_;                          // in the order of each choice's first event
  std::unordered_map<Key, std::size_t, HashKey> waiting_at_;  // choice → its place in waiting_
  bool closed_ = false;
};

}  // namespace quire::wire
