// When requests are due: a Poisson process, or gaps that are gamma distributed, of a given rate.
#pragma once

#include <span>

#include "bench/load/config.h"
#include "bench/load/request.h"

namespace quire::bench::load {

// Sets arrival_seconds. As vLLM's benchmark does it: the gaps, the first one before the first request, are drawn and
// then stretched so that n requests take exactly n / rate seconds. An infinite rate makes all due at once.
void AssignArrivals(std::span<Request> requests, const TrafficConfig& traffic, int seed);

}  // namespace quire::bench::load
