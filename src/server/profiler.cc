#include "server/profiler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace quire::server {
namespace {

// Often enough that no buffer runs over, seldom enough to be no load.
constexpr std::chrono::milliseconds kPause{100};

bool HasNoEvents(const TraceBatch& batch) {
  return std::ranges::all_of(batch.lanes, [](const TraceBatch::Lane& lane) { return lane.events.empty(); });
}

}  // namespace

Profiler::~Profiler() {
  (void)Stop();
}

void Profiler::AddEngine(std::string name, EngineClient* client) {
  const std::lock_guard lock(engines_mutex_);
  engines_.push_back({.name = std::move(name), .client = client});
}

void Profiler::RemoveEngine(const EngineClient* client) {
  const std::lock_guard lock(engines_mutex_);
  std::erase_if(engines_, [&](const Engine& engine) { return engine.client == client; });
}

Result<> Profiler::Start(const std::string& path, TraceFile::Mode mode) {
  const std::lock_guard control(control_mutex_);
  if (thread_.joinable()) {
    const std::lock_guard lock(mutex_);
    if (!has_ended_) return Fail(ErrorCode::kUnavailable, "a trace is being written to {} already", summary_.path);
  }
  QUIRE_TRY(TraceFile file, TraceFile::Create(path, mode, bytes_max_));
  if (thread_.joinable()) thread_.join();
  summary_ = {.path = path};
  dropped_.clear();
  {
    const std::lock_guard lock(engines_mutex_);
    for (Engine& engine : engines_) engine.is_on = false;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = false;
    has_ended_ = false;
  }
  tracer_->Apply(TraceCommand::kStart);
  thread_ = std::thread([this, file = std::move(file)]() mutable { Run(std::move(file)); });
  return {};
}

Result<Profiler::Summary> Profiler::Stop() {
  const std::lock_guard control(control_mutex_);
  if (!thread_.joinable()) return Fail(ErrorCode::kUnavailable, "no trace is being written");
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  return std::move(summary_);
}

bool Profiler::Pause() {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, kPause, [&] { return stop_; });
}

void Profiler::Run(TraceFile file) {
  Result<> outcome;
  do {
    outcome = Collect(TraceCommand::kTake, &file);
  } while (outcome && Pause());
  // Also after a failure: everybody must be told to record no more.
  const Result<> last = Collect(TraceCommand::kStop, outcome ? &file : nullptr);
  if (outcome) outcome = last;
  summary_.num_events = file.num_events();
  for (const auto& [lane, count] : dropped_) summary_.num_dropped += count;
  if (!outcome) {
    summary_.problem = outcome.error().message;
    spdlog::warn("the trace ends: {}", summary_.problem);
  }
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
}

// Without a file what comes is thrown away.
Result<> Profiler::Collect(TraceCommand command, TraceFile* file) {
  const bool is_last = command == TraceCommand::kStop;
  Result<> outcome;
  {
    const std::lock_guard lock(engines_mutex_);
    for (Engine& engine : engines_) {
      Result<> collected = CollectEngine(command, &engine, outcome ? file : nullptr);
      if (outcome) outcome = std::move(collected);
    }
  }
  while (true) {
    const TraceBatch batch = tracer_->Apply(command);
    Note(batch);
    if (file != nullptr && outcome) outcome = file->Append(batch, "quire server", Duration{});
    if (!is_last || HasNoEvents(batch)) return outcome;
    command = TraceCommand::kTake;  // what kStop has left
  }
}

Result<> Profiler::CollectEngine(TraceCommand command, Engine* engine, TraceFile* file) {
  if (!engine->is_on) {
    if (command == TraceCommand::kStop) return {};
    // An engine that loads, or was started again, joins in as soon as it can.
    const TimePoint before = tracer_->clock().Now();
    const Result<TraceBatch> started = engine->client->Trace(TraceCommand::kStart);
    if (!started) return {};
    engine->is_on = true;
    engine->pid = started->pid;
    engine->offset = ClockOffset(before, started->now, tracer_->clock().Now());
    return {};
  }
  const bool is_last = command == TraceCommand::kStop;
  while (true) {
    const Result<TraceBatch> batch = engine->client->Trace(command);
    engine->is_on = batch && batch->pid == engine->pid && batch->is_on;
    if (!batch || batch->pid != engine->pid) return {};
    Note(*batch);
    if (file != nullptr) QUIRE_TRY_VOID(file->Append(*batch, engine->name, engine->offset));
    if (!is_last || HasNoEvents(*batch)) return {};
    command = TraceCommand::kTake;  // what kStop has left
  }
}

// Lanes count what they have lost since the start.
void Profiler::Note(const TraceBatch& batch) {
  for (const TraceBatch::Lane& lane : batch.lanes) {
    const std::pair<int, std::string> key(batch.pid, lane.name);
    const auto known = std::ranges::find(dropped_, key, [](const auto& entry) { return entry.first; });
    if (known == dropped_.end()) {
      dropped_.emplace_back(key, lane.dropped);
    } else {
      known->second = std::max(known->second, lane.dropped);
    }
  }
}

}  // namespace quire::server
