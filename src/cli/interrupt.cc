#include "cli/interrupt.h"

#include <signal.h>

#include <atomic>

namespace quire::cli {
namespace {

// A signal handler can reach nothing else. Lock-free, and ordered with nothing.
std::atomic<bool> interrupt_seen{false};
static_assert(std::atomic<bool>::is_always_lock_free);
struct sigaction action_before;

}  // namespace

InterruptCatcher::InterruptCatcher() {
  Clear();
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupt_seen.store(true, std::memory_order_relaxed); };
  // Without SA_RESTART: a read of the terminal returns.
  ::sigaction(SIGINT, &action, &action_before);
}

InterruptCatcher::~InterruptCatcher() {
  ::sigaction(SIGINT, &action_before, nullptr);
}

bool InterruptCatcher::interrupted() const {
  return interrupt_seen.load(std::memory_order_relaxed);
}

void InterruptCatcher::Clear() {
  interrupt_seen.store(false, std::memory_order_relaxed);
}

}  // namespace quire::cli
