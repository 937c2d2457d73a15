// Which replica gets which request. A router knows what it has sent where and when, and nothing of the engines, so that
// replicas can be simulated one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "bench/simulation/request_trace.h"

namespace quire::bench {

enum class RouterKind : std::uint8_t {
  kRoundRobin,      // one after the other
  kPrefixAffinity,  // where the longest beginning of the prompt went before, unless that replica has much more to do
};
std::string_view RouterName(RouterKind kind);
// "round-robin" or "prefix-affinity".
Result<RouterKind> ParseRouter(std::string_view name);

class Router {
 public:
  virtual ~Router() = default;
  // Called in the order of arrival.
  virtual int Route(const TraceRequest& request) = 0;

  static std::unique_ptr<Router> Create(RouterKind kind, int num_replicas);
};

class RoundRobin final : public Router {
 public:
  explicit RoundRobin(int num_replicas) : num_replicas_(num_replicas) {}
  int Route(const TraceRequest& /*request*/) override { return next_++ % num_replicas_; }

 private:
  const int num_replicas_;
  std::int64_t next_ = 0;
};

// The load of a replica is the tokens that were sent to it, an older token counting less: half after kHalfLifeSeconds. The
// replica that had a prefix is passed over for the least loaded one when its load is above kImbalance times the mean, the
// request counted in the mean.
class PrefixAffinity final : public Router {
 public:
  static constexpr double kHalfLifeSeconds = 10;
  static constexpr double kImbalance = 1.5;

  explicit PrefixAffinity(int num_replicas) : loads_(static_cast<std::size_t>(num_replicas)) {}
  int Route(const TraceRequest& request) override;

 private:
  struct Load {
    double tokens = 0;  // at the time below
    double seconds = 0;
  };
  double LoadAt(int replica, double seconds) const;
  int LeastLoaded(double seconds) const;

  std::vector<Load> loads_;                           // [num_replicas]
  Load total_;                                        // of all
  std::unordered_map<std::uint64_t, int> last_with_;  // the beginning of a prompt, segment by segment → replica
};

}  // namespace quire::bench
