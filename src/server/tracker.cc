#include "server/tracker.h"

#include <chrono>
#include <utility>

namespace quire::server {
namespace {

// About what an event holds in memory, and becomes as text.
std::size_t EventBytes(const EngineEvent& event) {
  std::size_t bytes = sizeof(ArrivedEvent) + event.error.size() + event.tokens.size() * sizeof(TokenId);
  for (const PositionLogprobs& position : event.logprobs) {
    bytes += sizeof position + position.top.size() * sizeof(TokenLogprob);
  }
  for (const auto& position : event.prompt_logprobs) {
    bytes += sizeof position + (position ? position->top.size() * sizeof(TokenLogprob) : 0);
  }
  return bytes;
}

}  // namespace

EventBox::Content EventBox::Take() {
  const std::lock_guard lock(mutex_);
  Content taken{
      .events = std::exchange(content_.events, {}), .overflowed = content_.overflowed, .ended = content_.ended};
  bytes_ = 0;
  return taken;
}

bool EventBox::Put(ArrivedEvent event) {
  bool was_empty = false;
  bool kept = false;
  {
    const std::lock_guard lock(mutex_);
    was_empty = content_.events.empty();
    const std::size_t bytes = EventBytes(event.event);
    // The last one may go over the edge: the prompt logprobs of a long prompt can be larger than the box.
    kept = !content_.overflowed && bytes_ <= bytes_max_;
    if (kept) {
      bytes_ += bytes;
      content_.events.push_back(std::move(event));
    } else {
      content_.overflowed = true;
    }
  }
  if (was_empty || !kept) wake_(!kept);
  return kept;
}

void EventBox::End(const ApiError& why) {
  {
    const std::lock_guard lock(mutex_);
    content_.ended = why;
  }
  wake_(false);
}

RequestId RequestTracker::NextId() {
  return RequestId(next_id_.fetch_add(1, std::memory_order_relaxed));
}

Result<RequestId> RequestTracker::Submit(GenerateRequest request, int prompt, std::shared_ptr<EventBox> box) {
  const RequestId id = request.id;
  {
    // Before the engine knows of it: its first event may come at once.
    const std::lock_guard lock(mutex_);
    const auto num_tokens = static_cast<std::int64_t>(request.prompt.size());
    entries_.emplace(
        id,
        Entry{
            .box = std::move(box), .prompt = prompt, .choices_left = request.sampling.n, .waiting_tokens = num_tokens});
    num_waiting_tokens_.fetch_add(num_tokens, std::memory_order_relaxed);
  }
  auto submitted = engine_gone() ? Result<>(Fail(ErrorCode::kUnavailable, "the engine is gone"))
                                 : engine_->Submit(std::move(request));
  if (submitted) return id;
  Forget(id);
  return std::unexpected(std::move(submitted).error());
}

void RequestTracker::StopWaiting(Entry* entry) {
  num_waiting_tokens_.fetch_sub(std::exchange(entry->waiting_tokens, 0), std::memory_order_relaxed);
}

bool RequestTracker::Forget(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  StopWaiting(&found->second);
  entries_.erase(found);
  return true;
}

void RequestTracker::Release(RequestId id) {
  if (Forget(id)) engine_->Abort(id, std::nullopt);
}

void RequestTracker::AbortChoice(RequestId id, int choice) {
  {
    const std::lock_guard lock(mutex_);
    if (!entries_.contains(id)) return;
  }
  engine_->Abort(id, choice);
}

void RequestTracker::Run(const std::atomic<bool>& stop) {
  constexpr auto kPatience = std::chrono::milliseconds(100);
  while (!stop.load(std::memory_order_relaxed)) {  // a flag alone; nothing is read after it
    auto events = engine_->Next(kPatience);
    if (!events) return Abandon({.status = 500, .message = "the engine died while it worked on the request"});
    Dispatch(*std::move(events));
  }
}

void RequestTracker::Dispatch(std::vector<EngineEvent> events) {
  if (events.empty()) return;
  const TraceSpan span(lane_, TraceLabel::kDispatchEvents, static_cast<std::int32_t>(events.size()));
  const TimePoint now = clock_->Now();
  for (EngineEvent& event : events) {
    const RequestId id = event.request;
    std::shared_ptr<EventBox> box;
    ArrivedEvent arrived{.prompt = 0, .event = std::move(event), .at = now};
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.find(id);
      if (found == entries_.end()) continue;  // released already
      StopWaiting(&found->second);
      box = found->second.box;
      arrived.prompt = found->second.prompt;
      const bool ends = arrived.event.finish_reason != FinishReason::kNone;
      if (ends && --found->second.choices_left == 0) entries_.erase(found);
    }
    if (!box->Put(std::move(arrived))) Release(id);
  }
}

void RequestTracker::Abandon(const ApiError& why) {
  std::unordered_map<RequestId, Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    engine_gone_.store(true, std::memory_order_release);
    entries.swap(entries_);
    num_waiting_tokens_.store(0, std::memory_order_relaxed);
  }
  for (auto& [id, entry] : entries) entry.box->End(why);
}

}  // namespace quire::server
