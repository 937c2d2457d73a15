#include "sched/cache_aware_policy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace quire::sched {
namespace {

// What both have in common: only the oldest are looked up, who was overtaken too often goes before all others, and a
// request waits for a prefix that is being computed.
class CacheAware : public Policy {
 public:
  explicit CacheAware(const SchedulerConfig& config) : config_(config) {}

  void Order(std::span<Sequence* const> waiting, const kv::KvManager& kv, TimePoint /*now*/,
             std::vector<Sequence*>* order) final {
    order->assign(waiting.begin(), waiting.end());
    const std::size_t num_ranked = std::min(waiting.size(), static_cast<std::size_t>(config_.max_lookups_per_step));
    if (num_ranked < 2) return;
    ranked_.clear();
    order->clear();
    for (Sequence* const sequence : waiting.first(num_ranked)) {
      if (sequence->num_overtakes() >= config_.max_overtakes) {
        order->push_back(sequence);
      } else {
        const auto cacheable = sequence->tokens().first(sequence->num_cacheable_tokens());
        const int match = kv.Peek(sequence->request().cache_namespace, cacheable);
        ranked_.push_back({sequence, cacheable.first(static_cast<std::size_t>(match))});
      }
    }
    OrderRanked(order);
    const auto rest = waiting.subspan(num_ranked);
    order->insert(order->end(), rest.begin(), rest.end());
  }

  bool HoldBack(const Sequence& candidate, std::span<Sequence* const> running, const kv::KvManager& kv) final {
    if (kv.cache() == nullptr) return false;
    if (candidate.num_overtakes() >= config_.max_overtakes) return false;
    if (candidate.num_held_back_steps() >= config_.max_held_back_steps) return false;
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

 protected:
  struct Ranked {
    Sequence* sequence;
    std::span<const TokenId> match;  // the part of its tokens that is cached

    std::string_view cache_namespace() const { return sequence->request().cache_namespace; }
    std::uint64_t arrival() const { return sequence->request().arrival; }
  };
  // Appends the sequences of ranked_, which is given by arrival.
  virtual void OrderRanked(std::vector<Sequence*>* order) = 0;

  std::vector<Ranked> ranked_;  // reused

 private:
  const SchedulerConfig config_;
};

class LongestPrefixMatch final : public CacheAware {
 public:
  using CacheAware::CacheAware;

 private:
  void OrderRanked(std::vector<Sequence*>* order) override {
    std::ranges::sort(ranked_, [](const Ranked& a, const Ranked& b) {
      return a.match.size() != b.match.size() ? a.match.size() > b.match.size() : a.arrival() < b.arrival();
    });
    for (const Ranked& ranked : ranked_) order->push_back(ranked.sequence);
  }
};

// The tree is that of the waiting requests' cached prefixes. Sorted by their tokens, every subtree is a range:
//
//   ranked_    A      AB     ABC    ABD    B             match of each
//   shared_    0      1      2      2      0             tokens in common with the one before
//              |------- 4 of A --------|   |B|
//                     |---- 3 of AB ---|
class DfsWeight final : public CacheAware {
 public:
  using CacheAware::CacheAware;

 private:
  // A part of ranked_ whose prefixes go on alike.
  struct Subtree {
    std::size_t first, count;
    std::uint64_t oldest;  // arrival
  };
  static constexpr std::size_t kOtherNamespace = 0;

  void OrderRanked(std::vector<Sequence*>* order) override {
    std::ranges::sort(ranked_, [](const Ranked& a, const Ranked& b) {
      if (a.cache_namespace() != b.cache_namespace()) return a.cache_namespace() < b.cache_namespace();
      const auto [at_a, at_b] = std::ranges::mismatch(a.match, b.match);
      const bool a_ends = at_a == a.match.end(), b_ends = at_b == b.match.end();
      if (a_ends && b_ends) return a.arrival() < b.arrival();
      return a_ends || b_ends ? a_ends : *at_a < *at_b;
    });
    shared_.assign(ranked_.size(), kOtherNamespace);
    for (std::size_t i = 1; i < ranked_.size(); ++i) {
      const Ranked &before = ranked_[i - 1], &here = ranked_[i];
      if (before.cache_namespace() != here.cache_namespace()) continue;
      // One more than the tokens, so that the namespace is the first branch of the tree.
      shared_[i] =
          1 + static_cast<std::size_t>(std::ranges::mismatch(before.match, here.match).in1 - before.match.begin());
    }
    subtrees_.clear();
    if (!ranked_.empty()) Visit(0, ranked_.size(), order);
  }

  // Everybody of [first, first + count) shares a prefix. Those that end with it come after those that go on. The depth
  // is at most the number of requests that are looked up.
  void Visit(std::size_t first, std::size_t count, std::vector<Sequence*>* order) {
    if (count == 1) {
      order->push_back(ranked_[first].sequence);
      return;
    }
    const std::size_t end = first + count;
    std::size_t depth = std::numeric_limits<std::size_t>::max();
    for (std::size_t i = first + 1; i < end; ++i) depth = std::min(depth, shared_[i]);
    std::size_t next = first;  // behind those that end here, which were sorted to the front
    while (next < end && depth > kOtherNamespace && ranked_[next].match.size() + 1 == depth) ++next;
    const std::size_t num_ending = next - first;

    const std::size_t base = subtrees_.size();  // used as a stack
    while (next < end) {
      Subtree subtree{.first = next, .count = 1, .oldest = ranked_[next].arrival()};
      for (++next; next < end && shared_[next] > depth; ++next, ++subtree.count) {
        subtree.oldest = std::min(subtree.oldest, ranked_[next].arrival());
      }
      subtrees_.push_back(subtree);
    }
    const std::size_t num_subtrees = subtrees_.size() - base;
    std::ranges::sort(std::span(subtrees_).subspan(base), [](const Subtree& a, const Subtree& b) {
      return a.count != b.count ? a.count > b.count : a.oldest < b.oldest;
    });
    for (std::size_t i = 0; i < num_subtrees; ++i) {
      const Subtree subtree = subtrees_[base + i];  // the stack may move
      Visit(subtree.first, subtree.count, order);
    }
    subtrees_.resize(base);
    for (std::size_t i = first; i < first + num_ending; ++i) order->push_back(ranked_[i].sequence);
  }

  std::vector<std::size_t> shared_;  // reused
  std::vector<Subtree> subtrees_;    // reused
};

}  // namespace

std::unique_ptr<Policy> MakeLongestPrefixMatch(const SchedulerConfig& config) {
  return std::make_unique<LongestPrefixMatch>(config);
}

std::unique_ptr<Policy> MakeDfsWeight(const SchedulerConfig& config) {
  return std::make_unique<DfsWeight>(config);
}

}  // namespace quire::sched
