#include "bench/load/arrivals.h"

#include <cmath>

#include "bench/load/random_draws.h"

namespace quire::bench::load {

void AssignArrivals(std::span<Request> requests, const TrafficConfig& traffic, int seed) {
  if (requests.empty()) return;
  if (std::isinf(traffic.request_rate)) {
    for (Request& request : requests) request.arrival_seconds = 0;
    return;
  }
  Draws draws(static_cast<std::uint64_t>(seed), kArrivalStream);
  double at = 0;
  for (Request& request : requests) {
    at += std::isinf(traffic.burstiness) ? 1 : draws.GammaOfMeanOne(traffic.burstiness);
    request.arrival_seconds = at;
  }
  const double wanted = static_cast<double>(requests.size()) / traffic.request_rate;
  const double stretch = at > 0 ? wanted / at : 0;
  for (Request& request : requests) request.arrival_seconds *= stretch;
}

}  // namespace quire::bench::load
