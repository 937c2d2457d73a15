// Sends requests to an OpenAI-compatible server and times the streamed answers: one thread, as many connections as
// there are requests at a time. Asio and Beast stay inside runner.cc and http_exchange.h.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/load/answer_meter.h"
#include "bench/load/config.h"
#include "bench/load/request.h"
#include "bench/load/request_body.h"

namespace quire::bench::load {

// "http://HOST[:PORT][/PATH]"; a /v1 at its end is dropped, because routes begin with it.
struct Target {
  std::string host, port, path;
  std::string authority;             // for the Host header
  std::vector<std::string> headers;  // whole lines, with every request

  static Result<Target> Parse(std::string_view url);
};

struct Run {
  std::vector<Outcome> outcomes;  // of the requests, in their order
  double duration_seconds = 0;    // from the start to the end of the last request
  double cpu_seconds = 0;         // of the thread that sent and received
  int num_connections = 0;        // that were opened
};

// Called now and then while a run goes on.
using Progress = std::function<void(int done, int total)>;

// Sends each request when it is due, but no more than traffic.max_concurrency at a time, and returns when all have
// ended. A request that fails is an Outcome with an error; what is returned as an error is that the host has no address.
Result<Run> RunLoad(const Target& target, std::span<const Request> requests, const BodyStyle& style,
                    const TrafficConfig& traffic, const Progress& progress = {});

// The body of an answer with the status 200.
Result<std::string> Get(const Target& target, std::string_view path, const TrafficConfig& traffic);

}  // namespace quire::bench::load
