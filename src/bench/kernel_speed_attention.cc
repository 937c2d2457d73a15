// Attention over caches of real models' sizes.
#include <algorithm>
#include <cmath>
#include <memory>

#include "base/aligned_buffer.h"
#include "bench/kernel_meter.h"
#include "engine/engine_options.h"
#include "nn/attention.h"

namespace quire::bench {
namespace {

using kernels::KernelTable;
using kernels::KvDtype;
using kernels::ModelShape;

// Sequences of one length, the last tokens of which are queries.
struct Batch {
  std::int64_t num_sequences = 0, context = 0, queries = 0, prefix = 0;
};

// Keys and values of a batch in one type, in as many layers as the working set holds.
struct CachedBatch {
  Batch batch;
  nn::KvPool pool;
  std::vector<std::vector<BlockId>> blocks;
  std::vector<nn::AttentionSequence> sequences;
};

Result<CachedBatch> MakeCachedBatch(const ModelShape& model, KvDtype dtype, const Batch& batch,
                                    const KernelSpeedOptions& options) {
  const std::vector<kernels::CachedSequence> shapes(
      Size(batch.num_sequences),
      {.shared_tokens = batch.prefix, .length = batch.context, .num_queries = batch.queries});
  const kernels::BlockTables tables = kernels::MakeBlockTables(shapes, 1);
  const kernels::KvLayout layout = LayoutInWorkingSet(model, dtype, tables.num_blocks, options);
  CachedBatch cached{.batch = batch};
  QUIRE_TRY(cached.pool, nn::KvPool::Create(layout, tables.num_blocks));
  kernels::FillRandomBlocks(layout, tables.num_blocks, 1, cached.pool.data());
  for (const std::vector<std::int32_t>& ids : tables.blocks) cached.blocks.emplace_back(ids.begin(), ids.end());
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    cached.sequences.push_back({.token_begin = static_cast<std::int32_t>(s) * static_cast<std::int32_t>(batch.queries),
                                .num_tokens = static_cast<std::int32_t>(batch.queries),
                                .first_position = static_cast<std::int32_t>(batch.context - batch.queries),
                                .blocks = cached.blocks[s].data()});
  }
  return cached;
}

// One way to compute a batch on one tier: the plan and the buffers.
struct Attention {
  nn::ExecContext context;
  const CachedBatch* cached;
  nn::AttentionShape shape;
  std::int64_t row = 0;  // floats of a token's query heads
  std::vector<nn::AttentionSequence> sequences;
  std::vector<nn::AttentionTask> tasks;
  AlignedBuffer q, out, scratch;
  int layer = 0;

  void Run() {
    nn::RunAttention(context, cached->pool, layer, shape, sequences, tasks, q.as<float>().data(), row,
                     out.as<float>().data(), row, scratch.data());
    layer = (layer + 1) % cached->pool.layout().num_layers;
  }
};

// A plan as the engine makes it, or one as if each sequence were alone in the step.
void Plan(const ModelShape& model, bool grouped, Attention* attention) {
  const nn::AttentionHeads heads{.num_heads = model.num_heads, .num_kv_heads = model.num_kv_heads};
  const std::span<nn::AttentionSequence> sequences = attention->sequences;
  const Batch& batch = attention->cached->batch;
  const int num_threads = attention->context.pool->num_threads();
  std::vector<nn::AttentionTask> memory(nn::MaxAttentionTasks(batch.num_sequences * batch.queries, heads.num_kv_heads));
  if (grouped) {
    const auto tasks = nn::PlanAttention(sequences, heads, num_threads, memory.data());
    attention->tasks.assign(tasks.begin(), tasks.end());
    return;
  }
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (nn::AttentionTask task : nn::PlanAttention(sequences.subspan(s, 1), heads, num_threads, memory.data())) {
      task.sequence = static_cast<std::int32_t>(s);
      attention->tasks.push_back(task);
    }
  }
}

Result<std::unique_ptr<Attention>> MakeAttention(const KernelTable& table, const ModelShape& model,
                                                 const CachedBatch& cached, bool grouped, ThreadPool* pool) {
  auto attention = std::make_unique<Attention>();
  attention->context = {.pool = pool, .kernels = &table};
  attention->cached = &cached;
  attention->shape = {.num_heads = model.num_heads,
                      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(model.head_dim)))};
  attention->row = model.q_size();
  attention->sequences = cached.sequences;
  Plan(model, grouped, attention.get());
  const Batch& batch = cached.batch;
  const std::size_t bytes = Size(batch.num_sequences * batch.queries * attention->row) * sizeof(float);
  QUIRE_TRY(attention->q, AlignedBuffer::Allocate(bytes));
  QUIRE_TRY(attention->out, AlignedBuffer::Allocate(bytes));
  QUIRE_TRY(attention->scratch, AlignedBuffer::Allocate(nn::AttentionScratchBytes(
                                    table, cached.pool.layout(), model.num_heads, pool->num_threads())));
  std::size_t i = 0;
  for (float& x : attention->q.as<float>()) x = Pattern(i++);
  return attention;
}

// Pairs of a query and a key that it sees.
double NumPairs(const Batch& batch) {
  const double keys = static_cast<double>(batch.context) - 0.5 * static_cast<double>(batch.queries - 1);
  return static_cast<double>(batch.num_sequences) * static_cast<double>(batch.queries) * keys;
}

KernelJob MakeJob(const ModelShape& model, const CachedBatch& cached, bool grouped, Attention* attention) {
  const Batch& batch = cached.batch;
  const KernelTable& table = *attention->context.kernels;
  const kernels::KvLayout& layout = cached.pool.layout();
  // The other tiers widen BF16 and multiply floats.
  const bool bf16_dots = layout.dtype == KvDtype::kBf16 && std::string_view(table.isa) == "avx512bf16";
  return {.what = {.isa = table.isa,
                   .kernel = "attention",
                   .model = std::string(model.name),
                   .format = std::string(engine::KvDtypeName(layout.dtype)),
                   .m = batch.num_sequences * batch.queries,
                   .n = model.q_size(),
                   .num_sequences = batch.num_sequences,
                   .context = batch.context,
                   .prefix = batch.prefix,
                   .grouped = grouped},
          // Every block once, whoever shares it.
          .bytes = static_cast<double>(cached.pool.num_blocks()) * static_cast<double>(layout.tile_offset(1, 0)),
          .operations = 4.0 * model.head_dim * model.num_heads * NumPairs(batch),
          .peak = bf16_dots ? Limit::kBf16 : Limit::kFma,
          .run = [attention] { attention->Run(); }};
}

Result<> MeasureBatch(const KernelTable& table, const ModelShape& model, const CachedBatch& cached,
                      KernelMeter* meter) {
  std::vector<std::unique_ptr<Attention>> ways;
  std::vector<KernelJob> jobs;
  for (const bool grouped : {true, false}) {
    if (grouped && cached.batch.prefix == 0) continue;  // there is nothing to group
    QUIRE_TRY(std::unique_ptr<Attention> way, MakeAttention(table, model, cached, grouped, meter->pool()));
    ways.push_back(std::move(way));
    jobs.push_back(MakeJob(model, cached, grouped, ways.back().get()));
  }
  meter->Measure(jobs);
  return {};
}

// All batches that the options ask for, each once.
std::vector<Batch> WantedBatches(const KernelSpeedOptions& options) {
  std::vector<Batch> batches;
  for (const std::int64_t num_sequences : options.sequence_counts) {
    for (const std::int64_t context : options.contexts) {
      for (const std::int64_t queries : options.query_counts) {
        for (const std::int64_t prefix : options.prefixes) {
          if (prefix > 0 && (num_sequences == 1 || prefix >= context)) continue;  // which share nothing
          if (queries <= context) batches.push_back({num_sequences, context, queries, prefix});
        }
      }
    }
  }
  return batches;
}

}  // namespace

Result<> MeasureAttention(const KernelSpeedOptions& options, KernelTables tables, KernelMeter* meter) {
  for (const ModelShape& model : kernels::RealModels()) {
    if (!Wanted(options, model.name)) continue;
    for (const KvDtype dtype : WantedKvDtypes(options)) {
      for (const Batch& batch : WantedBatches(options)) {
        QUIRE_TRY(const CachedBatch cached, MakeCachedBatch(model, dtype, batch, options));
        for (const KernelTable* table : tables) QUIRE_TRY_VOID(MeasureBatch(*table, model, cached, meter));
      }
    }
  }
  return {};
}

}  // namespace quire::bench
