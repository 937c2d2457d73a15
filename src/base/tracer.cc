#include "base/tracer.h"

#include <unistd.h>

#include <utility>

namespace quire {

void TraceLane::Add(const TraceEvent& event) {
  const std::lock_guard lock(mutex_);
  if (capacity_ == 0) return;  // it was switched off meanwhile
  if (events_.size() >= capacity_) {
    ++dropped_;
    return;
  }
  events_.push_back(event);
}

TraceLane* Tracer::Lane(std::string_view name) {
  const std::lock_guard lock(mutex_);
  for (const auto& lane : lanes_) {
    if (lane->name_ == name) return lane.get();
  }
  if (lanes_.size() >= kLanesMax) return nullptr;
  TraceLane& lane = *lanes_.emplace_back(std::make_unique<TraceLane>(std::string(name), &is_on_, clock_));
  if (!is_on()) return &lane;
  lane.capacity_ = lane_events_;  // nobody else knows it yet
  lane.events_.reserve(lane_events_);
  return &lane;
}

TraceBatch Tracer::Apply(TraceCommand command) {
  const std::lock_guard lock(mutex_);
  if (command == TraceCommand::kStop) is_on_.store(false, std::memory_order_relaxed);
  const bool goes_on = command == TraceCommand::kStart || (command == TraceCommand::kTake && is_on());
  TraceBatch batch;
  std::size_t num_events = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    TraceLane& lane = *lanes_[(first_lane_ + i) % lanes_.size()];
    if (num_events >= kBatchEvents && command != TraceCommand::kStart) {
      first_lane_ = (first_lane_ + i) % lanes_.size();
      break;
    }
    TraceBatch::Lane taken{.name = lane.name_, .events = {}, .dropped = 0};
    // Memory is taken here, for the thread that records.
    std::vector<TraceEvent> fresh;
    if (goes_on) fresh.reserve(lane_events_);
    {
      const std::lock_guard lane_lock(lane.mutex_);
      if (command == TraceCommand::kTake && goes_on && lane.events_.empty()) continue;
      taken.events = std::exchange(lane.events_, std::move(fresh));
      lane.capacity_ = goes_on ? lane_events_ : 0;
      if (command == TraceCommand::kStart) lane.dropped_ = 0;
      taken.dropped = lane.dropped_;
    }
    num_events += taken.events.size();
    if (command != TraceCommand::kStart && (!taken.events.empty() || taken.dropped > 0)) {
      batch.lanes.push_back(std::move(taken));
    }
  }
  if (command == TraceCommand::kStart) is_on_.store(true, std::memory_order_relaxed);
  batch.now = clock_->Now();
  batch.is_on = is_on();
  batch.pid = ::getpid();
  return batch;
}

}  // namespace quire
