#include "engine/event_outbox.h"

#include <cstdint>
#include <iterator>
#include <utility>

namespace quire::engine {
namespace {

template <typename Container>
void MoveToEnd(Container* from, Container* to) {
  to->insert(to->end(), std::make_move_iterator(from->begin()), std::make_move_iterator(from->end()));
}

void MergeInto(EngineEvent&& later, EngineEvent* earlier) {
  MoveToEnd(&later.tokens, &earlier->tokens);
  MoveToEnd(&later.logprobs, &earlier->logprobs);
  MoveToEnd(&later.prompt_logprobs, &earlier->prompt_logprobs);
  earlier->finish_reason = later.finish_reason;
  earlier->stop_token = later.stop_token;
  earlier->ended_by_text = later.ended_by_text;
  earlier->num_cached_tokens = later.num_cached_tokens;
  earlier->times = later.times;
  earlier->error = std::move(later.error);
  earlier->retry_after_s = later.retry_after_s;
}

}  // namespace

std::size_t EventOutbox::ChoiceHash::operator()(const ChoiceKey& key) const {
  return std::hash<std::uint64_t>()(key.request.value() * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(key.choice));
}

void EventOutbox::Push(std::vector<EngineEvent>* events) {
  if (events->empty()) return;
  {
    const std::lock_guard lock(mutex_);
    for (EngineEvent& event : *events) {
      const auto [entry, is_new] = index_.try_emplace({event.request, event.choice}, events_.size());
      // A finished event is the last of its choice; the same id after it is another request.
      if (!is_new && events_[entry->second].finish_reason == FinishReason::kNone) {
        MergeInto(std::move(event), &events_[entry->second]);
        continue;
      }
      entry->second = events_.size();
      events_.push_back(std::move(event));
    }
  }
  events->clear();
  changed_.notify_one();
}

void EventOutbox::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

std::optional<std::vector<EngineEvent>> EventOutbox::Next(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return closed_ || !events_.empty(); });
  if (events_.empty() && closed_) return std::nullopt;
  index_.clear();
  return std::exchange(events_, {});
}

}  // namespace quire::engine
