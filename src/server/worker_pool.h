// A few threads for the work of the front end that takes longer than an I/O thread may be away: parsing
// bodies, rendering templates, tokenising.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/tracer.h"

namespace quire::server {

class WorkerPool {
 public:
  WorkerPool(int num_threads, std::size_t queue_max, Tracer* tracer) : queue_(queue_max) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this, lane = tracer->Lane(fmt::format("worker {}", i))] {
        while (auto job = queue_.Pop()) {
          const TraceSpan span(lane, TraceLabel::kHttpJob);
          (*job)();
        }
      });
    }
  }
  // Jobs that were posted are done first.
  ~WorkerPool() { Stop(); }

  // False when too many jobs wait.
  [[nodiscard]] bool Post(std::function<void()> job) { return queue_.TryPush(std::move(job)); }

  void Stop() {
    queue_.Close();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace quire::server
