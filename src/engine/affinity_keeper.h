// A ThreadPool binds the thread that makes it to a CPU; whoever makes a pool for another thread's use, or for a while,
// gives the caller its freedom back.
#pragma once

#include <sched.h>

namespace quire::engine {

// Remembers the CPUs that the calling thread may use, and restores them at its end, on the same thread.
class AffinityKeeper {
 public:
  AffinityKeeper() { saved_ = ::sched_getaffinity(0, sizeof mask_, &mask_) == 0; }
  ~AffinityKeeper() {
    if (saved_) ::sched_setaffinity(0, sizeof mask_, &mask_);
  }
  AffinityKeeper(const AffinityKeeper&) = delete;
  AffinityKeeper& operator=(const AffinityKeeper&) = delete;

 private:
  cpu_set_t mask_;
  bool saved_ = false;
};

}  // namespace quire::engine
