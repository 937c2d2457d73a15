#include "sched/length_predictor.h"

#include <algorithm>
#include <bit>

namespace quire::sched {
namespace {

int MaxOutput(const Request& request) {
  return std::max(0, request.max_num_tokens - request.num_prompt_tokens);
}

}  // namespace

std::uint64_t LengthPredictor::KeyOf(const Request& request, bool with_tenant) {
  const auto magnitude = static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(MaxOutput(request))));
  const std::uint64_t tenant = with_tenant ? static_cast<std::uint64_t>(request.terms.tenant) + 1 : 0;
  return (tenant << 16) | (static_cast<std::uint64_t>(request.terms.route) << 8) | (magnitude + 1);
}

std::size_t LengthPredictor::PlaceOf(std::uint64_t key) {
  return (key * 0x9E3779B97F4A7C15u) >> (64 - std::bit_width(kNumMeans - 1));
}

double LengthPredictor::Predict(const Request& request) const {
  const double most = MaxOutput(request);
  for (const bool with_tenant : {true, false}) {
    const std::uint64_t key = KeyOf(request, with_tenant);
    const Mean& mean = means_[PlaceOf(key)];
    if (mean.key == key && mean.count >= kLeastCount) return std::min(mean.tokens, most);
  }
  return most;
}

void LengthPredictor::Observe(const Request& request, int num_output_tokens) {
  for (const bool with_tenant : {true, false}) {
    const std::uint64_t key = KeyOf(request, with_tenant);
    Mean& mean = means_[PlaceOf(key)];
    if (mean.key != key) mean = {.key = key};
    mean.count = std::min(mean.count + 1, kMostCount);
    mean.tokens += (num_output_tokens - mean.tokens) / mean.count;
  }
}

}  // namespace quire::sched
