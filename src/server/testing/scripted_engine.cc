#include "server/testing/scripted_engine.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace quire::server::testing {

Result<> ScriptedEngine::Submit(GenerateRequest request) {
  const std::lock_guard lock(mutex_);
  if (dead_ || gone_) return Fail(ErrorCode::kUnavailable, "the engine is starting");
  if (static_cast<int>(running_.size()) >= options_.queue_max) {
    return Fail(ErrorCode::kUnavailable, "the queue is full ({} requests)", options_.queue_max);
  }
  ++num_submitted_;
  last_request_ = request;
  Running running;
  for (int i = 0; i < request.sampling.n; ++i) running.choices.push_back({.script = scripter_(request, i)});
  running.times.queued = running.times.first_scheduled = running.times.last_scheduled = Now();
  stats_.prompt_tokens += request.prompt.size();
  stats_.prefix_cache_queries += request.prompt.size();
  const RequestId id = request.id;
  running.request = std::move(request);
  running_.emplace(id, std::move(running));
  wake_.notify_all();
  return {};
}

void ScriptedEngine::Abort(RequestId id, std::optional<int> choice) {
  const std::lock_guard lock(mutex_);
  aborted_.push_back(id);
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  for (std::size_t i = 0; i < found->second.choices.size(); ++i) {
    const int index = static_cast<int>(i);
    if (found->second.choices[i].done || choice.value_or(index) != index) continue;
    found->second.choices[i].done = true;
    EngineEvent event;
    event.request = id;
    event.choice = index;
    event.finish_reason = FinishReason::kAbort;
    pending_.push_back(std::move(event));
  }
  if (std::ranges::all_of(found->second.choices, &Choice::done)) running_.erase(found);
  wake_.notify_all();
}

std::optional<std::vector<EngineEvent>> ScriptedEngine::Next(std::chrono::nanoseconds timeout) {
  if (options_.step_time.count() > 0) std::this_thread::sleep_for(options_.step_time);
  std::unique_lock lock(mutex_);
  const auto can_step = [&] { return !running_.empty() && steps_left_.value_or(1) > 0; };
  wake_.wait_for(lock, timeout, [&] { return gone_ || !pending_.empty() || can_step(); });
  std::vector<EngineEvent> events = std::exchange(pending_, {});
  if (events.empty() && gone_) return std::nullopt;
  if (can_step()) {
    if (steps_left_) --*steps_left_;
    StepLocked(&events);
  }
  return events;
}

void ScriptedEngine::StepLocked(std::vector<EngineEvent>* events) {
  const TraceSpan span(lane_, TraceLabel::kStep);
  ++stats_.steps;
  std::uint64_t step_tokens = 0;
  for (auto it = running_.begin(); it != running_.end();) {
    Running& running = it->second;
    for (int i = 0; i < static_cast<int>(running.choices.size()); ++i) {
      if (running.choices[static_cast<std::size_t>(i)].done) continue;
      if (!running.told_prompt) step_tokens += running.request.prompt.size();
      EngineEvent event = StepChoice(&running, i);
      step_tokens += event.tokens.size();
      stats_.generation_tokens += event.tokens.size();
      events->push_back(std::move(event));
    }
    const bool done = std::ranges::all_of(running.choices, [](const Choice& choice) { return choice.done; });
    it = done ? running_.erase(it) : std::next(it);
  }
  stats_.step_tokens_histogram.resize(std::size(kStepTokenBuckets) + 1);
  const auto bucket = std::ranges::lower_bound(kStepTokenBuckets, static_cast<int>(step_tokens));
  ++stats_.step_tokens_histogram[static_cast<std::size_t>(bucket - std::begin(kStepTokenBuckets))];
  stats_.step_tokens_sum += step_tokens;
}

EngineEvent ScriptedEngine::StepChoice(Running* running, int index) {
  const GenerateRequest& request = running->request;
  Choice& choice = running->choices[static_cast<std::size_t>(index)];
  EngineEvent event;
  event.request = request.id;
  event.choice = index;
  if (choice.script.shed_retry_after_s > 0) {
    event.finish_reason = FinishReason::kShed;
    event.error = "it would come too late";
    event.retry_after_s = choice.script.shed_retry_after_s;
    choice.done = true;
    return event;
  }
  if (index == 0 && !std::exchange(running->told_prompt, true) && request.sampling.prompt_logprobs) {
    for (std::size_t i = 0; i < request.prompt.size(); ++i) {
      event.prompt_logprobs.emplace_back();
      if (i > 0) event.prompt_logprobs[i] = MakeLogprobs(request.prompt[i], *request.sampling.prompt_logprobs);
    }
  }
  const auto max_tokens = static_cast<std::size_t>(request.stop.max_tokens);
  for (int i = 0; i < choice.script.tokens_per_event && !choice.done && max_tokens > 0; ++i) {
    const auto& tokens = choice.script.tokens;
    const bool at_end = choice.generated >= tokens.size() && !request.stop.ignore_eos;
    const TokenId id = at_end || tokens.empty() ? options_.eos : tokens[choice.generated % tokens.size()];
    event.tokens.push_back(id);
    if (request.sampling.logprobs) event.logprobs.push_back(MakeLogprobs(id, *request.sampling.logprobs));
    ++choice.generated;
    const bool may_stop = choice.generated > static_cast<std::size_t>(request.stop.min_tokens);
    if (at_end && may_stop) {
      event.finish_reason = FinishReason::kStop;
    } else if (may_stop && std::ranges::find(request.stop.stop_token_ids, id) != request.stop.stop_token_ids.end()) {
      event.finish_reason = FinishReason::kStop;
      event.stop_token = id;
    } else if (choice.generated == max_tokens) {
      event.finish_reason = FinishReason::kLength;
    }
    choice.done = event.finish_reason != FinishReason::kNone;
  }
  if (max_tokens == 0) {
    event.finish_reason = FinishReason::kLength;
    choice.done = true;
  }
  const TimePoint now = Now();
  if (running->times.first_token == TimePoint{}) running->times.first_token = now;
  running->times.last_token = now;
  event.times = running->times;
  return event;
}

// The chosen token is as likely as its id is small; the worst alternative is impossible (minus infinity).
PositionLogprobs ScriptedEngine::MakeLogprobs(TokenId id, int num_top) const {
  PositionLogprobs position;
  position.chosen = {.id = id, .logprob = -0.25f - 0.001f * static_cast<float>(id.value()), .rank = 1};
  for (int i = 0; i < num_top; ++i) {
    const TokenId other((id.value() + i) % options_.vocab_size);
    const float logprob = i == 0             ? position.chosen.logprob
                          : i + 1 == num_top ? -std::numeric_limits<float>::infinity()
                                             : position.chosen.logprob - static_cast<float>(i);
    position.top.push_back({.id = other, .logprob = logprob, .rank = i + 1});
  }
  return position;
}

Result<EngineInfo> ScriptedEngine::Info() {
  const std::lock_guard lock(mutex_);
  if (dead_ || gone_) return Fail(ErrorCode::kUnavailable, "the engine is starting");
  EngineInfo info;
  info.model_path = "scripted";
  info.architecture = "Scripted";
  info.vocab_size = options_.vocab_size;
  info.max_model_len = options_.max_model_len;
  info.block_size = 16;
  info.num_blocks = 64;
  info.kv_dtype = "none";
  info.scheduling_policy = options_.scheduling_policy;
  return info;
}

Result<EngineStats> ScriptedEngine::Stats() {
  const std::lock_guard lock(mutex_);
  if (dead_ || gone_) return Fail(ErrorCode::kUnavailable, "the engine is starting");
  EngineStats stats = stats_;
  stats.num_requests_running = static_cast<int>(running_.size());
  stats.num_blocks_total = 64;
  stats.num_blocks_free = 64 - std::min(64, stats.num_requests_running);
  return stats;
}

Result<> ScriptedEngine::ResetPrefixCache() {
  const std::lock_guard lock(mutex_);
  ++num_resets_;
  return {};
}

Result<TraceBatch> ScriptedEngine::Trace(TraceCommand command) {
  {
    const std::lock_guard lock(mutex_);
    if (dead_ || gone_) return Fail(ErrorCode::kUnavailable, "the engine is starting");
  }
  return tracer_.Apply(command);
}

void ScriptedEngine::Hold(bool held) {
  const std::lock_guard lock(mutex_);
  steps_left_ = held ? std::optional<int>(0) : std::nullopt;
  wake_.notify_all();
}

void ScriptedEngine::HoldAfter(int steps) {
  const std::lock_guard lock(mutex_);
  steps_left_ = steps;
  wake_.notify_all();
}

void ScriptedEngine::EndAllLocked(FinishReason reason, const std::string& error) {
  for (const auto& [id, running] : running_) {
    for (std::size_t i = 0; i < running.choices.size(); ++i) {
      if (running.choices[i].done) continue;
      EngineEvent event;
      event.request = id;
      event.choice = static_cast<int>(i);
      event.finish_reason = reason;
      event.error = error;
      pending_.push_back(std::move(event));
    }
  }
  running_.clear();
  wake_.notify_all();
}

void ScriptedEngine::Die() {
  const std::lock_guard lock(mutex_);
  dead_ = true;
  EndAllLocked(FinishReason::kError, "the engine process ended");
  stats_ = {};
}

void ScriptedEngine::Revive() {
  const std::lock_guard lock(mutex_);
  dead_ = false;
}

void ScriptedEngine::Vanish() {
  const std::lock_guard lock(mutex_);
  gone_ = true;
  running_.clear();
  wake_.notify_all();
}

void ScriptedEngine::set_scripter(Scripter scripter) {
  const std::lock_guard lock(mutex_);
  scripter_ = std::move(scripter);
}

int ScriptedEngine::num_submitted() const {
  const std::lock_guard lock(mutex_);
  return num_submitted_;
}
int ScriptedEngine::num_running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(running_.size());
}
int ScriptedEngine::num_resets() const {
  const std::lock_guard lock(mutex_);
  return num_resets_;
}
std::vector<RequestId> ScriptedEngine::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}
std::optional<GenerateRequest> ScriptedEngine::last_request() const {
  const std::lock_guard lock(mutex_);
  return last_request_;
}
std::uint64_t ScriptedEngine::num_generated() const {
  const std::lock_guard lock(mutex_);
  return stats_.generation_tokens;
}

bool ScriptedEngine::WaitFor(const std::function<bool()>& condition) const {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace quire::server::testing
