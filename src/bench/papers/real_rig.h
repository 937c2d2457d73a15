// The experiments' rig with a real model, on the clock.
#pragma once

#include <functional>
#include <utility>

#include "bench/papers/paper.h"
#include "engine/loader.h"

namespace quire::bench {

class RealRig final : public PaperRig {
 public:
  // What is loaded outlives this. `on_run`, if any, hears of each run before it starts: how many there were before it.
  explicit RealRig(const engine::LoadedModel* loaded, std::function<void(int)> on_run = {})
      : loaded_(loaded), on_run_(std::move(on_run)) {}

  sched::SchedulerConfig BaseConfig() const override;
  // A short run before it, of the same configuration, warms up and is not counted.
  Result<ReplaySamples> Run(const sched::SchedulerConfig& config, const RequestTrace& trace,
                            const RunOptions& options) override;

 private:
  const engine::LoadedModel* const loaded_;
  const std::function<void(int)> on_run_;
  int num_runs_ = 0;
};

}  // namespace quire::bench
