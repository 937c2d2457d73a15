// An engine for tests, without a model: what each request generates is said beforehand. It keeps the contract of
// EngineClient (one finishing event for every choice, stop ids, lengths), steps when Next is called, and can be held,
// filled up, and killed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "wire/engine_client.h"

namespace quire::server::testing {

// What one choice generates, if nothing ends it before.
struct Script {
  std::vector<TokenId> tokens;  // after the last one comes EOS, or with ignore_eos the first again
  int tokens_per_event = 1;
  int shed_retry_after_s = 0;  // not 0: shed instead, with this
};

class ScriptedEngine final : public EngineClient {
 public:
  using Scripter = std::function<Script(const GenerateRequest& request, int choice)>;

  struct Options {
    int vocab_size = 260;
    int max_model_len = 512;
    int queue_max = 64;
    TokenId eos{257};
    std::string scheduling_policy = "lpm";
    std::chrono::microseconds step_time{0};
  };

  ScriptedEngine(const Options& options, Scripter scripter) : options_(options), scripter_(std::move(scripter)) {}

  Result<> Submit(GenerateRequest request) override;
  void Abort(RequestId id, std::optional<int> choice) override;
  std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) override;
  Result<EngineInfo> Info() override;
  Result<EngineStats> Stats() override;
  Result<> ResetPrefixCache() override;
  Result<TraceBatch> Trace(TraceCommand command) override;

  // While it is held nothing is generated.
  void Hold(bool held);
  // Steps so many times, then is held.
  void HoldAfter(int steps);
  // The process died and is started again: its requests fail, and nothing is taken until Revive.
  void Die();
  void Revive();
  // It will not come back.
  void Vanish();
  void set_scripter(Scripter scripter);

  int num_submitted() const;
  int num_running() const;
  int num_resets() const;
  std::vector<RequestId> aborted() const;
  std::optional<GenerateRequest> last_request() const;
  std::uint64_t num_generated() const;

  // Waits until the condition holds, for at most 10 seconds.
  bool WaitFor(const std::function<bool()>& condition) const;

 private:
  struct Choice {
    Script script;
    std::size_t generated = 0;
    bool done = false;
  };
  struct Running {
    GenerateRequest request;
    std::vector<Choice> choices;
    bool told_prompt = false;
    RequestTimes times;
  };

  void StepLocked(std::vector<EngineEvent>* events);
  EngineEvent StepChoice(Running* running, int index);
  void EndAllLocked(FinishReason reason, const std::string& error);
  static TimePoint Now() { return SteadyClock().Now(); }
  PositionLogprobs MakeLogprobs(TokenId id, int num_top) const;

  const Options options_;
  const SteadyClock clock_;
  Tracer tracer_{&clock_};
  TraceLane* const lane_ = tracer_.Lane("scripted engine");
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  Scripter scripter_;
  std::map<RequestId, Running> running_;
  std::vector<EngineEvent> pending_;  // of aborts and deaths
  std::vector<RequestId> aborted_;
  std::optional<GenerateRequest> last_request_;
  EngineStats stats_;
  int num_submitted_ = 0;
  int num_resets_ = 0;
  std::optional<int> steps_left_;  // held at 0
  bool dead_ = false;
  bool gone_ = false;
};

}  // namespace quire::server::testing
