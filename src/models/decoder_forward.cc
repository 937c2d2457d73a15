// One step: a flat batch of tokens through all layers. Every operator computes a row from that row alone,
// whatever the batch; threads share rows or outputs.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "models/decoder.h"

namespace quire::models {
namespace {

// The MLP runs in chunks of rows: its activations are the largest buffers of a step, and at this many rows
// the weights are already read at full compute intensity.
constexpr std::int64_t kMlpRows = 512;

// Takes the same buffers as a Workspace would, and counts.
class CountingTaker {
 public:
  template <typename T>
  T* Take(std::size_t count) {
    bytes_ += (count * sizeof(T) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
    return nullptr;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace

struct Decoder::Step {
  std::int64_t num_tokens = 0;
  float* x = nullptr;        // [num_tokens, hidden_size]: the residual stream
  float* normed = nullptr;   // [num_tokens, hidden_size]
  float* delta = nullptr;    // [num_tokens, hidden_size]: what a block adds to x
  float* qkv = nullptr;      // [num_tokens, qkv_size]
  float* mixed = nullptr;    // [num_tokens, q_size]: attention's output
  float* gate_up = nullptr;  // [min(num_tokens, kMlpRows), 2 · intermediate_size]; then silu(gate) · up | up
  float *cos = nullptr, *sin = nullptr;  // [num_tokens, rotary_dim / 2]
  std::int64_t* slots = nullptr;         // [num_tokens]
  std::byte* prepared = nullptr;         // activations of the Linear that runs
  std::byte* attention_scratch = nullptr;
  nn::AttentionSequence* sequences = nullptr;
  nn::AttentionTask* task_memory = nullptr;
  std::span<const nn::AttentionTask> tasks = {};
  std::span<nn::AttentionSequence> sequence_span = {};
};

template <typename Taker>
Decoder::Step Decoder::TakeStep(const kernels::KernelTable& kernels, int num_threads, std::int64_t num_tokens,
                                std::int64_t num_sequences, Taker* taker) const {
  const auto take_floats = [&](std::int64_t rows, std::int64_t columns) {
    return taker->template Take<float>(static_cast<std::size_t>(rows * columns));
  };
  const std::int64_t mlp_rows = std::min(num_tokens, kMlpRows);
  std::size_t prepared_bytes = 0;
  for (const DecoderLayer& layer : layers_) {
    const auto need = [&](const nn::Linear& linear, std::int64_t rows) {
      prepared_bytes = std::max(prepared_bytes, linear.PreparedRowBytes(kernels) * static_cast<std::size_t>(rows));
    };
    need(layer.qkv_proj, num_tokens);
    need(layer.o_proj, num_tokens);
    need(layer.gate_up_proj, mlp_rows);
    need(layer.down_proj, mlp_rows);
  }
  Step step;
  step.num_tokens = num_tokens;
  step.x = take_floats(num_tokens, config_.hidden_size);
  step.normed = take_floats(num_tokens, config_.hidden_size);
  step.delta = take_floats(num_tokens, config_.hidden_size);
  step.qkv = take_floats(num_tokens, qkv_size());
  step.mixed = take_floats(num_tokens, q_size());
  step.gate_up = take_floats(mlp_rows, 2 * std::int64_t{config_.intermediate_size});
  step.cos = take_floats(num_tokens, rope_.num_pairs());
  step.sin = take_floats(num_tokens, rope_.num_pairs());
  step.slots = taker->template Take<std::int64_t>(static_cast<std::size_t>(num_tokens));
  step.prepared = taker->template Take<std::byte>(prepared_bytes);
  step.attention_scratch =
      taker->template Take<std::byte>(nn::AttentionScratchBytes(kernels, kv_layout(), config_.num_heads, num_threads));
  step.sequences = taker->template Take<nn::AttentionSequence>(static_cast<std::size_t>(num_sequences));
  step.task_memory = taker->template Take<nn::AttentionTask>(nn::MaxAttentionTasks(num_tokens, config_.num_kv_heads));
  return step;
}

kernels::KvLayout Decoder::kv_layout() const {
  return {.num_layers = config_.num_layers,
          .num_kv_heads = config_.num_kv_heads,
          .head_dim = config_.head_dim,
          .dtype = kv_dtype_};
}

std::size_t Decoder::WorkspaceBytes(const kernels::KernelTable& kernels, int num_threads, int num_tokens,
                                    int num_logit_rows) const {
  CountingTaker forward;
  forward.Take<float>(static_cast<std::size_t>(num_logit_rows) * static_cast<std::size_t>(config_.hidden_size));
  CountingTaker logits = forward;
  TakeStep(kernels, num_threads, num_tokens, num_tokens, &forward);
  logits.Take<std::byte>(lm_head_.PreparedRowBytes(kernels) * static_cast<std::size_t>(num_logit_rows));
  return std::max(forward.bytes(), logits.bytes());
}

void Decoder::FillPositions(const nn::ExecContext& context, const ForwardBatch& batch, Step* step) const {
  const TraceSpan span(context.trace(), TraceLabel::kPositions);
  constexpr std::int64_t block_size = kernels::KvLayout::block_size;
  std::size_t count = 0;
  for (const SequenceSlice& slice : batch.sequences) {
    step->sequences[count++] = {.token_begin = slice.token_begin,
                                .num_tokens = slice.num_tokens,
                                .first_position = slice.first_position,
                                .blocks = slice.blocks.data()};
    const std::int64_t last = std::int64_t{slice.first_position} + slice.num_tokens - 1;
    CHECK(slice.num_tokens >= 1 && last / block_size < static_cast<std::int64_t>(slice.blocks.size()));
  }
  step->sequence_span = {step->sequences, count};
  step->tasks =
      nn::PlanAttention(step->sequence_span, {.num_heads = config_.num_heads, .num_kv_heads = config_.num_kv_heads},
                        context.pool->num_threads(), step->task_memory);
  for (const SequenceSlice& slice : batch.sequences) {
    nn::ForRows(context, slice.num_tokens, 16 * rope_.num_pairs(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = slice.token_begin + i, position = slice.first_position + i;
        const BlockId block = slice.blocks[static_cast<std::size_t>(position / block_size)];
        step->slots[row] = block.value() * block_size + position % block_size;
        rope_.Fill(position, step->cos + row * rope_.num_pairs(), step->sin + row * rope_.num_pairs());
      }
    });
  }
}

void Decoder::RotateAndStore(const nn::ExecContext& context, int index, nn::KvPool* kv, const Step& step) const {
  const TraceSpan span(context.trace(), TraceLabel::kRope, index);
  const DecoderLayer& layer = layers_[static_cast<std::size_t>(index)];
  const kernels::KernelTable& table = *context.kernels;
  const std::int64_t stride = qkv_size(), head_dim = config_.head_dim, pairs = rope_.num_pairs();
  // Tokens of one block stay on one thread: the tiles of a block interleave its tokens, and a kernel may
  // write whole vectors of them.
  const auto block_boundary = [&](std::int64_t row) {
    constexpr std::int64_t block_size = kernels::KvLayout::block_size;
    while (row > 0 && row < step.num_tokens && step.slots[row] / block_size == step.slots[row - 1] / block_size) ++row;
    return row;
  };
  nn::ForRows(context, step.num_tokens, stride, [&](std::int64_t chunk_begin, std::int64_t chunk_end) {
    const std::int64_t begin = block_boundary(chunk_begin), end = block_boundary(chunk_end);
    if (begin >= end) return;
    for (std::int64_t row = begin; row < end && !layer.query_norm.empty(); ++row) {
      float* q = step.qkv + row * stride;
      float* k = q + q_size();
      table.rms_norm(q, layer.query_norm.data(), config_.rms_norm_eps, config_.num_heads, head_dim, head_dim, head_dim,
                     q);
      table.rms_norm(k, layer.key_norm.data(), config_.rms_norm_eps, config_.num_kv_heads, head_dim, head_dim, head_dim,
                     k);
    }
    // Q and K lie next to each other, and every head of both is rotated by the same angles.
    table.rope(step.qkv + begin * stride, end - begin, config_.num_heads + config_.num_kv_heads, head_dim,
               config_.rotary_dim, stride, step.cos + begin * pairs, step.sin + begin * pairs);
    const kernels::KvLayout& layout = kv->layout();
    table.store_kv({.layout = &layout,
                    .pool = kv->data(),
                    .layer = index,
                    .num_tokens = end - begin,
                    .slots = step.slots + begin,
                    .k = step.qkv + begin * stride + q_size(),
                    .v = step.qkv + begin * stride + q_size() + kv_size(),
                    .stride = stride});
  });
}

// delta = attention block of x; x += the delta of the layer before (except in the first layer).
void Decoder::Attention(const nn::ExecContext& context, int index, nn::KvPool* kv, Step* step) const {
  const DecoderLayer& layer = layers_[static_cast<std::size_t>(index)];
  const kernels::KernelTable& table = *context.kernels;
  const std::int64_t rows = step->num_tokens, hidden = config_.hidden_size;
  {
    const TraceSpan span(context.trace(), TraceLabel::kInputNorm, index);
    nn::ForRows(context, rows, hidden, [&](std::int64_t begin, std::int64_t end) {
      float* x = step->x + begin * hidden;
      float* y = step->normed + begin * hidden;
      if (index == 0) {
        table.rms_norm(x, layer.input_norm.data(), config_.rms_norm_eps, end - begin, hidden, hidden, hidden, y);
      } else {
        table.add_rms_norm(x, step->delta + begin * hidden, layer.input_norm.data(), config_.rms_norm_eps, end - begin,
                           hidden, y);
      }
      layer.qkv_proj.Prepare(table, step->normed, hidden, begin, end, rows, step->prepared);
    });
  }
  {
    const TraceSpan span(context.trace(), TraceLabel::kQkvProj, index);
    layer.qkv_proj.Multiply(context, step->prepared, rows, step->qkv, qkv_size());
  }
  RotateAndStore(context, index, kv, *step);
  {
    const TraceSpan span(context.trace(), TraceLabel::kAttention, index);
    const nn::AttentionShape shape{.num_heads = config_.num_heads,
                                   .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
                                   .window = layer.window};
    nn::RunAttention(context, *kv, index, shape, step->sequence_span, step->tasks, step->qkv, qkv_size(), step->mixed,
                     q_size(), step->attention_scratch);
  }
  {
    const TraceSpan span(context.trace(), TraceLabel::kOutputNorm, index);
    nn::ForRows(context, rows, q_size(), [&](std::int64_t begin, std::int64_t end) {
      layer.o_proj.Prepare(table, step->mixed, q_size(), begin, end, rows, step->prepared);
    });
  }
  const TraceSpan span(context.trace(), TraceLabel::kOProj, index);
  layer.o_proj.Multiply(context, step->prepared, rows, step->delta, hidden);
}

// x += delta; delta = MLP block of x.
void Decoder::Mlp(const nn::ExecContext& context, int index, Step* step) const {
  const DecoderLayer& layer = layers_[static_cast<std::size_t>(index)];
  const kernels::KernelTable& table = *context.kernels;
  const std::int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
  for (std::int64_t first = 0; first < step->num_tokens; first += kMlpRows) {
    const std::int64_t rows = std::min(kMlpRows, step->num_tokens - first);
    float* x = step->x + first * hidden;
    float* y = step->normed + first * hidden;
    float* delta = step->delta + first * hidden;
    {
      const TraceSpan span(context.trace(), TraceLabel::kMlpNorm, index);
      nn::ForRows(context, rows, hidden, [&](std::int64_t begin, std::int64_t end) {
        table.add_rms_norm(x + begin * hidden, delta + begin * hidden, layer.post_attention_norm.data(),
                           config_.rms_norm_eps, end - begin, hidden, y + begin * hidden);
        layer.gate_up_proj.Prepare(table, y, hidden, begin, end, rows, step->prepared);
      });
    }
    {
      const TraceSpan span(context.trace(), TraceLabel::kGateUpProj, index);
      layer.gate_up_proj.Multiply(context, step->prepared, rows, step->gate_up, 2 * intermediate);
    }
    {
      const TraceSpan span(context.trace(), TraceLabel::kActivation, index);
      nn::ForRows(context, rows, 2 * intermediate, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {  // in the place of the gate
          float* gate_up = step->gate_up + row * 2 * intermediate;
          table.silu_mul(gate_up, 1, intermediate, gate_up);
        }
        layer.down_proj.Prepare(table, step->gate_up, 2 * intermediate, begin, end, rows, step->prepared);
      });
    }
    const TraceSpan span(context.trace(), TraceLabel::kDownProj, index);
    layer.down_proj.Multiply(context, step->prepared, rows, delta, hidden);
  }
}

void Decoder::ForwardHidden(const nn::ExecContext& context, const ForwardBatch& batch, nn::KvPool* kv,
                            float* hidden) const {
  const nn::Workspace::Scope scope(context.workspace);
  const auto num_tokens = static_cast<std::int64_t>(batch.tokens.size());
  if (num_tokens == 0) return;
  Step step = TakeStep(*context.kernels, context.pool->num_threads(), num_tokens,
                       static_cast<std::int64_t>(batch.sequences.size()), context.workspace);
  FillPositions(context, batch, &step);
  {
    const TraceSpan span(context.trace(), TraceLabel::kEmbed);
    nn::Embed(context, embedding_, batch.tokens, step.x);
  }
  for (int index = 0; index < static_cast<int>(layers_.size()); ++index) {
    const TraceSpan span(context.trace(), TraceLabel::kLayer, index);
    Attention(context, index, kv, &step);
    Mlp(context, index, &step);
  }
  const TraceSpan span(context.trace(), TraceLabel::kFinalNorm);
  const auto num_rows = static_cast<std::int64_t>(batch.logit_rows.size()), size = std::int64_t{config_.hidden_size};
  nn::ForRows(context, num_rows, size, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = batch.logit_rows[static_cast<std::size_t>(i)];
      context.kernels->add_rms_norm(step.x + row * size, step.delta + row * size, final_norm_.data(),
                                    config_.rms_norm_eps, 1, size, hidden + i * size);
    }
  });
}

void Decoder::Logits(const nn::ExecContext& context, const float* hidden, int num_rows, float* logits) const {
  if (num_rows == 0) return;
  lm_head_.Forward(context, hidden, config_.hidden_size, num_rows, logits, config_.vocab_size);
}

}  // namespace quire::models
