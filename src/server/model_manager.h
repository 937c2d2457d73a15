// The models of a server: which are loaded, and who has to wait.
//
// One of two kinds. A server of one resident model has it from beginning to end. A server of several loads a model when
// the first request for it comes, and unloads those that nothing uses when another needs their room:
//
//     kUnloaded ──somebody waits, and it fits──▶ kLoading ──the engine is ready──▶ kLoaded
//         ▲                                         │ failed, unloaded                │ evicted, idle, asked for, died
//         └────────── its memory is free ◀──── kUnloading ◀───────────────────────────┘
//
// Invariants, with mutex_ held:
//   * the memory of all models that are not kUnloaded is at most the configuration's, and so is their number;
//   * a model with leases is never destroyed; one that is to be unloaded gives out no further ones;
//   * whoever waits is either granted a lease or told why not, when its model's next load has ended; models are loaded in
//     the order in which their oldest requests came.
//
// Threads: one for each model that can be loaded, which does all that is slow (reading files, starting and ending
// engines) and sleeps otherwise. What others call only moves entries of a table, but for Acquire, which may read the
// head of a file.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/model_backend.h"
#include "server/model_status.h"
#include "server/models_config.h"

namespace quire::server {

class ModelManager;
struct ModelEntry;

// Somebody's hold on a model: first perhaps a place in its queue, then the right to use it until the lease goes. To be
// used by one thread at a time.
class ModelLease {
 public:
  ModelLease();
  ModelLease(ModelLease&& other) noexcept;
  ModelLease& operator=(ModelLease&& other) noexcept;
  ~ModelLease();

  // False for a lease of nothing.
  explicit operator bool() const { return ticket_ != nullptr; }
  // Its model is not loaded yet.
  bool is_waiting() const;
  // When it does not wait any more: the model, or why it is not to be had.
  Result<ModelBackend*> backend() const;
  // The model's first name.
  const std::string& model_name() const;

  struct Ticket;  // the manager's side of it

 private:
  friend class ModelManager;
  explicit ModelLease(std::unique_ptr<Ticket> ticket);
  std::unique_ptr<Ticket> ticket_;
};

class ModelManager {
 public:
  // A server of one model, which has been loaded already but for its engine. `on_gone` is called when that is gone for
  // good. The pointers outlive the manager, here and below.
  ModelManager(ServedModel resident, const ServerConfig* server, const Clock* clock, std::function<void()> on_gone,
               Profiler* profiler = nullptr);
  // A server of several. The configuration is valid, and every spec has a name that no other has.
  ModelManager(const ModelsConfig& config, std::vector<ModelSpec> specs, const ServerConfig* server, const Clock* clock,
               Profiler* profiler = nullptr);
  // All leases have gone. Unloads everything.
  ~ModelManager();
  ModelManager(const ModelManager&) = delete;
  ModelManager& operator=(const ModelManager&) = delete;

  // Begins to load what is to be loaded at start, as far as all of it fits. An error when one of these models could
  // never be loaded.
  Result<> Start();

  // A lease, which may have to wait; then `wake` is called when that has ended, with a lock held: it must be short and
  // must not call the manager. kNotFound: no such model; kUnavailable: too many wait already; kInternal: it cannot be
  // loaded. `again`: though it could not be a moment ago.
  Result<ModelLease> Acquire(const std::string& name, std::function<void()> wake, bool again = false);
  // Takes no more requests for the model until it is loaded again, and unloads it when it has finished those that it
  // has, or after `drain_timeout`. Returns at once.
  Result<> Unload(const std::string& name);

  // The only model of a server of the first kind; null for the second.
  ModelBackend* resident() const { return resident_; }
  bool is_starting() const;  // a model that is to be loaded at start has neither been loaded nor failed
  std::vector<ModelStatus> List() const;
  std::optional<ModelStatus> Find(const std::string& name) const;
  const ModelsConfig& config() const { return config_; }
  const std::string& first_name() const;

  // One set of metrics holds those of all models.
  Metrics& metrics() const;
  // Asks all engines for newer statistics, and tells whether those that were asked have answered.
  using StatsCounts = std::vector<std::pair<const ModelEntry*, std::uint64_t>>;
  StatsCounts RequestStats() const;
  bool HasStatsAfter(const StatsCounts& before) const;

  // Forgets the cached prefixes of every loaded model.
  Result<> ResetPrefixCaches();

 private:
  friend class ModelLease;
  using Lock = std::unique_lock<std::mutex>;

  ModelEntry* FindEntry(std::string_view name) const;
  // What measuring says, or why the model can never be loaded.
  Result<ModelMemory> Measure(const ModelEntry& entry) const;
  ModelStatus StatusOf(const ModelEntry& entry) const;
  void Release(ModelLease::Ticket* ticket);

  // The life of one model, in its thread.
  void Keep(ModelEntry* entry);
  // From kLoading to kLoaded, or to what must be unloaded.
  void Load(ModelEntry* entry, Lock* lock);
  void WaitWhileLoaded(ModelEntry* entry, Lock* lock);
  // From kUnloading to kUnloaded.
  void Finish(ModelEntry* entry, Lock* lock);

  // The rest with mutex_ held.
  // Starts what can be started and makes room for the next; after whatever may have changed the answer.
  void Plan();
  // The model that is to be loaded next; null when nobody waits for one that is unloaded.
  ModelEntry* NextWanted() const;
  std::int64_t TakenBytes() const;
  // Whether the model can be loaded now. If not, but if it could without those that nothing uses, begins to unload as
  // many of them as it takes.
  bool MakeRoom(const ModelEntry& wanted);
  void BeginUnload(ModelEntry* entry, UnloadReason reason);
  void GrantWaiters(ModelEntry* entry);
  void FailWaiters(ModelEntry* entry, const Error& error);

  const ModelsConfig config_;
  const ServerConfig* server_;
  const Clock* clock_;
  Profiler* profiler_;                                // of the backends; or null
  std::vector<std::unique_ptr<ModelEntry>> entries_;  // fixed after construction; their contents are guarded
  ModelBackend* resident_ = nullptr;

  mutable std::mutex mutex_;  // guards everything below, and what model_manager.cc says of entries and tickets
  bool stop_ = false;
  std::uint64_t next_ticket_ = 1;
  int num_waiting_ = 0;
};

}  // namespace quire::server
