#include "engine/arrivals.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kv/cache_namespace.h"
#include "kv/content_key.h"
#include "sched/validate.h"

namespace quire::engine {

Arrivals::Arrivals(std::string identity, KvTiers* tiers, sched::Scheduler* scheduler, Runner* runner,
                   const Clock* clock)
    : identity_(std::move(identity)), tiers_(tiers), scheduler_(scheduler), runner_(runner), clock_(clock) {}

std::shared_ptr<PrefixFetch> Arrivals::LookUp(const GenerateRequest& request) const {
  const int block_size = scheduler_->config().block_size;
  // The last token always runs, and so do all of them when their logits are wanted.
  const std::size_t num_usable =
      request.prompt.empty() || request.sampling.prompt_logprobs ? 0 : request.prompt.size() - 1;
  if (num_usable < static_cast<std::size_t>(block_size)) return nullptr;
  kv::ContentHasher hasher(identity_);
  return tiers_->LookUp(
      hasher.Keys(kv::MakeCacheNamespace(request.cache_salt), std::span(request.prompt).first(num_usable), block_size));
}

Result<> Arrivals::Add(GenerateRequest request, TimePoint queued, std::shared_ptr<PrefixFetch> fetch) {
  const sched::SchedulerConfig& config = scheduler_->config();
  QUIRE_TRY_VOID(sched::ValidateRequest(config, request));
  QUIRE_TRY_VOID(sched::CheckQueueRoom(config, request, scheduler_->num_queued_requests() + size(),
                                       scheduler_->num_queued_tokens() + num_tokens()));
  const bool is_known = std::ranges::any_of(waiting_, [&](const Arrival& a) { return a.request.id == request.id; });
  if (is_known || scheduler_->IsUnfinished(request.id)) {
    return FailParam("id", "a request with id {} is unfinished; ids must be unique", request.id);
  }
  if (!fetch) return scheduler_->Add(std::move(request), queued);
  waiting_.push_back({std::move(request), queued, std::move(fetch), clock_->Now(), {}});
  return {};
}

bool Arrivals::IsReady(Arrival* arrival) {
  const bool is_over = clock_->Now() - arrival->since > kTierPatience;
  switch (arrival->fetch->state()) {
    case PrefixFetch::State::kLookingUp:
    case PrefixFetch::State::kReading:
      return is_over;
    case PrefixFetch::State::kFound:
      return !BeginToRead(arrival);
    case PrefixFetch::State::kRead:
      return true;
  }
  return true;
}

// False when there is nothing to wait for.
bool Arrivals::BeginToRead(Arrival* arrival) {
  const kv::KvManager& kv = scheduler_->kv();
  const GenerateRequest& request = arrival->request;
  const auto usable = std::span(request.prompt).first(request.prompt.size() - 1);
  const int first = kv.Peek(kv::MakeCacheNamespace(request.cache_salt), usable) / kv.block_size();
  const int count = std::min(arrival->fetch->num_found() - first, kv.num_landing_blocks());
  if (count <= 0) return false;
  if (is_full_ || count > kv.num_free_landing_blocks()) {
    is_full_ = true;
    // What hangs may hang for ever.
    return orphans_.empty();
  }
  std::vector<std::span<std::byte>> bytes;
  arrival->landing.first_block = first;
  for (int i = 0; i < count; ++i) {
    arrival->landing.blocks.push_back(scheduler_->TakeLandingBlock());
    bytes.push_back(runner_->BlockBytes(arrival->landing.blocks.back().id()));
  }
  tiers_->Read(arrival->fetch, first, std::move(bytes));
  arrival->since = clock_->Now();
  return true;
}

void Arrivals::HandOver(Arrival arrival, std::vector<EngineEvent>* events) {
  kv::SavedBlocks saved;
  if (arrival.fetch->state() == PrefixFetch::State::kRead && arrival.fetch->num_read() > 0) {
    saved = std::move(arrival.landing);
    saved.blocks.resize(static_cast<std::size_t>(arrival.fetch->num_read()));
    saved.num_tokens = (saved.first_block + arrival.fetch->num_read()) * scheduler_->config().block_size;
  }
  const RequestId id = arrival.request.id;
  const int num_choices = arrival.request.sampling.n;
  const Result<> added = scheduler_->Add(std::move(arrival.request), arrival.queued, std::move(saved));
  for (int choice = 0; !added && choice < num_choices; ++choice) {
    EngineEvent event;
    event.request = id;
    event.choice = choice;
    event.finish_reason = FinishReason::kError;
    event.error = added.error().message;
    events->push_back(std::move(event));
  }
  arrival.fetch->Abandon();
  if (arrival.fetch->state() == PrefixFetch::State::kReading) orphans_.push_back(std::move(arrival));
}

void Arrivals::Advance(std::vector<EngineEvent>* events) {
  std::erase_if(orphans_, [](const Arrival& a) { return a.fetch->state() == PrefixFetch::State::kRead; });
  is_full_ = false;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (IsReady(&waiting_[i])) {
      HandOver(std::move(waiting_[i]), events);
    } else if (kept++ != i) {
      waiting_[kept - 1] = std::move(waiting_[i]);
    }
  }
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(kept), waiting_.end());
}

void Arrivals::Release(RequestId id, std::vector<EngineEvent>* events) {
  const auto found = std::ranges::find_if(waiting_, [&](const Arrival& a) { return a.request.id == id; });
  if (found == waiting_.end()) return;
  Arrival arrival = std::move(*found);
  waiting_.erase(found);
  HandOver(std::move(arrival), events);
}

void Arrivals::ReleaseAll(std::vector<EngineEvent>* events) {
  for (Arrival& arrival : std::exchange(waiting_, {})) HandOver(std::move(arrival), events);
}

bool Arrivals::CanAdvance() const {
  const TimePoint now = clock_->Now();
  return std::ranges::any_of(waiting_, [&](const Arrival& a) {
    const PrefixFetch::State state = a.fetch->state();
    return state == PrefixFetch::State::kFound || state == PrefixFetch::State::kRead || now - a.since > kTierPatience;
  });
}

std::int64_t Arrivals::num_tokens() const {
  std::int64_t count = 0;
  for (const Arrival& arrival : waiting_) count += static_cast<std::int64_t>(arrival.request.prompt.size());
  return count;
}

}  // namespace quire::engine
