// Fairness between tenants by virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", 2024).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sched/policy.h"

namespace quire::sched {

// Each tenant has a counter of the service that it has had: its prompts' tokens that had to be computed, and its output
// tokens, each by its weight. The tenant whose counter is lowest goes first; which of its requests that is, another
// policy says. No tenant can have much more than another that always waits as well: the counters of two such tenants
// differ by at most what one prompt, or all running outputs, can cost.
//
// Who comes back after a pause is lifted to the lowest counter of those that wait, or to that of the last who did: time
// in which nothing was wanted is not saved up.
class FairShare final : public Policy {
 public:
  FairShare(const SchedulerConfig& config, std::unique_ptr<Policy> within_tenant);

  void Order(std::span<Sequence* const> waiting, const kv::KvManager& kv, TimePoint now,
             std::vector<Sequence*>* order) override;
  bool HoldBack(const Sequence& candidate, std::span<Sequence* const> running, const kv::KvManager& kv) override {
    return within_tenant_->HoldBack(candidate, running, kv);
  }
  void OnArrival(Request* request, std::span<Sequence* const> waiting) override;
  void OnAdmission(const Sequence& sequence, int num_cached_tokens) override;
  void OnToken(const Sequence& sequence) override;
  void OnFinish(const Sequence& sequence) override { within_tenant_->OnFinish(sequence); }

  // In weighted tokens; only differences mean something.
  double CounterOf(std::int32_t tenant) const;

 private:
  struct Tenant {
    double counter = 0;
    double provisional = 0;          // the counter, and what Order has given it so far
    std::vector<Sequence*> waiting;  // of the order being made
    std::size_t next = 0;            // in `waiting`
  };
  Tenant& TenantOf(const Request& request);

  const double input_weight_;
  const double output_weight_;
  const std::unique_ptr<Policy> within_tenant_;
  std::vector<Tenant> tenants_;        // [largest tenant so far + 1], at most kTenantsMax
  std::vector<std::int32_t> waiting_;  // reused: the tenants in the order being made
  std::int32_t last_to_leave_ = 0;     // whose request was admitted last
};

}  // namespace quire::sched
