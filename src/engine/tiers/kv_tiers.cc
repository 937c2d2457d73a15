#include "engine/tiers/kv_tiers.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace quire::engine {
namespace {

// Prompts that may wait to be looked up; more go without.
constexpr std::size_t kLookUpsMax = 4096;

}  // namespace

Result<std::unique_ptr<KvTiers>> KvTiers::Create(const Config& config, std::vector<std::unique_ptr<KvTier>> tiers) {
  CHECK(config.num_outgoing >= 1 && config.block_bytes > 0);
  QUIRE_TRY(AlignedBuffer memory,
            AlignedBuffer::Allocate(config.block_bytes * static_cast<std::size_t>(config.num_outgoing)));
  return std::unique_ptr<KvTiers>(new KvTiers(config, std::move(tiers), std::move(memory)));
}

KvTiers::KvTiers(const Config& config, std::vector<std::unique_ptr<KvTier>> tiers, AlignedBuffer memory)
    : config_(config), tiers_(std::move(tiers)), memory_(std::move(memory)) {
  for (int slot = config.num_outgoing - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  for (const auto& tier : tiers_) stats_.push_back(tier->stats());
  if (config.runs_thread) thread_ = std::thread([this] { Loop(); });
}

KvTiers::~KvTiers() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    flush_deadline_ = SteadyClock().Now() + config_.flush_max;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void KvTiers::SetListener(std::function<void()> listener) {
  listener_ = std::move(listener);
}

std::shared_ptr<PrefixFetch> KvTiers::LookUp(std::vector<kv::ContentKey> keys) {
  auto fetch = std::make_shared<PrefixFetch>(std::move(keys));
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_ || look_ups_.size() >= kLookUpsMax) return nullptr;
    look_ups_.push_back(fetch);
  }
  work_.notify_one();
  return fetch;
}

void KvTiers::Read(const std::shared_ptr<PrefixFetch>& fetch, int first, std::vector<std::span<std::byte>> blocks) {
  CHECK(fetch->state() == PrefixFetch::State::kFound && !blocks.empty());
  CHECK(first >= 0 && first + static_cast<int>(blocks.size()) <= fetch->num_found_);
  fetch->first_ = first;
  fetch->blocks_ = std::move(blocks);
  fetch->SetState(PrefixFetch::State::kReading);
  {
    const std::lock_guard lock(mutex_);
    reads_.push_back(fetch);  // no more than there are blocks to read into
  }
  work_.notify_one();
}

bool KvTiers::HasRoom() const {
  const std::lock_guard lock(mutex_);
  return !free_slots_.empty();
}

bool KvTiers::Store(const kv::ContentKey& key, std::span<const std::byte> block) {
  CHECK(block.size() == config_.block_bytes);
  int slot = 0;
  {
    const std::lock_guard lock(mutex_);
    if (free_slots_.empty()) return false;
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  std::ranges::copy(block, SlotBytes(slot).begin());
  {
    const std::lock_guard lock(mutex_);
    stores_.push_back({key, slot});
  }
  work_.notify_one();
  return true;
}

std::span<std::byte> KvTiers::SlotBytes(int slot) {
  return {memory_.data() + static_cast<std::size_t>(slot) * config_.block_bytes, config_.block_bytes};
}

bool KvTiers::IsIdle() const {
  return !is_busy_ && look_ups_.empty() && reads_.empty() && stores_.empty();
}

void KvTiers::WaitIdle(Duration timeout) {
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, timeout, [&] { return IsIdle(); });
}

void KvTiers::ReadStats(EngineStats* stats) const {
  const std::lock_guard lock(mutex_);
  stats->kv_tiers.assign(stats_.begin(), stats_.end());
}

void KvTiers::PublishStats() {
  for (std::size_t i = 0; i < tiers_.size(); ++i) stats_[i] = tiers_[i]->stats();
}

void KvTiers::Loop() {
  // A database that hangs up shows as an error of write, not as a signal.
  sigset_t pipe;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return is_closed_ || !IsIdle(); });
      // At the end, what waits to be written still is; nobody waits for the rest.
      if (is_closed_ && (stores_.empty() || SteadyClock().Now() > flush_deadline_)) return;
    }
    RunOne();
    if (listener_) listener_();
  }
}

bool KvTiers::RunOne() {
  std::shared_ptr<PrefixFetch> look_up, read;
  Outgoing outgoing{};
  {
    const std::lock_guard lock(mutex_);
    if (IsIdle()) return false;
    is_busy_ = true;
    // Somebody waits for the first two; the third only frees a slot.
    if (!look_ups_.empty()) {
      look_up = std::move(look_ups_.front());
      look_ups_.pop_front();
    } else if (!reads_.empty()) {
      read = reads_.front();
    } else {
      outgoing = stores_.front();
      stores_.pop_front();
    }
  }
  bool read_is_done = false;
  if (look_up) {
    RunLookUp(look_up.get());
  } else if (read) {
    read_is_done = RunRead(read.get());
  } else {
    RunStore(outgoing);
  }
  {
    const std::lock_guard lock(mutex_);
    is_busy_ = false;
    if (read_is_done) reads_.pop_front();
    if (!look_up && !read) free_slots_.push_back(outgoing.slot);
    PublishStats();
  }
  idle_.notify_all();
  return true;
}

void KvTiers::RunLookUp(PrefixFetch* fetch) {
  const std::size_t count = fetch->keys_.size();
  const auto found = std::make_unique<bool[]>(count);
  if (!fetch->abandoned_.load(std::memory_order_relaxed)) {
    for (const auto& tier : tiers_) tier->Contains(fetch->keys_, std::span(found.get(), count));
  }
  fetch->num_found_ = static_cast<int>(std::find(found.get(), found.get() + count, false) - found.get());
  fetch->SetState(PrefixFetch::State::kFound);
}

bool KvTiers::RunRead(PrefixFetch* fetch) {
  const kv::ContentKey& key = fetch->keys_[static_cast<std::size_t>(fetch->first_ + fetch->num_read_)];
  const std::span<std::byte> block = fetch->blocks_[static_cast<std::size_t>(fetch->num_read_)];
  bool got = false;
  if (!fetch->abandoned_.load(std::memory_order_relaxed)) {
    for (std::size_t i = 0; i < tiers_.size() && !got; ++i) {
      got = tiers_[i]->Get(key, block);
      // The next time it is nearer.
      for (std::size_t upper = 0; got && upper < i; ++upper) tiers_[upper]->Put(key, block);
    }
  }
  if (got) ++fetch->num_read_;
  if (got && fetch->num_read_ < static_cast<int>(fetch->blocks_.size())) return false;
  fetch->SetState(PrefixFetch::State::kRead);
  return true;
}

void KvTiers::RunStore(const Outgoing& outgoing) {
  for (const auto& tier : tiers_) {
    bool found = false;
    tier->Contains({&outgoing.key, 1}, {&found, 1});
    if (!found) tier->Put(outgoing.key, SlotBytes(outgoing.slot));
  }
}

}  // namespace quire::engine
