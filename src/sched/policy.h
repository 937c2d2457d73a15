// Who is served when: small objects that put requests in order. Nothing that they decide changes what a request gets.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "kv/kv_manager.h"
#include "sched/scheduler_config.h"
#include "sched/sequence.h"

namespace quire::sched {

// One thread, the scheduler's. Its orders are total, so that a schedule can be repeated.
class Policy {
 public:
  virtual ~Policy() = default;

  // Fills `order` with the waiting sequences (given by arrival) in the order of admission.
  virtual void Order(std::span<Sequence* const> waiting, const kv::KvManager& kv, TimePoint now,
                     std::vector<Sequence*>* order) = 0;
  // Whether `candidate` had better wait, because a running sequence is about to compute a prefix that it
  // needs.
  virtual bool HoldBack(const Sequence& /*candidate*/, std::span<Sequence* const> /*running*/,
                        const kv::KvManager& /*kv*/) {
    return false;
  }

  // The order in which sequences that have run are served and, from its end, preempted. It never changes for a pair.
  virtual bool IsServedBefore(const Sequence& a, const Sequence& b) const { return Sequence::IsOlder(&a, &b); }
  // Whether MayOvertake is ever true.
  virtual bool overtakes() const { return false; }
  // Whether a waiting sequence may start before `other` gets on with its prompt, or before it resumes.
  virtual bool MayOvertake(const Sequence& /*waiting*/, const Sequence& /*other*/) const { return false; }
  // … and whether `running` may be preempted for its sake. Implies MayOvertake.
  virtual bool MayDisplace(const Sequence& /*waiting*/, const Sequence& /*running*/) const { return false; }

  // What happens, for policies that keep accounts. `request` may be completed on its arrival; `waiting` are those that
  // came before it.
  virtual void OnArrival(Request* /*request*/, std::span<Sequence* const> /*waiting*/) {}
  // For the first time, with so many tokens that need not be computed.
  virtual void OnAdmission(const Sequence& /*sequence*/, int /*num_cached_tokens*/) {}
  virtual void OnToken(const Sequence& /*sequence*/) {}
  // A choice has come to its end by itself.
  virtual void OnFinish(const Sequence& /*sequence*/) {}

  static std::unique_ptr<Policy> Create(const SchedulerConfig& config);
};

}  // namespace quire::sched
