#include "server/model_manager.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/utf8.h"

namespace quire::server {
namespace {

// How long a model that could not be loaded is not tried again: each attempt may cost others their place.
constexpr std::chrono::seconds kRetryPause{10};
constexpr int kDefaultLength = 1 << 20;  // tokens; for the buckets of a model that is not loaded yet

int BucketLength(const ServedModel& model) {
  return model.max_model_len > 0 ? model.max_model_len : kDefaultLength;
}

std::string Mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

// One model. What is not const is guarded by the manager's mutex; `metrics` guard themselves.
struct ModelEntry {
  ModelEntry(ModelSpec model_spec, int bucket_length, const Metrics* others)
      : spec(std::move(model_spec)), metrics(spec.names.front(), bucket_length, others) {}

  const std::string& name() const { return spec.names.front(); }
  // Its memory will be free, sooner or later.
  bool is_leaving() const { return state == ModelState::kUnloading || unload.has_value(); }
  bool is_wanted() const { return start_wanted || !waiters.empty(); }

  const ModelSpec spec;
  Metrics metrics;

  ModelState state = ModelState::kUnloaded;
  std::unique_ptr<ModelBackend> backend;                 // from the middle of kLoading until the end of kUnloading
  ModelMemory memory;                                    // as measured, or as the engine says; taken unless kUnloaded
  std::int64_t weight_bytes_seen = 0;                    // what the engine has said last
  int num_users = 0;                                     // granted leases
  std::map<std::uint64_t, ModelLease::Ticket*> waiters;  // by number: the first has waited longest
  bool start_wanted = false;                             // to be loaded though nobody waits
  std::optional<UnloadReason> unload;                    // why it must go; nothing: it need not
  TimePoint last_used{};
  std::optional<Error> failure;  // of its last load, or of its engine's end
  TimePoint failed_at{};
  std::uint64_t num_loads = 0, num_failures = 0;
  std::array<std::uint64_t, kUnloadReasons.size()> num_unloads{};

  std::condition_variable changed;  // wakes its thread
  std::thread thread;
};

// The other side of a lease; guarded by the manager's mutex but for the first three, which never change.
struct ModelLease::Ticket {
  enum class State { kWaiting, kGranted, kFailed };

  ModelManager* manager;
  ModelEntry* entry;
  std::function<void()> wake;
  std::uint64_t number = 0;  // of the waiting one
  State state = State::kWaiting;
  Error error = {};  // of the failed one
};

// ---- Leases --------------------------------------------------------------------------------------------------------

ModelLease::ModelLease() = default;
ModelLease::ModelLease(std::unique_ptr<Ticket> ticket) : ticket_(std::move(ticket)) {}
ModelLease::ModelLease(ModelLease&& other) noexcept = default;

ModelLease& ModelLease::operator=(ModelLease&& other) noexcept {
  std::swap(ticket_, other.ticket_);
  return *this;
}

ModelLease::~ModelLease() {
  if (ticket_ != nullptr) ticket_->manager->Release(ticket_.get());
}

bool ModelLease::is_waiting() const {
  if (ticket_ == nullptr) return false;
  const std::lock_guard lock(ticket_->manager->mutex_);
  return ticket_->state == Ticket::State::kWaiting;
}

Result<ModelBackend*> ModelLease::backend() const {
  const std::lock_guard lock(ticket_->manager->mutex_);
  switch (ticket_->state) {
    case Ticket::State::kGranted:
      return ticket_->entry->backend.get();
    case Ticket::State::kFailed:
      return std::unexpected(ticket_->error);
    case Ticket::State::kWaiting:
      break;
  }
  return Fail(ErrorCode::kUnavailable, "the model {} is not loaded yet", ticket_->entry->name());
}

const std::string& ModelLease::model_name() const {
  return ticket_->entry->name();
}

void ModelManager::Release(ModelLease::Ticket* ticket) {
  const std::lock_guard lock(mutex_);
  ModelEntry* entry = ticket->entry;
  switch (ticket->state) {
    case ModelLease::Ticket::State::kWaiting:
      entry->waiters.erase(ticket->number);
      --num_waiting_;
      break;
    case ModelLease::Ticket::State::kGranted:
      entry->last_used = clock_->Now();
      if (--entry->num_users == 0) entry->changed.notify_all();
      break;
    case ModelLease::Ticket::State::kFailed:
      return;
  }
  Plan();
}

// ---- Callers -------------------------------------------------------------------------------------------------------

ModelManager::ModelManager(ServedModel resident, const ServerConfig* server, const Clock* clock,
                           std::function<void()> on_gone, Profiler* profiler)
    : server_(server), clock_(clock), profiler_(profiler) {
  ModelSpec spec{.names = resident.names, .load_at_start = true, .measure = {}, .load = {}};
  entries_.push_back(std::make_unique<ModelEntry>(std::move(spec), BucketLength(resident), nullptr));
  ModelEntry* entry = entries_.front().get();
  entry->state = ModelState::kLoaded;
  // The callback may come before the backend is here: what it asks is remembered by the backend itself.
  entry->backend = std::make_unique<ModelBackend>(
      std::move(resident), server, &entry->metrics, clock,
      [on_gone = std::move(on_gone)](bool is_gone) {
        if (is_gone) on_gone();
      },
      profiler);
  resident_ = entry->backend.get();
}

ModelManager::ModelManager(const ModelsConfig& config, std::vector<ModelSpec> specs, const ServerConfig* server,
                           const Clock* clock, Profiler* profiler)
    : config_(config), server_(server), clock_(clock), profiler_(profiler) {
  for (ModelSpec& spec : specs) {
    const Metrics* others = entries_.empty() ? nullptr : &entries_.front()->metrics;
    entries_.push_back(std::make_unique<ModelEntry>(std::move(spec), kDefaultLength, others));
  }
  for (const auto& entry : entries_) entry->thread = std::thread([this, raw = entry.get()] { Keep(raw); });
}

ModelManager::~ModelManager() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& entry : entries_) entry->changed.notify_all();
  }
  for (const auto& entry : entries_) {
    if (entry->thread.joinable()) entry->thread.join();
  }
}

Result<> ModelManager::Start() {
  std::int64_t bytes = 0;
  int count = 0;
  for (const auto& entry : entries_) {
    if (resident_ != nullptr || !entry->spec.load_at_start) continue;
    QUIRE_TRY(const ModelMemory memory, Measure(*entry));
    if (count == config_.loaded_max || bytes + memory.total() > config_.memory_bytes) {
      spdlog::info("model {}: there is no room for it now; it is loaded at its first request", entry->name());
      continue;
    }
    bytes += memory.total();
    ++count;
    const std::lock_guard lock(mutex_);
    entry->memory = memory;
    entry->start_wanted = true;
  }
  const std::lock_guard lock(mutex_);
  Plan();
  return {};
}

ModelEntry* ModelManager::FindEntry(std::string_view name) const {
  for (const auto& entry : entries_) {
    if (std::ranges::find(entry->spec.names, name) != entry->spec.names.end()) return entry.get();
  }
  return nullptr;
}

namespace {

Error NoSuchModel(const std::string& name) {
  return {ErrorCode::kNotFound, fmt::format("The model `{}` does not exist.", SanitizeUtf8(name.substr(0, 200))),
          "model"};
}

Error CannotLoad(const std::string& name, const std::string& why) {
  return {ErrorCode::kInternal, fmt::format("the model {} cannot be loaded: {}", name, why), "model"};
}

}  // namespace

Result<ModelMemory> ModelManager::Measure(const ModelEntry& entry) const {
  Result<ModelMemory> memory = entry.spec.measure();
  if (!memory) return std::unexpected(CannotLoad(entry.name(), memory.error().message));
  {
    const std::lock_guard lock(mutex_);
    memory->weight_bytes = std::max(memory->weight_bytes, entry.weight_bytes_seen);
  }
  if (memory->total() <= config_.memory_bytes) return memory;
  return std::unexpected(CannotLoad(
      entry.name(),
      fmt::format("its weights take {} and its keys and values {}, but all models together may take {}",
                  Mebibytes(memory->weight_bytes), Mebibytes(memory->kv_bytes), Mebibytes(config_.memory_bytes))));
}

Result<ModelLease> ModelManager::Acquire(const std::string& name, std::function<void()> wake, bool again) {
  using Ticket = ModelLease::Ticket;
  ModelEntry* entry = FindEntry(name);
  if (entry == nullptr) return std::unexpected(NoSuchModel(name));
  auto ticket = std::make_unique<Ticket>(Ticket{.manager = this, .entry = entry, .wake = std::move(wake)});
  Lock lock(mutex_);
  for (bool measured = false;; measured = true) {
    if (entry->state == ModelState::kLoaded) {
      ticket->state = Ticket::State::kGranted;
      ++entry->num_users;
      return ModelLease(std::move(ticket));
    }
    if (stop_) return Fail(ErrorCode::kUnavailable, "the server is shutting down");
    if (!again && entry->failure && clock_->Now() - entry->failed_at < kRetryPause) {
      return std::unexpected(*entry->failure);
    }
    if (num_waiting_ >= config_.waiting_max) {
      return Fail(ErrorCode::kUnavailable, "{} requests wait for models to be loaded, which is the limit; try again",
                  num_waiting_);
    }
    if (measured || entry->state != ModelState::kUnloaded) break;
    lock.unlock();
    QUIRE_TRY(const ModelMemory memory, Measure(*entry));
    lock.lock();
    if (entry->state == ModelState::kUnloaded) entry->memory = memory;
  }
  ticket->number = next_ticket_++;
  entry->waiters.emplace(ticket->number, ticket.get());
  ++num_waiting_;
  Plan();
  return ModelLease(std::move(ticket));
}

Result<> ModelManager::Unload(const std::string& name) {
  ModelEntry* entry = FindEntry(name);
  if (entry == nullptr) return std::unexpected(NoSuchModel(name));
  if (resident_ != nullptr) return FailParam("model", "the only model of this server cannot be unloaded");
  const std::lock_guard lock(mutex_);
  if (entry->state == ModelState::kLoading || entry->state == ModelState::kLoaded) {
    BeginUnload(entry, UnloadReason::kAsked);
  }
  return {};
}

bool ModelManager::is_starting() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_, [](const auto& entry) { return entry->start_wanted; });
}

ModelStatus ModelManager::StatusOf(const ModelEntry& entry) const {
  ModelStatus status{.names = entry.spec.names,
                     .state = entry.state,
                     .memory_bytes = entry.state == ModelState::kUnloaded ? 0 : entry.memory.total(),
                     .num_requests = entry.num_users,
                     .num_waiting = static_cast<int>(entry.waiters.size()),
                     .error = entry.failure ? entry.failure->message : "",
                     .num_loads = entry.num_loads,
                     .num_failures = entry.num_failures,
                     .num_unloads = entry.num_unloads};
  if (entry.backend == nullptr) return status;
  status.is_ready = entry.state == ModelState::kLoaded && entry.backend->is_ready();
  const auto info = entry.backend->info();
  status.max_model_len = entry.backend->model().max_model_len;
  if (info != nullptr) {
    status.vocab_size = info->vocab_size;
    status.max_model_len =
        status.max_model_len > 0 ? std::min(status.max_model_len, info->max_model_len) : info->max_model_len;
  } else if (resident_ != nullptr) {
    status.state = ModelState::kLoading;
  }
  return status;
}

std::vector<ModelStatus> ModelManager::List() const {
  std::vector<ModelStatus> list;
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) list.push_back(StatusOf(*entry));
  return list;
}

std::optional<ModelStatus> ModelManager::Find(const std::string& name) const {
  const ModelEntry* entry = FindEntry(name);
  if (entry == nullptr) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return StatusOf(*entry);
}

Metrics& ModelManager::metrics() const {
  return entries_.front()->metrics;
}

const std::string& ModelManager::first_name() const {
  return entries_.front()->name();
}

ModelManager::StatsCounts ModelManager::RequestStats() const {
  StatsCounts counts;
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) {
    if (entry->state != ModelState::kLoaded) continue;
    counts.emplace_back(entry.get(), entry->backend->monitor().num_stats());
    entry->backend->monitor().RequestStats();
  }
  return counts;
}

bool ModelManager::HasStatsAfter(const StatsCounts& before) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(before, [](const auto& count) {
    const ModelEntry& entry = *count.first;
    return entry.state != ModelState::kLoaded || entry.backend->monitor().num_stats() != count.second;
  });
}

Result<> ModelManager::ResetPrefixCaches() {
  std::vector<ModelLease> leases;
  for (const auto& entry : entries_) {
    const std::lock_guard lock(mutex_);
    if (entry->state != ModelState::kLoaded) continue;
    using Ticket = ModelLease::Ticket;
    ++entry->num_users;
    leases.push_back(ModelLease(std::make_unique<Ticket>(
        Ticket{.manager = this, .entry = entry.get(), .wake = {}, .state = Ticket::State::kGranted})));
  }
  Result<> outcome;
  for (const ModelLease& lease : leases) {
    QUIRE_TRY(ModelBackend* const backend, lease.backend());
    if (Result<> reset = backend->engine().ResetPrefixCache(); !reset) outcome = std::move(reset);
  }
  return outcome;
}

// ---- The life of a model -------------------------------------------------------------------------------------------

void ModelManager::Keep(ModelEntry* entry) {
  Lock lock(mutex_);
  while (true) {
    entry->changed.wait(lock, [&] { return stop_ || entry->state == ModelState::kLoading; });
    if (entry->state != ModelState::kLoading) return;
    Load(entry, &lock);
    if (entry->state == ModelState::kLoaded) WaitWhileLoaded(entry, &lock);
    Finish(entry, &lock);
  }
}

void ModelManager::Load(ModelEntry* entry, Lock* lock) {
  spdlog::info("model {}: loading, {} of weights and {} of keys and values", entry->name(),
               Mebibytes(entry->memory.weight_bytes), Mebibytes(entry->memory.kv_bytes));
  const auto on_change = [this, entry](bool) {
    // Whoever looks at the backend and then waits does so with the lock held.
    const std::lock_guard changing(mutex_);
    entry->changed.notify_all();
  };
  lock->unlock();
  Result<ServedModel> model = entry->spec.load();
  std::unique_ptr<ModelBackend> backend;
  if (model) {
    model->names = entry->spec.names;
    backend = std::make_unique<ModelBackend>(*std::move(model), server_, &entry->metrics, clock_, on_change, profiler_);
  }
  lock->lock();
  entry->backend = std::move(backend);
  std::optional<Error> failure;
  if (!model) {
    failure = CannotLoad(entry->name(), model.error().message);
  } else {
    ModelBackend& loading = *entry->backend;
    entry->changed.wait(*lock, [&] { return stop_ || entry->unload || loading.engine_gone() || loading.is_ready(); });
    if (const auto info = loading.info(); info != nullptr) {
      entry->memory.weight_bytes = info->weight_bytes;
      entry->weight_bytes_seen = info->weight_bytes;
    }
    if (loading.engine_gone()) {
      const auto info = loading.engine().Info();
      failure = CannotLoad(entry->name(), info ? "its engine is gone" : info.error().message);
    } else if (!loading.is_ready() && !entry->unload && !stop_) {
      failure = CannotLoad(entry->name(), "its engine died when it had just become ready");
    } else if (TakenBytes() > config_.memory_bytes) {
      failure = CannotLoad(entry->name(), fmt::format("its weights take {}, more than there is room for",
                                                      Mebibytes(entry->memory.weight_bytes)));
    }
  }
  entry->start_wanted = false;
  if (failure) {
    spdlog::error("{}", failure->message);
    ++entry->num_failures;
    entry->failure = failure;
    entry->failed_at = clock_->Now();
    return FailWaiters(entry, *failure);
  }
  if (stop_ || entry->unload) {
    return FailWaiters(
        entry, {ErrorCode::kUnavailable, fmt::format("the model {} was unloaded before it was ready", entry->name())});
  }
  entry->failure.reset();
  entry->state = ModelState::kLoaded;
  entry->last_used = clock_->Now();
  ++entry->num_loads;
  spdlog::info("model {}: ready, {} of weights", entry->name(), Mebibytes(entry->memory.weight_bytes));
  GrantWaiters(entry);
  Plan();
}

void ModelManager::WaitWhileLoaded(ModelEntry* entry, Lock* lock) {
  while (!stop_ && !entry->unload) {
    if (entry->backend->engine_gone()) {
      const auto info = entry->backend->engine().Info();
      entry->failure = CannotLoad(entry->name(), info ? "its engine is gone" : info.error().message);
      entry->failed_at = clock_->Now();
      spdlog::error("{}", entry->failure->message);
      BeginUnload(entry, UnloadReason::kDied);
    } else if (config_.idle_timeout.count() == 0 || entry->num_users > 0) {
      entry->changed.wait(*lock);
    } else {
      const Duration left = entry->last_used + config_.idle_timeout - clock_->Now();
      if (left <= Duration::zero()) {
        BeginUnload(entry, UnloadReason::kIdle);
      } else {
        entry->changed.wait_for(*lock, left);
      }
    }
  }
}

void ModelManager::Finish(ModelEntry* entry, Lock* lock) {
  entry->state = ModelState::kUnloading;
  const auto is_unused = [&] { return entry->num_users == 0; };
  if (!stop_) entry->changed.wait_for(*lock, server_->drain_timeout, [&] { return stop_ || is_unused(); });
  if (!is_unused()) {
    entry->backend->Abandon(ApiError{.status = 503, .message = "the model was unloaded", .param = {}, .code = {}});
    entry->changed.wait(*lock, is_unused);
  }
  std::unique_ptr<ModelBackend> backend = std::move(entry->backend);
  lock->unlock();
  backend.reset();
  entry->metrics.Update({});
  lock->lock();
  if (entry->unload) {
    spdlog::info("model {}: unloaded ({})", entry->name(), UnloadReasonName(*entry->unload));
    ++entry->num_unloads[static_cast<std::size_t>(*entry->unload)];
  }
  entry->unload.reset();
  entry->state = ModelState::kUnloaded;
  Plan();
}

// ---- Who comes next ------------------------------------------------------------------------------------------------

void ModelManager::Plan() {
  if (stop_) return;
  while (ModelEntry* next = NextWanted()) {
    if (!MakeRoom(*next)) return;
    next->state = ModelState::kLoading;
    next->changed.notify_all();
  }
}

ModelEntry* ModelManager::NextWanted() const {
  ModelEntry* next = nullptr;
  const auto number = [](const ModelEntry& entry) { return entry.start_wanted ? 0 : entry.waiters.begin()->first; };
  for (const auto& entry : entries_) {
    if (entry->state != ModelState::kUnloaded || !entry->is_wanted()) continue;
    if (next == nullptr || number(*entry) < number(*next)) next = entry.get();
  }
  return next;
}

std::int64_t ModelManager::TakenBytes() const {
  std::int64_t bytes = 0;
  for (const auto& entry : entries_) {
    if (entry->state != ModelState::kUnloaded) bytes += entry->memory.total();
  }
  return bytes;
}

bool ModelManager::MakeRoom(const ModelEntry& wanted) {
  std::int64_t excess_bytes = TakenBytes() + wanted.memory.total() - config_.memory_bytes;
  std::int64_t excess_models = 1 - config_.loaded_max;
  for (const auto& entry : entries_) excess_models += entry->state != ModelState::kUnloaded ? 1 : 0;
  if (excess_bytes <= 0 && excess_models <= 0) return true;
  const auto leaves = [&](const ModelEntry& entry) {
    excess_bytes -= entry.memory.total();
    --excess_models;
  };
  std::vector<ModelEntry*> idle;
  for (const auto& entry : entries_) {
    if (entry->is_leaving()) {
      leaves(*entry);
    } else if (entry->state == ModelState::kLoaded && entry->num_users == 0) {
      idle.push_back(entry.get());
    }
  }
  std::ranges::sort(idle, {}, &ModelEntry::last_used);
  std::size_t num_evicted = 0;
  while ((excess_bytes > 0 || excess_models > 0) && num_evicted < idle.size()) leaves(*idle[num_evicted++]);
  // Not even with all of them gone: then they may as well stay until something else has finished.
  if (excess_bytes > 0 || excess_models > 0) return false;
  for (std::size_t i = 0; i < num_evicted; ++i) BeginUnload(idle[i], UnloadReason::kEvicted);
  return false;
}

void ModelManager::BeginUnload(ModelEntry* entry, UnloadReason reason) {
  if (entry->unload) return;
  entry->unload = reason;
  if (entry->state == ModelState::kLoaded) entry->state = ModelState::kUnloading;
  entry->changed.notify_all();
}

void ModelManager::GrantWaiters(ModelEntry* entry) {
  for (const auto& [number, ticket] : entry->waiters) {
    ticket->state = ModelLease::Ticket::State::kGranted;
    ++entry->num_users;
    if (ticket->wake) ticket->wake();
  }
  num_waiting_ -= static_cast<int>(entry->waiters.size());
  entry->waiters.clear();
}

void ModelManager::FailWaiters(ModelEntry* entry, const Error& error) {
  for (const auto& [number, ticket] : entry->waiters) {
    ticket->state = ModelLease::Ticket::State::kFailed;
    ticket->error = error;
    if (ticket->wake) ticket->wake();
  }
  num_waiting_ -= static_cast<int>(entry->waiters.size());
  entry->waiters.clear();
}

}  // namespace quire::server
