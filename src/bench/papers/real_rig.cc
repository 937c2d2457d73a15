#include "bench/papers/real_rig.h"

#include <algorithm>
#include <memory>

#include "engine/model_runner.h"

namespace quire::bench {
namespace {

constexpr std::size_t kWarmupRequests = 4;
constexpr int kWarmupTokens = 8;

}  // namespace

sched::SchedulerConfig RealRig::BaseConfig() const {
  sched::SchedulerConfig config;
  config.vocab_size = loaded_->model->config().vocab_size;
  config.block_size = kernels::KvLayout::block_size;
  config.max_model_len = engine::ModelLengthDefault(loaded_->model->config());
  return config;
}

Result<ReplaySamples> RealRig::Run(const sched::SchedulerConfig& config, const RequestTrace& trace,
                                   const RunOptions& options) {
  if (on_run_) on_run_(num_runs_++);
  engine::EngineConfig engine{.scheduler = config, .eos_token_ids = {}};
  engine.async_scheduling = options.async_scheduling;
  QUIRE_TRY_VOID(engine.Validate());
  ThreadPool fewer(options.spares_a_core ? std::max(1, loaded_->pool->num_threads() - 1) : 1);
  ThreadPool* const pool = options.spares_a_core ? &fewer : loaded_->pool.get();
  QUIRE_TRY(const std::unique_ptr<engine::ModelRunner> runner,
            engine::ModelRunner::Create(
                loaded_->model.get(), loaded_->kernels, pool,
                {.max_num_batched_tokens = config.max_num_batched_tokens, .num_blocks = config.num_blocks}));
  SteadyTimeline timeline;
  RequestTrace warmup = trace;
  warmup.requests.resize(std::min(warmup.requests.size(), kWarmupRequests));
  for (TraceRequest& request : warmup.requests) {
    request.num_output_tokens = std::min(request.num_output_tokens, kWarmupTokens);
  }
  QUIRE_TRY_VOID(Replay(engine, runner.get(), &timeline, warmup.requests, options.replay));
  return Replay(engine, runner.get(), &timeline, trace.requests, options.replay);
}

}  // namespace quire::bench
