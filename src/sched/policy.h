// In which order waiting requests are admitted.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kv/kv_manager.h"
#include "sched/scheduler_config.h"
#include "sched/sequence.h"

namespace quire::sched {

class Policy {
 public:
  virtual ~Policy() = default;

  // Fills `order` with the waiting sequences (given by arrival) in the order of admission.
  virtual void Order(std::span<Sequence* const> waiting, const kv::KvManager& kv, std::vector<Sequence*>* order) = 0;
  // Whether `candidate` had better wait, because a running sequence is about to compute a prefix that it
  // needs.
  virtual bool HoldBack(const Sequence& candidate, std::span<Sequence* const> running, const kv::KvManager& kv) = 0;

  static std::unique_ptr<Policy> Create(const SchedulerConfig& config);
};

}  // namespace quire::sched
