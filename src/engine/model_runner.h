// BatchPlan → ForwardBatch → logits → tokens. The runner that a model stands behind.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/runner.h"
#include "models/model.h"
#include "nn/exec_context.h"
#include "nn/kv_pool.h"
#include "sample/sampler.h"

namespace quire::engine {

// The largest step that a runner has room for.
struct RunnerLimits {
  int max_num_batched_tokens = 0;  // tokens of one step
  int num_blocks = 0;              // of the KV pool, and of what lies behind it
};

// All memory is taken by Create(); a step allocates only what it returns. The engine's thread calls Run(); the rows of
// a step are sampled by all threads of the pool.
class ModelRunner final : public Runner {
 public:
  // What is pointed to outlives the runner; the model may serve several.
  static Result<std::unique_ptr<ModelRunner>> Create(const models::Model* model, const kernels::KernelTable* kernels,
                                                     ThreadPool* pool, const RunnerLimits& limits);

  // What it does shows in these lanes, one for each thread of the pool; they outlive the runner.
  void Trace(std::vector<TraceLane*> lanes) {
    lanes_ = std::move(lanes);
    context_.lanes = lanes_;
  }

  Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) override;
  std::span<std::byte> BlockBytes(BlockId block) override { return kv_.BlockBytes(block); }

  // Bytes that Create() takes besides the KV pool.
  static std::size_t WorkingBytes(const models::Model& model, const kernels::KernelTable& kernels, int num_threads,
                                  const RunnerLimits& limits);

 private:
  // What becomes of one row of logits.
  struct RowUse {
    const sched::ScheduledSequence* scheduled = nullptr;
    sched::SequenceResult* result = nullptr;
    // Index in prompt_logprobs and the prompt token that stands there; −1: the row samples.
    int prompt_index = -1;
    TokenId prompt_token;
  };

  ModelRunner() = default;
  void CopyBlocks(const sched::BatchPlan& plan);
  void FillBatch(const sched::BatchPlan& plan, sched::StepResult* result);
  void UseRow(const RowUse& use, std::span<float> logits, sample::Sampler* sampler) const;

  const models::Model* model_ = nullptr;
  RunnerLimits limits_;
  nn::KvPool kv_;
  nn::Workspace workspace_;
  std::vector<TraceLane*> lanes_;
  nn::ExecContext context_;
  AlignedBuffer hidden_;                   // [max_num_batched_tokens, hidden_size]
  AlignedBuffer logits_;                   // [logit_rows_max_, vocab_size]
  int logit_rows_max_ = 0;                 // rows whose logits are held at a time
  std::vector<sample::Sampler> samplers_;  // one for each thread

  // The batch of the current step; capacity for the largest one.
  std::vector<TokenId> tokens_;
  std::vector<models::SequenceSlice> slices_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<RowUse> uses_;  // of each of logit_rows_
};

}  // namespace quire::engine
