// Requests on their way to the scheduler, while lower tiers are asked for the start of their prompts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/events.h"
#include "api/request.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/runner.h"
#include "engine/tiers/kv_tiers.h"
#include "kv/saved_blocks.h"
#include "sched/scheduler.h"

namespace quire::engine {

// How long a request waits for an answer of the tiers, and again for the bytes, before it goes on without.
inline constexpr Duration kTierPatience = std::chrono::seconds(2);

// One thread, the engine's; only LookUp() may be called by any.
//
// The blocks that the tiers have and the prefix cache has not are read into landing blocks; with these the request goes
// to the scheduler, whose next step copies them. When there are no landing blocks left the request waits for those of
// requests before it. A tier that does not answer holds nobody up for longer than kTierPatience.
class Arrivals final {
 public:
  // `identity` says what decides the bits of a block (kv::ContentHasher). All that is pointed to outlives this.
  Arrivals(std::string identity, KvTiers* tiers, sched::Scheduler* scheduler, Runner* runner, const Clock* clock);

  // Begins to ask the tiers; null for a request that cannot use what they have.
  std::shared_ptr<PrefixFetch> LookUp(const GenerateRequest& request) const;
  // As Scheduler::Add; `fetch` comes from LookUp().
  Result<> Add(GenerateRequest request, TimePoint queued, std::shared_ptr<PrefixFetch> fetch);
  // Hands requests over to the scheduler whose blocks are there, or that have waited long enough.
  void Advance(std::vector<EngineEvent>* events);
  // Hands over one request, or all, as they are.
  void Release(RequestId id, std::vector<EngineEvent>* events);
  void ReleaseAll(std::vector<EngineEvent>* events);

  std::int64_t num_tokens() const;  // of their prompts
  int size() const { return static_cast<int>(waiting_.size()); }
  // Whether Advance() has something to do.
  bool CanAdvance() const;

 private:
  struct Arrival {
    GenerateRequest request;
    TimePoint queued;
    std::shared_ptr<PrefixFetch> fetch;
    TimePoint since;  // when the tiers were asked for what it waits for
    kv::SavedBlocks landing;
  };

  bool IsReady(Arrival* arrival);
  bool BeginToRead(Arrival* arrival);
  void HandOver(Arrival arrival, std::vector<EngineEvent>* events);

  const std::string identity_;
  KvTiers* const tiers_;
  sched::Scheduler* const scheduler_;
  Runner* const runner_;
  const Clock* const clock_;
  std::vector<Arrival> waiting_;  // in the order in which they came
  // Gave up waiting while the tiers were reading: their landing blocks stay taken until that has ended.
  std::vector<Arrival> orphans_;
  bool is_full_ = false;  // in Advance(): somebody waits for landing blocks, so those behind do too
};

}  // namespace quire::engine
