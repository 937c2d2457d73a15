#include "wire/event_inbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire::wire {
namespace {

template <typename Container>
void MoveAppend(Container& from, Container* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void MergeEvent(EngineEvent next, EngineEvent* event) {
  MoveAppend(next.tokens, &event->tokens);
  MoveAppend(next.logprobs, &event->logprobs);
  MoveAppend(next.prompt_logprobs, &event->prompt_logprobs);
  event->finish_reason = next.finish_reason;
  event->stop_token = next.stop_token;
  event->ended_by_text = next.ended_by_text;
  event->num_cached_tokens = std::max(event->num_cached_tokens, next.num_cached_tokens);
  event->times = next.times;
  event->error = std::move(next.error);
  event->retry_after_s = next.retry_after_s;
}

void EventInbox::Push(std::vector<EngineEvent> events) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    for (EngineEvent& event : events) {
      const auto [at, is_new] = waiting_at_.try_emplace({event.request, event.choice}, waiting_.size());
      if (is_new) {
        waiting_.push_back(std::move(event));
      } else {
        MergeEvent(std::move(event), &waiting_[at->second]);
      }
    }
    if (waiting_.empty()) return;
  }
  not_empty_.notify_one();
}

std::optional<std::vector<EngineEvent>> EventInbox::Next(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  // A deadline, and one that cannot overflow, whatever "for ever" the caller has in mind.
  timeout = std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(1));
  not_empty_.wait_for(lock, timeout, [&] { return closed_ || !waiting_.empty(); });
  if (waiting_.empty() && closed_) return std::nullopt;
  waiting_at_.clear();
  return std::exchange(waiting_, {});
}

void EventInbox::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  not_empty_.notify_all();
}

}  // namespace quire::wire
