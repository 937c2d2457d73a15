#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire {
namespace {

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Long enough to bridge the serial work between two operators of a forward pass, short enough that an idle engine
// costs nothing and that a machine with more threads than CPUs gives way.
constexpr auto kSpin = std::chrono::microseconds(50);

// Spins until `done()` holds or the time is up; tells which.
template <typename Done>
bool SpinUntil(Done done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

// Binding is advice: in a container it may be refused, and then the thread runs where the kernel lets it.
void PinTo(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  (void)pthread_setaffinity_np(thread, sizeof set, &set);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, std::vector<int> cpus) : num_threads_(num_threads) {
  CHECK(num_threads >= 1);
  CHECK(cpus.empty() || cpus.size() == static_cast<std::size_t>(num_threads));
  if (!cpus.empty()) PinTo(pthread_self(), cpus[0]);
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
    if (!cpus.empty()) PinTo(workers_.back().native_handle(), cpus[thread]);
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunErased(ErasedTask task, void* context) {
  if (num_threads_ == 1) return task(context, 0);
  task_ = task;
  context_ = context;
  pending_.store(num_threads_ - 1, std::memory_order_relaxed);
  // Sequentially consistent, as the two accesses in WorkerLoop: either this thread sees the sleeper, or the sleeper
  // sees the new generation before it waits.
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    {
      const std::lock_guard lock(mutex_);
    }
    wake_.notify_all();
  }
  task(context, 0);
  const auto done = [&] { return pending_.load(std::memory_order_acquire) == 0; };
  while (!SpinUntil(done)) std::this_thread::yield();
}

void ThreadPool::WorkerLoop(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    const auto changed = [&] { return generation_.load(std::memory_order_seq_cst) != seen; };
    if (!SpinUntil(changed)) {
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, changed);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }
    ++seen;  // Run waits for every worker, so generations are never skipped
    if (stop_.load(std::memory_order_relaxed)) return;
    task_(context_, thread);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace quire
