// An engine without a model, for tests of what stands in front of engines. Choice c of a request generates
// (prompt[0] + c + 1) mod vocab, then one more each time, until max_tokens. One step of all choices is taken
// each time somebody waits in Next, so that nothing depends on the clock.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "wire/engine_client.h"

namespace quire::wire::testing {

class FakeEngine final : public EngineClient {
 public:
  static constexpr int kVocabSize = 1000;
  static constexpr int kMaxModelLen = 4096;
  static constexpr std::size_t kQueueMax = 8;

  Result<> Submit(GenerateRequest request) override {
    const std::lock_guard lock(mutex_);
    if (gone_) return Fail(ErrorCode::kUnavailable, "the fake engine is gone");
    if (running_.size() >= kQueueMax) return Fail(ErrorCode::kUnavailable, "the queue of {} is full", kQueueMax);
    const RequestId id = request.id;
    Running running{std::move(request), {}};
    running.num_tokens.resize(static_cast<std::size_t>(running.request.sampling.n), 0);
    running_.emplace(id, std::move(running));
    changed_.notify_all();
    return {};
  }

  void Abort(RequestId id, std::optional<int> choice) override {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    std::vector<int>& num_tokens = found->second.num_tokens;
    for (int i = 0; i < found->second.request.sampling.n; ++i) {
      if (num_tokens[static_cast<std::size_t>(i)] == kAborted || choice.value_or(i) != i) continue;
      num_tokens[static_cast<std::size_t>(i)] = kAborted;
      EngineEvent event{.request = id, .choice = i};
      event.finish_reason = FinishReason::kAbort;
      aborted_.push_back(std::move(event));
    }
    if (std::ranges::all_of(num_tokens, [](int count) { return count == kAborted; })) running_.erase(found);
    ++num_aborts;
    changed_.notify_all();
  }

  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return gone_ || !aborted_.empty() || (!held_ && !running_.empty()); });
    if (gone_) return std::nullopt;
    std::vector<EngineEvent> events = std::exchange(aborted_, {});
    if (!held_) Step(&events);
    return events;
  }

  Result<EngineInfo> Info() override {
    EngineInfo info;
    info.model_path = "fake";
    info.architecture = "FakeForCausalLM";
    info.vocab_size = kVocabSize;
    info.max_model_len = kMaxModelLen;
    info.block_size = 16;
    info.num_blocks = 64;
    info.max_num_seqs = 8;
    info.max_num_batched_tokens = 512;
    return info;
  }

  Result<EngineStats> Stats() override {
    const std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.num_requests_running = static_cast<int>(running_.size());
    stats.generation_tokens = num_tokens_;
    stats.step_tokens_histogram = {1, 2, 3};
    return stats;
  }

  Result<> ResetPrefixCache() override {
    ++num_resets;
    return {};
  }

  Result<TraceBatch> Trace(TraceCommand command) override { return tracer_.Apply(command); }

  // No steps until Release.
  void Hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void Die() {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    changed_.notify_all();
  }

  std::atomic<int> num_aborts{0};
  std::atomic<int> num_resets{0};

 private:
  struct Running {
    GenerateRequest request;
    std::vector<int> num_tokens;  // [n]; kAborted
  };
  static constexpr int kAborted = -1;

  void Step(std::vector<EngineEvent>* events) {
    const TraceSpan span(lane_, TraceLabel::kStep, static_cast<std::int32_t>(running_.size()));
    for (auto it = running_.begin(); it != running_.end();) {
      const GenerateRequest& request = it->second.request;
      bool done = true;
      for (int choice = 0; choice < request.sampling.n; ++choice) {
        int& count = it->second.num_tokens[static_cast<std::size_t>(choice)];
        if (count == kAborted) continue;
        EngineEvent event{.request = request.id, .choice = choice};
        event.tokens = {TokenId((request.prompt[0].value() + choice + ++count) % kVocabSize)};
        ++num_tokens_;
        if (count >= request.stop.max_tokens) {
          event.finish_reason = FinishReason::kLength;
        } else {
          done = false;
        }
        events->push_back(std::move(event));
      }
      it = done ? running_.erase(it) : std::next(it);
    }
  }

  const SteadyClock clock_;
  Tracer tracer_{&clock_};
  TraceLane* const lane_ = tracer_.Lane("fake engine");

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::map<RequestId, Running> running_;
  std::vector<EngineEvent> aborted_;
  std::uint64_t num_tokens_ = 0;
  bool held_ = false;
  bool gone_ = false;
};

inline GenerateRequest MakeRequest(std::uint64_t id, int first_token, int max_tokens, int n = 1) {
  GenerateRequest request;
  request.id = RequestId(id);
  request.prompt = {TokenId(first_token), TokenId(2), TokenId(3)};
  request.sampling.n = n;
  request.stop.max_tokens = max_tokens;
  return request;
}

}  // namespace quire::wire::testing
