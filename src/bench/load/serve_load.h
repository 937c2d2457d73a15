// `quire bench serve`: a dataset, a server, a run and its figures.
#pragma once

#include <string>
#include <vector>

#include "bench/load/config.h"
#include "bench/load/metrics.h"
#include "bench/load/request.h"
#include "bench/load/runner.h"

namespace quire::bench::load {

// Who answers, and how it is spoken to.
struct ServerFacts {
  Target target;
  BodyStyle style;
};

struct LoadReport {
  LoadConfig config;
  ServerFacts server;
  std::vector<Request> requests;
  int num_left_out = 0;    // of the dataset: too long
  bool is_replay = false;  // arrivals are those of a trace
  Run run;
  Metrics metrics;

  // The generator's own share of a core.
  double cpu_share() const { return run.duration_seconds > 0 ? run.cpu_seconds / run.duration_seconds : 0; }
};

// Asks the server what the configuration leaves open: the model, its vocabulary, the size of a word.
Result<ServerFacts> AskServer(const LoadConfig& config, bool has_chats);

// Validates, makes the requests, warms up and runs. That requests fail is no error: the report counts them.
Result<LoadReport> RunServeBench(const LoadConfig& config, const Progress& progress = {});

}  // namespace quire::bench::load
