// The one way to an engine: in the same process (engine/local_engine.h) or behind a socket
// (wire/socket_engine_client.h).
//
// Threads: Submit, Abort, Stats and the rest may be called from any thread; Next from one thread at a time.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "api/engine_info.h"
#include "api/events.h"
#include "api/request.h"
#include "base/result.h"
#include "base/tracer.h"

namespace quire {

class EngineClient {
 public:
  virtual ~EngineClient() = default;

  // Hands a request over. kUnavailable: the queue is full, or the engine is starting or stopping; nothing was
  // submitted. kInvalidArgument: an id or a length is out of range. After success every choice will get exactly one
  // finishing event.
  virtual Result<> Submit(GenerateRequest request) = 0;

  // Ends one choice of a request, or without an index all of them, with kAbort events for those that had not
  // finished: within one step, but a first choice that computes the prompt for others ends when it has. Unknown or
  // finished ids and choices are ignored.
  virtual void Abort(RequestId id, std::optional<int> choice) = 0;

  // Waits for events, for at most `timeout`; empty when none came. nullopt: the engine is gone for good and every
  // event has been delivered.
  virtual std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) = 0;

  // kUnavailable while the engine is not ready.
  virtual Result<EngineInfo> Info() = 0;
  virtual Result<EngineStats> Stats() = 0;

  // Forgets every cached prefix that no running request uses.
  virtual Result<> ResetPrefixCache() = 0;

  // Has the engine record what its threads do, for a trace; see Tracer::Apply. kUnsupported: it has no tracer.
  virtual Result<TraceBatch> Trace(TraceCommand command) = 0;
};

}  // namespace quire
