// How long an output is likely to become, from those before it. Nobody knows when a model will stop; but requests of
// one tenant to one route with a similar max_tokens tend to be of a kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sched/sequence.h"

namespace quire::sched {

// A table of running means of fixed size. A request is looked up by (tenant, route, magnitude of max_tokens), then by
// (route, magnitude) for tenants of which little is known; where nothing is known, its max_tokens is the prediction.
class LengthPredictor final {
 public:
  // Tokens of one choice, from 0 to what the request allows.
  double Predict(const Request& request) const;
  void Observe(const Request& request, int num_output_tokens);

 private:
  struct Mean {
    std::uint64_t key = 0;  // whose it is; another one with the same place takes it over
    int count = 0;
    double tokens = 0;
  };
  static constexpr std::size_t kNumMeans = 4096;
  static constexpr int kLeastCount = 4;  // before a mean is believed
  static constexpr int kMostCount = 64;  // then the mean forgets: one in 64 of it is the newest

  static std::uint64_t KeyOf(const Request& request, bool with_tenant);
  static std::size_t PlaceOf(std::uint64_t key);

  std::array<Mean, kNumMeans> means_{};
};

}  // namespace quire::sched
