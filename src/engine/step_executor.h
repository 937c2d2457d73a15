// Where a step is computed: here, or beside the engine's thread while that plans the next one.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "engine/runner.h"
#include "sched/batch_plan.h"

namespace quire::engine {

// Runs a plan here and now, and says in `result` when.
Result<> RunTimed(const sched::BatchPlan& plan, Runner* runner, const Clock& clock, sched::StepResult* result);

// One step at a time: Launch and Wait alternate, both on the engine's thread.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;

  // Begins to run the plan; what is pointed to stays as it is until Wait() returns.
  virtual void Launch(const sched::BatchPlan* plan, sched::StepResult* result) = 0;
  // What Runner::Run returned. `result` has it all, and when it was over.
  virtual Result<> Wait() = 0;
};

// A thread of its own, which is the first one of the runner's pool in each step.
class StepThread final : public StepExecutor {
 public:
  StepThread(Runner* runner, const Clock* clock);
  ~StepThread() override;

  void Launch(const sched::BatchPlan* plan, sched::StepResult* result) override;
  Result<> Wait() override;

 private:
  void Loop();

  Runner* const runner_;
  const Clock* const clock_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  const sched::BatchPlan* plan_ = nullptr;  // null: nothing to do
  sched::StepResult* result_ = nullptr;
  Result<> ran_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire::engine
