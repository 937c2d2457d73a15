// The policies that need no more than an order; those that look into the cache are in cache_aware_policy.cc, fairness
// is in fair_share.cc.
#include "sched/policy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "base/counter_rng.h"
#include "sched/cache_aware_policy.h"
#include "sched/fair_share.h"
#include "sched/length_predictor.h"

namespace quire::sched {
namespace {

class Fcfs final : public Policy {
 public:
  void Order(std::span<Sequence* const> waiting, const kv::KvManager& /*kv*/, TimePoint /*now*/,
             std::vector<Sequence*>* order) override {
    order->assign(waiting.begin(), waiting.end());
  }
};

// The baseline that the others are measured against. Drawn anew each time, so nobody is unlucky for ever.
class Random final : public Policy {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}

  void Order(std::span<Sequence* const> waiting, const kv::KvManager& /*kv*/, TimePoint /*now*/,
             std::vector<Sequence*>* order) override {
    order->assign(waiting.begin(), waiting.end());
    for (std::size_t left = order->size(); left > 1; --left) {
      const double draw = UniformDouble(seed_, num_draws_++);
      std::swap((*order)[left - 1], (*order)[static_cast<std::size_t>(draw * static_cast<double>(left))]);
    }
  }

 private:
  const std::uint64_t seed_;
  std::uint64_t num_draws_ = 0;
};

// The lower number first, whatever it takes; among equals the older.
class Priority final : public Policy {
 public:
  void Order(std::span<Sequence* const> waiting, const kv::KvManager& /*kv*/, TimePoint /*now*/,
             std::vector<Sequence*>* order) override {
    order->assign(waiting.begin(), waiting.end());
    std::ranges::sort(*order, [this](const Sequence* a, const Sequence* b) { return IsServedBefore(*a, *b); });
  }
  bool IsServedBefore(const Sequence& a, const Sequence& b) const override {
    const std::int32_t of_a = a.request().terms.priority, of_b = b.request().terms.priority;
    return of_a != of_b ? of_a < of_b : Sequence::IsOlder(&a, &b);
  }
  bool overtakes() const override { return true; }
  bool MayOvertake(const Sequence& waiting, const Sequence& other) const override {
    return waiting.request().terms.priority < other.request().terms.priority;
  }
  bool MayDisplace(const Sequence& waiting, const Sequence& running) const override {
    return MayOvertake(waiting, running);
  }
};

// The least work first: that keeps the mean time of all requests low, at the expense of the long ones, which is why
// nobody is overtaken for ever.
class ShortestJobFirst final : public Policy {
 public:
  explicit ShortestJobFirst(const SchedulerConfig& config) : config_(config) {}

  void Order(std::span<Sequence* const> waiting, const kv::KvManager& /*kv*/, TimePoint /*now*/,
             std::vector<Sequence*>* order) override {
    order->assign(waiting.begin(), waiting.end());
    const auto rank = [this](const Sequence* sequence) {
      const bool starves = sequence->num_overtakes() >= config_.max_overtakes;
      return std::tuple(!starves, starves ? 0.0 : sequence->request().predicted_work, sequence->request().arrival);
    };
    std::ranges::sort(*order, {}, rank);
  }
  void OnArrival(Request* request, std::span<Sequence* const> /*waiting*/) override {
    const double output = lengths_.Predict(*request) * request->sampling.n;
    request->predicted_work =
        config_.input_token_weight * request->num_prompt_tokens + config_.output_token_weight * output;
  }
  void OnFinish(const Sequence& sequence) override {
    lengths_.Observe(sequence.request(), sequence.num_output_tokens());
  }

 private:
  const SchedulerConfig config_;
  LengthPredictor lengths_;
};

// The earliest deadline first. Once a deadline is missed there is nothing more to win by haste, so those come behind
// the ones that can still be met: otherwise one late request would make all that follow late as well.
class EarliestDeadlineFirst final : public Policy {
 public:
  explicit EarliestDeadlineFirst(const SchedulerConfig& config) : config_(config) {}

  void Order(std::span<Sequence* const> waiting, const kv::KvManager& /*kv*/, TimePoint now,
             std::vector<Sequence*>* order) override {
    order->assign(waiting.begin(), waiting.end());
    const auto rank = [&](const Sequence* sequence) {
      const Request& request = sequence->request();
      const bool starves = sequence->num_overtakes() >= config_.max_overtakes;
      return std::tuple(!starves, !starves && request.deadline < now, request.deadline, request.arrival);
    };
    std::ranges::sort(*order, {}, rank);
  }
  bool IsServedBefore(const Sequence& a, const Sequence& b) const override {
    const TimePoint of_a = a.request().deadline, of_b = b.request().deadline;
    return of_a != of_b ? of_a < of_b : Sequence::IsOlder(&a, &b);
  }
  bool overtakes() const override { return true; }
  // A prompt may wait for a more urgent one; a stream is never interrupted for it.
  bool MayOvertake(const Sequence& waiting, const Sequence& other) const override {
    return waiting.request().deadline < other.request().deadline;
  }

 private:
  const SchedulerConfig config_;
};

std::unique_ptr<Policy> CreateUnfair(const SchedulerConfig& config) {
  switch (config.policy) {
    case PolicyKind::kFcfs:
      return std::make_unique<Fcfs>();
    case PolicyKind::kLpm:
      return MakeLongestPrefixMatch(config);
    case PolicyKind::kDfsWeight:
      return MakeDfsWeight(config);
    case PolicyKind::kRandom:
      return std::make_unique<Random>(config.random_seed);
    case PolicyKind::kPriority:
      return std::make_unique<Priority>();
    case PolicyKind::kSjf:
      return std::make_unique<ShortestJobFirst>(config);
    case PolicyKind::kSlo:
      return std::make_unique<EarliestDeadlineFirst>(config);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Policy> Policy::Create(const SchedulerConfig& config) {
  std::unique_ptr<Policy> policy = CreateUnfair(config);
  if (!config.enable_fairness) return policy;
  return std::make_unique<FairShare>(config, std::move(policy));
}

}  // namespace quire::sched
