#include "sched/policy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

namespace quire::sched {
namespace {

class Fcfs final : public Policy {
 public:
  void Order(std::span<Sequence* const> waiting, const kv::KvManager& /*kv*/, std::vector<Sequence*>* order) override {
    order->assign(waiting.begin(), waiting.end());
  }
  bool HoldBack(const Sequence& /*candidate*/, std::span<Sequence* const> /*running*/,
                const kv::KvManager& /*kv*/) override {
    return false;
  }
};

// Whoever finds most of its prompt in the cache goes first: it costs least, and what it uses is used before
// it can be evicted. A request that was overtaken too often goes before all others.
class LongestPrefixMatch final : public Policy {
 public:
  explicit LongestPrefixMatch(const SchedulerConfig& config) : config_(config) {}

  void Order(std::span<Sequence* const> waiting, const kv::KvManager& kv, std::vector<Sequence*>* order) override {
    order->assign(waiting.begin(), waiting.end());
    const std::size_t num_ranked = std::min(waiting.size(), static_cast<std::size_t>(config_.max_lookups_per_step));
    if (num_ranked < 2) return;
    ranked_.clear();
    for (Sequence* const sequence : waiting.first(num_ranked)) {
      const bool starves = sequence->num_overtakes() >= config_.max_overtakes;
      const int match = starves ? 0
                                : kv.Peek(sequence->request().cache_namespace,
                                          sequence->tokens().first(sequence->num_cacheable_tokens()));
      ranked_.push_back({starves, match, sequence});
    }
    std::ranges::sort(ranked_, [](const Ranked& a, const Ranked& b) {
      return std::tuple(!a.starves, -a.match, a.sequence->request().arrival) <
             std::tuple(!b.starves, -b.match, b.sequence->request().arrival);
    });
    for (std::size_t i = 0; i < num_ranked; ++i) (*order)[i] = ranked_[i].sequence;
  }

  bool HoldBack(const Sequence& candidate, std::span<Sequence* const> running, const kv::KvManager& kv) override {
    if (candidate.num_overtakes() >= config_.max_overtakes) return false;
    if (candidate.num_prefix_wait_steps() >= config_.max_prefix_wait_steps) return false;
    const auto wanted = candidate.tokens().first(candidate.num_cacheable_tokens());
    int cached = -1;  // looked up when it matters
    for (const Sequence* const other : running) {
      const auto published = static_cast<std::int64_t>(other->blocks().num_published_blocks) * kv.block_size();
      if (published + kv.block_size() > other->num_prompt_tokens()) continue;  // its prompt is computed
      if (other->request().cache_namespace != candidate.request().cache_namespace) continue;
      const auto prompt = other->prompt();
      const auto common = std::ranges::mismatch(wanted, prompt).in1 - wanted.begin();
      const int to_come = static_cast<int>(common) / kv.block_size() * kv.block_size();
      if (to_come <= published || to_come < config_.min_prefix_wait_tokens) continue;
      if (cached < 0) cached = kv.Peek(candidate.request().cache_namespace, wanted);
      if (to_come - cached >= config_.min_prefix_wait_tokens) return true;
    }
    return false;
  }

 private:
  struct Ranked {
    bool starves;
    int match;  // tokens
    Sequence* sequence;
  };

  const SchedulerConfig config_;
  std::vector<Ranked> ranked_;  // reused
};

}  // namespace

std::unique_ptr<Policy> Policy::Create(const SchedulerConfig& config) {
  switch (config.policy) {
    case PolicyKind::kFcfs:
      return std::make_unique<Fcfs>();
    case PolicyKind::kLpm:
      return std::make_unique<LongestPrefixMatch>(config);
  }
  return nullptr;
}

}  // namespace quire::sched
