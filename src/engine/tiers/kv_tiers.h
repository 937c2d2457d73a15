// All tiers below the pool, and the thread that talks to them, so that the step loop never waits for a disk or a network.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "api/engine_info.h"
#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/tiers/kv_tier.h"
#include "kv/content_key.h"

namespace quire::engine {

// How much of one prompt the tiers have, and then its bytes. Shared by whoever asked and by the thread that answers,
// whichever lets go last.
//
//   kLookingUp ──▶ kFound ──Read()──▶ kReading ──▶ kRead
class PrefixFetch {
 public:
  enum class State : std::uint8_t { kLookingUp, kFound, kReading, kRead };

  explicit PrefixFetch(std::vector<kv::ContentKey> keys) : keys_(std::move(keys)) {}

  State state() const { return state_.load(std::memory_order_acquire); }
  // From kFound on: so many of the first keys are there, it seems.
  int num_found() const { return num_found_; }
  // With kRead: so many blocks were read, without a gap.
  int num_read() const { return num_read_; }
  // Nobody wants it any more: what has not begun is left out.
  void Abandon() { abandoned_.store(true, std::memory_order_relaxed); }

 private:
  friend class KvTiers;

  // Acquire and release: whoever sees the state sees what was written before it.
  void SetState(State state) { state_.store(state, std::memory_order_release); }

  const std::vector<kv::ContentKey> keys_;
  std::atomic<State> state_{State::kLookingUp};
  std::atomic<bool> abandoned_{false};  // relaxed: a hint
  int num_found_ = 0;
  int first_ = 0;  // of the keys that are read
  int num_read_ = 0;
  std::vector<std::span<std::byte>> blocks_;  // where they go
};

class KvTiers final {
 public:
  struct Config {
    std::size_t block_bytes = 0;
    int num_outgoing = 1;                          // blocks that may wait to be written, ≥ 1
    bool runs_thread = true;                       // otherwise RunOne() does the work, for tests
    Duration flush_max = std::chrono::seconds(5);  // time to write what waits at the end
  };

  // The first tier is asked first, and gets what the later ones have.
  static Result<std::unique_ptr<KvTiers>> Create(const Config& config, std::vector<std::unique_ptr<KvTier>> tiers);
  ~KvTiers();
  KvTiers(const KvTiers&) = delete;
  KvTiers& operator=(const KvTiers&) = delete;

  // Called by the tiers' thread after each change that a waiting engine may want to know; to be set before anything is
  // asked for.
  void SetListener(std::function<void()> listener);

  // Any thread. null when too many wait.
  std::shared_ptr<PrefixFetch> LookUp(std::vector<kv::ContentKey> keys);
  // Of the engine's thread. Reads the blocks first, first + 1, … of a fetch in kFound; the memory stays until kRead.
  void Read(const std::shared_ptr<PrefixFetch>& fetch, int first, std::vector<std::span<std::byte>> blocks);
  // Copies a block and writes it later; false, and nothing happens, when as many wait as may.
  bool Store(const kv::ContentKey& key, std::span<const std::byte> block);
  bool HasRoom() const;
  // Waits until nothing is left to do, or for `timeout`.
  void WaitIdle(Duration timeout);
  // Fills stats->kv_tiers.
  void ReadStats(EngineStats* stats) const;

  // Does one thing that waits: look up, read a block, or write one; false when nothing does.
  bool RunOne();

 private:
  struct Outgoing {
    kv::ContentKey key;
    int slot;
  };

  KvTiers(const Config& config, std::vector<std::unique_ptr<KvTier>> tiers, AlignedBuffer memory);
  void Loop();
  void RunLookUp(PrefixFetch* fetch);
  // Reads the next block; true when it was the last one.
  bool RunRead(PrefixFetch* fetch);
  void RunStore(const Outgoing& outgoing);
  bool IsIdle() const;  // with mutex_
  std::span<std::byte> SlotBytes(int slot);
  void PublishStats();

  const Config config_;
  const std::vector<std::unique_ptr<KvTier>> tiers_;
  AlignedBuffer memory_;  // [num_outgoing, block_bytes]; a slot belongs to whoever took its number
  std::function<void()> listener_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable work_, idle_;
  std::deque<std::shared_ptr<PrefixFetch>> look_ups_, reads_;  // the first read may be under way
  std::deque<Outgoing> stores_;
  std::vector<int> free_slots_;
  bool is_busy_ = false;  // with something that it took from a queue
  bool is_closed_ = false;
  TimePoint flush_deadline_{};
  std::vector<KvTierStats> stats_;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace quire::engine
