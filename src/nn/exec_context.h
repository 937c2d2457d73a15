// What a forward pass computes with: threads, kernels and scratch memory. Passed in, never global. One at a
// time may use it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "base/tracer.h"
#include "kernels/kernel_table.h"

namespace quire::nn {

// A stack of buffers for one forward pass, sized once for the largest step. Take() hands out 64-byte aligned
// memory until the Mark it was taken under is restored; contents are not initialised.
class Workspace {
 public:
  static Result<Workspace> Create(std::size_t bytes);

  template <typename T>
  T* Take(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
    CHECK(used_ + bytes <= memory_.size());
    T* taken = reinterpret_cast<T*>(memory_.data() + used_);
    used_ += bytes;
    return taken;
  }

  // Everything taken while a Scope lives is given back when it ends.
  class Scope {
   public:
    explicit Scope(Workspace* workspace) : workspace_(workspace), mark_(workspace->used_) {}
    ~Scope() { workspace_->used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace* workspace_;
    std::size_t mark_;
  };

  std::size_t size() const { return memory_.size(); }

 private:
  AlignedBuffer memory_;
  std::size_t used_ = 0;
};

struct ExecContext {
  ThreadPool* pool = nullptr;
  const kernels::KernelTable* kernels = nullptr;
  Workspace* workspace = nullptr;
  // Where operators show in a trace: a lane for each thread of the pool, the caller's first; or nothing.
  std::span<TraceLane* const> lanes = {};

  TraceLane* trace() const { return lanes.empty() ? nullptr : lanes.front(); }
};

// Runs `task` on all threads of the pool. What the others do of it shows as the caller's open span.
template <typename Task>
void RunOnPool(const ExecContext& context, Task&& task) {
  TraceLane* const own = context.trace();
  if (own == nullptr || !own->is_on()) return context.pool->Run(std::forward<Task>(task));
  const TraceLane::Open open = own->open();
  context.pool->Run([&](int thread) {
    const TraceSpan span(thread == 0 ? nullptr : context.lanes[static_cast<std::size_t>(thread)], open.label,
                         open.value);
    task(thread);
  });
}

}  // namespace quire::nn
