#include "engine/model_runner.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "sched/sequence.h"

namespace quire::engine {
namespace {

// Rows of logits that are held at a time. A step may want more (prompt logprobs of a long prompt): it takes them in
// turns. 64 rows of a vocabulary of 150,000 are 38 MB.
constexpr int kLogitRowsMax = 64;

int LogitRowsMax(const RunnerLimits& limits) {
  return std::min(kLogitRowsMax, limits.max_num_batched_tokens);
}

std::size_t FloatBytes(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns) * sizeof(float);
}

}  // namespace

std::size_t ModelRunner::WorkingBytes(const models::Model& model, const kernels::KernelTable& kernels, int num_threads,
                                      const RunnerLimits& limits) {
  const weights::ModelConfig& config = model.config();
  return model.WorkspaceBytes(kernels, num_threads, limits.max_num_batched_tokens, LogitRowsMax(limits)) +
         FloatBytes(limits.max_num_batched_tokens, config.hidden_size) +
         FloatBytes(LogitRowsMax(limits), config.vocab_size);
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::Create(const models::Model* model,
                                                         const kernels::KernelTable* kernels, ThreadPool* pool,
                                                         const RunnerLimits& limits) {
  CHECK(limits.max_num_batched_tokens >= 1 && limits.num_blocks >= 1);
  const weights::ModelConfig& config = model->config();
  const auto max_tokens = static_cast<std::size_t>(limits.max_num_batched_tokens);
  std::unique_ptr<ModelRunner> runner(new ModelRunner());
  runner->model_ = model;
  runner->limits_ = limits;
  runner->logit_rows_max_ = LogitRowsMax(limits);
  QUIRE_TRY(runner->kv_, nn::KvPool::Create(model->kv_layout(), limits.num_blocks));
  QUIRE_TRY(runner->workspace_,
            nn::Workspace::Create(model->WorkspaceBytes(*kernels, pool->num_threads(), limits.max_num_batched_tokens,
                                                        runner->logit_rows_max_)));
  QUIRE_TRY(runner->hidden_, AlignedBuffer::Allocate(FloatBytes(limits.max_num_batched_tokens, config.hidden_size)));
  QUIRE_TRY(runner->logits_, AlignedBuffer::Allocate(FloatBytes(runner->logit_rows_max_, config.vocab_size)));
  runner->context_ = {.pool = pool, .kernels = kernels, .workspace = &runner->workspace_};
  for (int thread = 0; thread < pool->num_threads(); ++thread) {
    runner->samplers_.emplace_back(kernels, config.vocab_size);
  }
  runner->tokens_.reserve(max_tokens);
  runner->slices_.reserve(max_tokens);
  runner->logit_rows_.reserve(max_tokens);
  runner->uses_.reserve(max_tokens);
  return runner;
}

void ModelRunner::CopyBlocks(const sched::BatchPlan& plan) {
  if (plan.copies.empty()) return;
  const TraceSpan span(context_.trace(), TraceLabel::kCopyBlocks, static_cast<std::int32_t>(plan.copies.size()));
  for (const sched::BlockCopy& copy : plan.copies) kv_.CopyBlock(copy.from, copy.to);
}

void ModelRunner::FillBatch(const sched::BatchPlan& plan, sched::StepResult* result) {
  tokens_.clear();
  slices_.clear();
  logit_rows_.clear();
  uses_.clear();
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const sched::ScheduledSequence& scheduled = plan.sequences[i];
    const sched::Sequence& sequence = *scheduled.sequence;
    sched::SequenceResult* out = &result->sequences[i];
    const auto token_begin = static_cast<std::int32_t>(tokens_.size());
    slices_.push_back({token_begin, scheduled.num_tokens, scheduled.first_position, scheduled.blocks});
    const auto slice = scheduled.tokens.subspan(static_cast<std::size_t>(scheduled.first_position),
                                                static_cast<std::size_t>(scheduled.num_tokens));
    tokens_.insert(tokens_.end(), slice.begin(), slice.end());

    if (scheduled.prompt_logprobs) {
      const int end = std::min(scheduled.first_position + scheduled.num_tokens, sequence.num_prompt_tokens() - 1);
      for (int position = scheduled.first_position; position < end; ++position) {
        const int index = position - scheduled.first_position;
        logit_rows_.push_back(token_begin + index);
        uses_.push_back({&scheduled, out, index, scheduled.tokens[static_cast<std::size_t>(position) + 1]});
      }
      out->prompt_logprobs.resize(static_cast<std::size_t>(std::max(0, end - scheduled.first_position)));
    }
    if (scheduled.samples) {
      logit_rows_.push_back(token_begin + scheduled.num_tokens - 1);
      uses_.push_back({&scheduled, out, -1, {}});
    }
  }
}

void ModelRunner::UseRow(const RowUse& use, std::span<float> logits, sample::Sampler* sampler) const {
  const sched::Sequence& sequence = *use.scheduled->sequence;
  const SamplingParams& params = sequence.sampling();
  if (use.prompt_index >= 0) {
    use.result->prompt_logprobs[static_cast<std::size_t>(use.prompt_index)] =
        sampler->Logprobs(logits, use.prompt_token, *params.prompt_logprobs);
    return;
  }
  const auto num_prompt = static_cast<std::size_t>(sequence.num_prompt_tokens());
  const auto output = use.scheduled->tokens.subspan(num_prompt);
  const sample::SampleRequest request{.params = &params,
                                      .choice = sequence.choice(),
                                      .prompt = use.scheduled->tokens.first(num_prompt),
                                      .output = output,
                                      .masked = sequence.masked(static_cast<int>(output.size()))};
  if (const int count = sequence.request().num_beam_candidates; count > 0) {
    sampler->Propose(logits, request, count, &use.result->candidates, &use.result->alternatives);
    return;
  }
  sample::Sampled sampled = sampler->Sample(logits, request);
  use.result->tokens.push_back(sampled.token);
  if (sampled.logprobs) use.result->logprobs.push_back(*std::move(sampled.logprobs));
}

Result<> ModelRunner::Run(const sched::BatchPlan& plan, sched::StepResult* result) {
  CHECK(plan.num_tokens <= limits_.max_num_batched_tokens);
  CHECK(result->sequences.size() == plan.sequences.size());
  CopyBlocks(plan);
  if (plan.sequences.empty()) return {};
  FillBatch(plan, result);
  auto* hidden = hidden_.as<float>().data();
  {
    const TraceSpan span(context_.trace(), TraceLabel::kForward, plan.num_tokens,
                         static_cast<std::int32_t>(slices_.size()));
    model_->ForwardHidden(context_, {tokens_, slices_, logit_rows_}, &kv_, hidden);
  }

  const auto hidden_size = static_cast<std::size_t>(model_->config().hidden_size);
  const auto vocab_size = static_cast<std::size_t>(model_->config().vocab_size);
  auto* logits = logits_.as<float>().data();
  const auto row_step = static_cast<std::size_t>(logit_rows_max_);
  for (std::size_t first = 0; first < uses_.size(); first += row_step) {
    const std::size_t count = std::min(row_step, uses_.size() - first);
    {
      const TraceSpan span(context_.trace(), TraceLabel::kLogits, static_cast<std::int32_t>(count));
      model_->Logits(context_, hidden + first * hidden_size, static_cast<int>(count), logits);
    }
    const TraceSpan span(context_.trace(), TraceLabel::kSample, static_cast<std::int32_t>(count));
    // Relaxed: the counter hands out rows only; the pool orders what the tasks read and write.
    std::atomic<std::size_t> next{0};
    const auto work = [&](int thread) {
      for (std::size_t row; (row = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
        UseRow(uses_[first + row], {logits + row * vocab_size, vocab_size},
               &samplers_[static_cast<std::size_t>(thread)]);
      }
    };
    if (count == 1) {
      work(0);
    } else {
      nn::RunOnPool(context_, work);
    }
  }
  return {};
}

}  // namespace quire::engine
