#include "engine/local_engine.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "sched/validate.h"

namespace quire::engine {
namespace {

// While requests wait for the tiers, how often it is looked whether they have waited long enough.
constexpr std::chrono::milliseconds kTierPoll(50);
// For writing blocks to the tiers at the end.
constexpr Duration kSaveMax = std::chrono::seconds(5);

EngineInfo WithLimits(EngineInfo info, const sched::SchedulerConfig& config) {
  info.vocab_size = config.vocab_size;
  info.max_model_len = config.max_model_len;
  info.block_size = config.block_size;
  info.num_blocks = config.num_blocks;
  info.max_num_seqs = config.max_num_seqs;
  info.max_num_batched_tokens = config.max_num_batched_tokens;
  info.scheduling_policy = sched::PolicyName(config.policy);
  return info;
}

}  // namespace

void LocalEngine::Inbox::Clear() {
  requests.clear();
  aborts.clear();
  reset_prefix_cache = false;
}

Result<std::unique_ptr<LocalEngine>> LocalEngine::Create(EngineConfig config, EngineInfo info,
                                                         std::unique_ptr<Runner> runner, const Clock* clock,
                                                         std::unique_ptr<KvTiers> tiers, Tracer* tracer) {
  QUIRE_TRY_VOID(config.Validate());
  return std::unique_ptr<LocalEngine>(new LocalEngine(std::move(config), std::move(info), std::move(runner), clock,
                                                      std::move(tiers), tracer));  // the constructor is private
}

LocalEngine::LocalEngine(EngineConfig config, EngineInfo info, std::unique_ptr<Runner> runner, const Clock* clock,
                         std::unique_ptr<KvTiers> tiers, Tracer* tracer)
    : config_(std::move(config)),
      info_(WithLimits(std::move(info), config_.scheduler)),
      runner_(std::move(runner)),
      clock_(clock),
      tiers_(std::move(tiers)),
      tracer_(tracer),
      lane_(tracer != nullptr ? tracer->Lane(kEngineLane) : nullptr),
      engine_(config_, runner_.get(), clock_, tiers_.get(), lane_) {
  if (tiers_) {
    tiers_->SetListener([this] {
      // So that it does not come between a look and a wait.
      {
        const std::lock_guard lock(mutex_);
      }
      wake_.notify_one();
    });
  }
  engine_.ReadStats(&published_);
  thread_ = std::thread([this] { Loop(); });
}

LocalEngine::~LocalEngine() {
  Stop(StopMode::kAbort);
  thread_.join();
  tiers_.reset();  // its thread wakes us, and knows the runner's memory
}

Result<> LocalEngine::Submit(GenerateRequest request) {
  QUIRE_TRY_VOID(sched::ValidateRequest(config_.scheduler, request));
  // Here, and not in a step: it may take a while.
  if (!request.stop.stop_strings.empty() && config_.text_stops != nullptr)
    QUIRE_TRY_VOID(config_.text_stops->Prepare());
  const TimePoint now = clock_->Now();
  std::shared_ptr<PrefixFetch> fetch = engine_.LookUp(request);  // the tiers look while the engine is in a step
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return Fail(ErrorCode::kUnavailable, "the engine is stopping");
    QUIRE_TRY_VOID(sched::CheckQueueRoom(config_.scheduler, request, num_queued_, num_queued_tokens_));
    const auto num_tokens = static_cast<std::int64_t>(request.prompt.size());
    const int live_limit = config_.scheduler.max_num_queued_requests + config_.scheduler.max_num_seqs;
    if (static_cast<int>(live_.size()) >= live_limit) {
      return Fail(ErrorCode::kUnavailable, "{} requests are unfinished; at most {} may be", live_.size(), live_limit);
    }
    if (!live_.try_emplace(request.id, Live{request.sampling.n, request.sampling.n}).second) {
      return FailParam("id", "a request with id {} is unfinished; ids must be unique", request.id);
    }
    // What was for an earlier request with this id.
    std::erase_if(inbox_.aborts, [&](const auto& abort) { return abort.first == request.id; });
    ++num_queued_;
    num_queued_tokens_ += num_tokens;
    num_inbox_tokens_ += num_tokens;
    inbox_.requests.push_back({std::move(request), now, std::move(fetch)});
  }
  wake_.notify_one();
  return {};
}

void LocalEngine::Abort(RequestId id, std::optional<int> choice) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(id);
    if (found == live_.end()) return;
    if (choice && (*choice < 0 || *choice >= found->second.num_choices)) return;
    inbox_.aborts.emplace(id, choice);
  }
  wake_.notify_one();
}

std::optional<std::vector<EngineEvent>> LocalEngine::Next(std::chrono::nanoseconds timeout) {
  std::optional<std::vector<EngineEvent>> events = outbox_.Next(timeout);
  if (!events) return events;
  const std::lock_guard lock(mutex_);
  for (const EngineEvent& event : *events) {
    if (event.finish_reason == FinishReason::kNone) continue;
    const auto entry = live_.find(event.request);
    CHECK(entry != live_.end());
    if (--entry->second.num_unfinished == 0) live_.erase(entry);
  }
  return events;
}

Result<EngineInfo> LocalEngine::Info() {
  const std::lock_guard lock(mutex_);
  if (done_) return Fail(ErrorCode::kUnavailable, "the engine has stopped");
  return info_;
}

Result<EngineStats> LocalEngine::Stats() {
  const std::lock_guard lock(mutex_);
  if (done_) return Fail(ErrorCode::kUnavailable, "the engine has stopped");
  EngineStats stats = published_;
  stats.num_requests_waiting += static_cast<int>(inbox_.requests.size());
  stats.num_queued_tokens += num_inbox_tokens_;
  if (tiers_) tiers_->ReadStats(&stats);  // they work between steps, too
  return stats;
}

Result<> LocalEngine::ResetPrefixCache() {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return Fail(ErrorCode::kUnavailable, "the engine is stopping");
    inbox_.reset_prefix_cache = true;
  }
  wake_.notify_one();
  return {};
}

Result<TraceBatch> LocalEngine::Trace(TraceCommand command) {
  if (tracer_ == nullptr) return Fail(ErrorCode::kUnsupported, "this engine records nothing for a trace");
  return tracer_->Apply(command);
}

void LocalEngine::Stop(StopMode mode) {
  std::unique_lock lock(mutex_);
  if (!stop_ || mode == StopMode::kAbort) stop_ = mode;
  wake_.notify_one();
  stopped_.wait(lock, [&] { return done_; });
}

void LocalEngine::Loop() {
  while (Drain()) {
    Apply();
    if (!events_.empty()) Emit();  // who was refused or aborted need not wait for a step
    if (engine_.can_step()) {
      if (const Result<> ran = engine_.Step(&events_); !ran.has_value()) {
        spdlog::error("a step failed, and its requests with it: {}", ran.error().message);
      }
    }
    Emit();
  }
  Apply();  // what came between the last step and the decision to stop
  engine_.AbortAll(&events_);
  Emit();
  engine_.SaveRemaining(kSaveMax);
  outbox_.Close();
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  stopped_.notify_all();
}

bool LocalEngine::Drain() {
  std::unique_lock lock(mutex_);
  const auto has_something = [&] { return stop_ || !inbox_.empty() || engine_.can_step(); };
  if (engine_.num_arriving() == 0) {
    wake_.wait(lock, has_something);
  } else if (!has_something() || stop_) {
    wake_.wait_for(lock, kTierPoll, [&] { return !inbox_.empty() || engine_.can_step(); });
  }
  const bool has_input = !inbox_.empty();
  std::swap(inbox_, taken_);
  num_inbox_tokens_ = 0;
  if (!stop_) return true;
  return *stop_ == StopMode::kDrain && (has_input || engine_.has_work());
}

// The reset comes before the requests, as ResetPrefixCache() says. Aborts come after them: one may be meant
// for a request that arrived together with it.
void LocalEngine::Apply() {
  if (taken_.empty()) return;
  const TraceSpan span(lane_, TraceLabel::kTakeInbox, static_cast<std::int32_t>(taken_.requests.size()),
                       static_cast<std::int32_t>(taken_.aborts.size()));
  if (taken_.reset_prefix_cache) engine_.ResetPrefixCache();
  for (auto& [request, queued, fetch] : taken_.requests) {
    const RequestId id = request.id;
    const int num_choices = request.sampling.n;
    const Result<> added = engine_.Add(std::move(request), queued, std::move(fetch));
    if (added.has_value()) continue;
    for (int choice = 0; choice < num_choices; ++choice) {
      EngineEvent event;
      event.request = id;
      event.choice = choice;
      event.finish_reason = FinishReason::kError;
      event.error = added.error().message;
      events_.push_back(std::move(event));
    }
  }
  for (const auto& [id, choice] : taken_.aborts) engine_.Abort(id, choice, &events_);
  taken_.Clear();
}

void LocalEngine::Emit() {
  const TraceSpan span(lane_, TraceLabel::kEmit, static_cast<std::int32_t>(events_.size()));
  engine_.ReadStats(&stats_);
  TraceCounters();
  {
    const std::lock_guard lock(mutex_);
    std::swap(published_, stats_);
    num_queued_ =
        static_cast<int>(inbox_.requests.size()) + engine_.scheduler().num_queued_requests() + engine_.num_arriving();
    num_queued_tokens_ = num_inbox_tokens_ + engine_.scheduler().num_queued_tokens() + engine_.num_arriving_tokens();
  }
  outbox_.Push(&events_);
}

void LocalEngine::TraceCounters() {
  if (lane_ == nullptr || !lane_->is_on()) return;
  lane_->Count(TraceLabel::kQueue, {stats_.num_requests_running, stats_.num_requests_waiting, 0});
  const int held = stats_.num_blocks_total - stats_.num_blocks_free - stats_.num_blocks_cached;
  lane_->Count(TraceLabel::kBlocks, {held, stats_.num_blocks_cached, stats_.num_blocks_free});
}

}  // namespace quire::engine
