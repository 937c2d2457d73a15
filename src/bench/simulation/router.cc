#include "bench/simulation/router.h"

#include <cmath>
#include <cstddef>

#include "base/parse_name.h"

namespace quire::bench {
namespace {

double Decayed(double tokens, double seconds) {
  return tokens * std::exp2(-seconds / PrefixAffinity::kHalfLifeSeconds);
}

// The key of a prompt's beginning, from the one before its last segment.
std::uint64_t Chain(std::uint64_t before, const PromptSegment& segment) {
  std::uint64_t x = (before ^ segment.content) * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(segment.num_tokens);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  return x ^ (x >> 31);
}

}  // namespace

std::string_view RouterName(RouterKind kind) {
  switch (kind) {
    case RouterKind::kRoundRobin:
      return "round-robin";
    case RouterKind::kPrefixAffinity:
      return "prefix-affinity";
  }
  return "";
}

Result<RouterKind> ParseRouter(std::string_view name) {
  constexpr RouterKind kKinds[] = {RouterKind::kRoundRobin, RouterKind::kPrefixAffinity};
  return ParseName<RouterKind>("router", name, kKinds, RouterName);
}

std::unique_ptr<Router> Router::Create(RouterKind kind, int num_replicas) {
  switch (kind) {
    case RouterKind::kRoundRobin:
      return std::make_unique<RoundRobin>(num_replicas);
    case RouterKind::kPrefixAffinity:
      return std::make_unique<PrefixAffinity>(num_replicas);
  }
  return nullptr;
}

double PrefixAffinity::LoadAt(int replica, double seconds) const {
  const Load& load = loads_[static_cast<std::size_t>(replica)];
  return Decayed(load.tokens, seconds - load.seconds);
}

int PrefixAffinity::LeastLoaded(double seconds) const {
  int best = 0;
  double least = LoadAt(0, seconds);
  for (int replica = 1; replica < static_cast<int>(loads_.size()); ++replica) {
    if (const double load = LoadAt(replica, seconds); load < least) {
      best = replica;
      least = load;
    }
  }
  return best;
}

int PrefixAffinity::Route(const TraceRequest& request) {
  const double now = request.arrival_seconds;
  const double tokens = request.num_prompt_tokens() + request.num_output_tokens;
  std::vector<std::uint64_t> beginnings;
  std::uint64_t chain = 0;
  for (const PromptSegment& segment : request.segments) beginnings.push_back(chain = Chain(chain, segment));

  int chosen = -1;
  for (auto beginning = beginnings.rbegin(); beginning != beginnings.rend() && chosen < 0; ++beginning) {
    if (const auto found = last_with_.find(*beginning); found != last_with_.end()) chosen = found->second;
  }
  total_ = {Decayed(total_.tokens, now - total_.seconds) + tokens, now};
  const double mean = total_.tokens / static_cast<double>(loads_.size());
  if (chosen < 0 || LoadAt(chosen, now) > kImbalance * mean) chosen = LeastLoaded(now);
  Load& load = loads_[static_cast<std::size_t>(chosen)];
  load = {Decayed(load.tokens, now - load.seconds) + tokens, now};
  for (const std::uint64_t beginning : beginnings) last_with_[beginning] = chosen;
  return chosen;
}

}  // namespace quire::bench
