// Fork and join over a fixed set of threads, for data parallelism inside one step. The calling thread is the first
// of them, so a pool of one thread starts none. Workers spin for a few microseconds after a task (the next one of a
// forward pass comes at once) and then sleep. One thread calls Run; tasks must not call Run themselves.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace quire {

class ThreadPool {
 public:
  // `cpus` names the CPU of each thread, the caller's first; empty leaves the threads where the kernel puts them.
  explicit ThreadPool(int num_threads, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls task(thread_index) once on every thread, 0 ≤ thread_index < num_threads(), and returns when all are done.
  // What the tasks wrote is visible to the caller.
  template <typename Task>
  void Run(Task&& task) {
    using Callable = std::remove_reference_t<Task>;
    RunErased([](void* context, int thread) { (*static_cast<Callable*>(context))(thread); },
              const_cast<void*>(static_cast<const void*>(std::addressof(task))));
  }

  // Calls body(begin, end) for a split of [0, count) into one contiguous range a thread; boundaries are multiples of
  // `grain`. Empty ranges are not called.
  template <typename Body>
  void ParallelFor(std::int64_t count, std::int64_t grain, Body&& body) {
    const std::int64_t chunks = (count + grain - 1) / grain;
    if (chunks <= 1 || num_threads_ == 1) {
      if (count > 0) body(std::int64_t{0}, count);
      return;
    }
    Run([&](int thread) {
      const std::int64_t begin = chunks * thread / num_threads_ * grain;
      const std::int64_t end = std::min(count, chunks * (thread + 1) / num_threads_ * grain);
      if (begin < end) body(begin, end);
    });
  }

 private:
  using ErasedTask = void (*)(void* context, int thread);
  void RunErased(ErasedTask task, void* context);
  void WorkerLoop(int thread);

  const int num_threads_;
  ErasedTask task_ = nullptr;  // written before generation_ is released, read after it is acquired
  void* context_ = nullptr;    // likewise
  alignas(64) std::atomic<std::uint64_t> generation_{0};  // one more for every task; release publishes the task
  alignas(64) std::atomic<int> pending_{0};               // workers still busy; release publishes their writes
  std::mutex mutex_;  // guards the sleep of the workers: none may miss a generation between look and wait
  std::condition_variable wake_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace quire
