#include "engine/step_executor.h"

#include <utility>

#include "base/check.h"

namespace quire::engine {

Result<> RunTimed(const sched::BatchPlan& plan, Runner* runner, const Clock& clock, sched::StepResult* result) {
  result->began = clock.Now();
  Result<> ran = runner->Run(plan, result);
  result->ended = clock.Now();
  return ran;
}

StepThread::StepThread(Runner* runner, const Clock* clock) : runner_(runner), clock_(clock) {
  thread_ = std::thread([this] { Loop(); });
}

StepThread::~StepThread() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StepThread::Launch(const sched::BatchPlan* plan, sched::StepResult* result) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(plan_ == nullptr && plan != nullptr);
    plan_ = plan;
    result_ = result;
  }
  changed_.notify_all();
}

Result<> StepThread::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return plan_ == nullptr; });
  return std::exchange(ran_, {});
}

void StepThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stops_ || plan_ != nullptr; });
    if (plan_ == nullptr) return;
    const sched::BatchPlan* const plan = plan_;
    sched::StepResult* const result = result_;
    lock.unlock();
    Result<> ran = RunTimed(*plan, runner_, *clock_, result);
    lock.lock();
    ran_ = std::move(ran);
    plan_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace quire::engine
