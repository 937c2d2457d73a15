// Prometheus metrics under vLLM's names, so that its dashboards work. What the front end sees it observes
// itself; what only the engine knows is taken from EngineStats. Safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "api/engine_info.h"
#include "api/events.h"

namespace quire::server {

// How one choice ended.
struct FinishRecord {
  FinishReason reason = FinishReason::kStop;
  int generation_tokens = 0;
  int computed_prompt_tokens = 0;  // not taken from the cache
  double end_to_end_s = 0;
  const RequestTimes* times = nullptr;  // the engine's stamps
};

class Metrics {
 public:
  // With `others`, what it counts stands among theirs, in every Serialize of them, under its own model_name.
  Metrics(const std::string& model_name, int max_model_len, const Metrics* others = nullptr);
  ~Metrics();

  // One prompt of a request, before it is submitted.
  void ObserveRequest(int prompt_tokens, int n, int max_tokens);
  void ObserveTimeToFirstToken(double seconds);
  // `count` of them, which are alike.
  void ObserveInterTokenLatency(double seconds, std::int64_t count);
  void ObserveFinish(const FinishRecord& record);
  // The longest of the choices of a prompt, in tokens.
  void ObserveMostGenerated(int generation_tokens);
  // A choice that got an error, or that was aborted.
  void ObserveFailure(bool aborted);
  void ObserveHttp(std::string_view handler, std::string_view method, int status, double seconds);

  // Brings gauges and counters up to what the engine says. An engine that was started again counts from zero:
  // the counters here go on.
  void Update(const EngineStats& stats);
  void SetInfo(const EngineInfo& info);
  // Counts of spans since the start.
  void UpdateSpans(std::uint64_t exported, std::uint64_t dropped);

  // The text format of Prometheus, version 0.0.4.
  std::string Serialize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
