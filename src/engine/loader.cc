#include "engine/loader.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/cpu_topology.h"
#include "engine/affinity_keeper.h"
#include "engine/memory_budget.h"
#include "engine/model_runner.h"
#include "engine/tiers/open_tiers.h"
#include "weights/atomic_file.h"
#include "weights/model_source.h"

namespace quire::engine {
namespace {

constexpr int kBlockSize = kernels::KvLayout::block_size;

// "16 KiB", "22315 MiB": what a message compares must not read as 0 on both sides.
std::string SizeText(std::int64_t bytes) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  return bytes < 10 * kMebibyte ? fmt::format("{} KiB", bytes / 1024) : fmt::format("{} MiB", bytes / kMebibyte);
}

std::unique_ptr<ThreadPool> MakePool(int wanted, std::string* description) {
  CpuTopology topology = DetectCpuTopology();
  if (wanted == 0 || wanted == topology.num_threads) {
    *description = topology.Describe();
    return std::make_unique<ThreadPool>(topology.num_threads, topology.thread_cpus);
  }
  *description = fmt::format("{} thread{} as asked for ({} allowed CPUs)", wanted, wanted == 1 ? "" : "s",
                             topology.allowed_cpus.size());
  // Fewer threads than cores are bound to the first ones; more are left where the kernel puts them.
  std::vector<int> cpus;
  if (wanted < static_cast<int>(topology.thread_cpus.size())) {
    cpus.assign(topology.thread_cpus.begin(), topology.thread_cpus.begin() + wanted);
  }
  return std::make_unique<ThreadPool>(wanted, std::move(cpus));
}

// The engine's thread is the pool's first, unless steps have a thread of their own.
std::vector<TraceLane*> LanesOf(const ThreadPool& pool, bool is_async, Tracer* tracer) {
  std::vector<TraceLane*> lanes = {tracer->Lane(is_async ? "compute 0" : kEngineLane)};
  for (int thread = 1; thread < pool.num_threads(); ++thread) {
    lanes.push_back(tracer->Lane(fmt::format("compute {}", thread)));
  }
  return lanes;
}

RunnerLimits LimitsOf(const EngineOptions& options, int num_blocks) {
  return {.max_num_batched_tokens = options.max_num_batched_tokens, .num_blocks = num_blocks};
}

Result<int> NumSwapBlocks(const EngineOptions& options, const LoadedModel& loaded) {
  const auto block_bytes = static_cast<std::int64_t>(loaded.model->kv_layout().block_bytes());
  const std::int64_t bytes = options.swap_memory_bytes;
  if (bytes > 0 && bytes < block_bytes) {
    return FailParam("swap_memory_bytes", "swap_memory_bytes is {}, but a block of keys and values has {}", bytes,
                     block_bytes);
  }
  return static_cast<int>(std::min<std::int64_t>(bytes / block_bytes, INT32_MAX / 2));
}

Result<MemoryPlan> PlanFor(const EngineOptions& options, const LoadedModel& loaded) {
  const std::size_t working =
      ModelRunner::WorkingBytes(*loaded.model, *loaded.kernels, loaded.pool->num_threads(), LimitsOf(options, 1));
  const auto available = AvailableMemoryBytes();
  if (!available && options.kv_memory_bytes == 0) {
    return Fail(ErrorCode::kIo, "the system does not say how much memory is available; give kv_memory_bytes");
  }
  // Pages of a mapped file count as available, because the kernel may drop them; the weights must stay.
  const std::int64_t taken = static_cast<std::int64_t>(working) + loaded.packed_cache.mapped_bytes;
  if (available && options.swap_memory_bytes > *available - taken) {
    return FailParam("swap_memory_bytes", "swap_memory_bytes is {} ({}), but only {} are available",
                     options.swap_memory_bytes, SizeText(options.swap_memory_bytes),
                     SizeText(std::max<std::int64_t>(0, *available - taken)));
  }
  const std::int64_t transfer = HasTiers(options) ? options.kv_transfer_bytes : 0;
  if (available && transfer > *available - taken - options.swap_memory_bytes) {
    return FailParam("kv_transfer_bytes", "kv_transfer_bytes is {} ({}), but only {} are available", transfer,
                     SizeText(transfer),
                     SizeText(std::max<std::int64_t>(0, *available - taken - options.swap_memory_bytes)));
  }
  return PlanMemory(options, {.available_bytes = std::max<std::int64_t>(
                                  0, available.value_or(INT64_MAX) - taken - options.swap_memory_bytes - transfer),
                              .block_bytes = static_cast<std::int64_t>(loaded.model->kv_layout().block_bytes()),
                              .model_length_max = ModelLengthMax(loaded.model->config()),
                              .model_length_default = ModelLengthDefault(loaded.model->config())});
}

EngineConfig MakeEngineConfig(const EngineOptions& options, const MemoryPlan& plan, int num_swap_blocks,
                              const weights::ModelConfig& model) {
  EngineConfig config;
  config.scheduler.max_num_batched_tokens = options.max_num_batched_tokens;
  config.scheduler.max_num_seqs = options.max_num_seqs;
  config.scheduler.max_model_len = plan.max_model_len;
  config.scheduler.num_blocks = plan.num_blocks;
  config.scheduler.num_swap_blocks = num_swap_blocks;
  config.scheduler.preemption_mode = options.preemption_mode;
  config.scheduler.block_size = kBlockSize;
  config.scheduler.vocab_size = model.vocab_size;
  SetPolicy(options, &config.scheduler);
  config.scheduler.enable_prefix_caching = options.enable_prefix_caching;
  config.scheduler.max_chunk_tokens = options.max_chunk_tokens;
  config.scheduler.max_num_queued_requests = options.max_num_queued_requests;
  config.scheduler.max_num_queued_tokens = options.max_num_queued_tokens;
  config.async_scheduling = options.async_scheduling;
  config.eos_token_ids = model.eos_token_ids;
  return config;
}

EngineInfo MakeInfo(const EngineOptions& options, const LoadedModel& loaded) {
  EngineInfo info;
  info.model_path = options.model.string();
  info.architecture = loaded.model->config().architecture_name;
  info.weight_formats = loaded.model->weight_formats();
  info.isa = loaded.kernels->isa;
  info.num_parameters = loaded.model->num_parameters();
  info.weight_bytes = loaded.model->weight_bytes();
  info.num_threads = loaded.pool->num_threads();
  info.kv_dtype = KvDtypeName(options.kv_dtype);
  info.load_seconds = loaded.load_seconds;
  return info;
}

}  // namespace

int ModelLengthMax(const weights::ModelConfig& config) {
  const weights::RopeConfig& rope = config.rope;
  double length = config.max_position_embeddings;
  switch (rope.type) {
    case weights::RopeType::kDefault:
    case weights::RopeType::kLlama3:  // max_position_embeddings is the scaled length already
      break;
    case weights::RopeType::kLinear:
    case weights::RopeType::kDynamic:
      length *= rope.factor;
      break;
    case weights::RopeType::kYarn:
      length = std::max(length, rope.factor * static_cast<double>(rope.original_max_position_embeddings));
      break;
  }
  return static_cast<int>(std::min(length, static_cast<double>(INT32_MAX / 2)));
}

int ModelLengthDefault(const weights::ModelConfig& config) {
  return config.rope.type == weights::RopeType::kDynamic ? config.max_position_embeddings : ModelLengthMax(config);
}

Result<MemoryPlan> PlanMemory(const EngineOptions& options, const MemoryQuestion& question) {
  if (options.max_model_len > question.model_length_max) {
    return FailParam("max_model_len", "max_model_len is {}, but the model was made for {} tokens",
                     options.max_model_len, question.model_length_max);
  }
  if (options.kv_memory_bytes > question.available_bytes) {
    return FailParam("kv_memory_bytes", "kv_memory_bytes is {} ({}), but only {} are available",
                     options.kv_memory_bytes, SizeText(options.kv_memory_bytes), SizeText(question.available_bytes));
  }
  const std::int64_t bytes =
      options.kv_memory_bytes > 0
          ? options.kv_memory_bytes
          : static_cast<std::int64_t>(static_cast<double>(question.available_bytes) * options.kv_memory_fraction);
  const int wanted_length = options.max_model_len > 0 ? options.max_model_len : question.model_length_default;
  const auto blocks_for = [](std::int64_t tokens) { return (tokens + kBlockSize - 1) / kBlockSize; };
  // More than every choice at its full length, and one block more each for copies, can never be used; and positions
  // are counted in 32 bits.
  const std::int64_t useful =
      std::min<std::int64_t>((blocks_for(wanted_length) + 1) * options.max_num_seqs, INT32_MAX / kBlockSize);
  const std::int64_t blocks = std::min(bytes / question.block_bytes, useful);
  const std::int64_t needed = blocks_for(options.max_model_len > 0 ? options.max_model_len : 2);
  if (blocks < needed) {
    return FailParam("kv_memory_bytes",
                     "{} for keys and values hold {} tokens, and a sequence of {} needs {}: "
                     "give more memory, or a smaller max_model_len",
                     SizeText(bytes), bytes / question.block_bytes * kBlockSize, std::max(options.max_model_len, 2),
                     SizeText(needed * question.block_bytes));
  }
  return MemoryPlan{static_cast<int>(blocks),
                    static_cast<int>(std::min<std::int64_t>(wanted_length, blocks * kBlockSize))};
}

namespace {

// Leaves the calling thread bound to the pool's first CPU.
Result<LoadedModel> LoadBound(const EngineOptions& options, const LoadProgress& progress) {
  LoadedModel loaded;
  const SteadyClock clock;
  const TimePoint start = clock.Now();
  QUIRE_TRY(loaded.kernels, kernels::SelectKernels(options.isa));
  QUIRE_TRY(const std::unique_ptr<weights::ModelSource> source, weights::ModelSource::Open(options.model));
  std::string threads;
  loaded.pool = MakePool(options.num_threads, &threads);
  loaded.description = fmt::format("{}, {} kernels", threads, loaded.kernels->isa);
  std::optional<weights::AtomicFile> report;  // opened before the work, so that a wrong name shows at once
  if (!options.quantization_report.empty()) {
    QUIRE_TRY(weights::AtomicFile file, weights::AtomicFile::Create(options.quantization_report));
    report.emplace(std::move(file));
  }
  models::LoadOptions load_options{.kv_dtype = options.kv_dtype,
                                   .max_model_len = options.max_model_len,
                                   .quantization = options.quantization,
                                   .quantization_errors = &loaded.quantization_errors,
                                   .progress = progress};
  PackedCache cache = PackedCache::Open(PackedCachePlace::Parse(options.packed_cache), options.model, *source,
                                        weights::QuantizationName(options.quantization));
  cache.Connect(&load_options);
  Result<std::unique_ptr<models::Model>> model =
      models::Model::Load(*source, load_options, loaded.pool.get(), *loaded.kernels);
  if (!model) {
    // What is wrong with the tensors of the files, taken together, is said without the name of one.
    Error error = std::move(model).error();
    if (error.code == ErrorCode::kCorrupt) error.message = fmt::format("{}: {}", options.model.string(), error.message);
    return std::unexpected(std::move(error));
  }
  loaded.model = *std::move(model);
  if (report) {
    QUIRE_TRY_VOID(report->Write(weights::QuantizationTable(loaded.quantization_errors)));
    QUIRE_TRY_VOID(report->Commit());
  }
  loaded.packed_cache = cache.Finish();
  loaded.load_seconds = Seconds(clock.Now() - start);
  return loaded;
}

}  // namespace

std::string DescribeQuantization(const EngineOptions& options, const LoadedModel& loaded) {
  const std::vector<weights::MatrixError>& errors = loaded.quantization_errors;
  if (errors.empty()) return "";
  const auto worst = std::ranges::max_element(errors, {}, &weights::MatrixError::relative_rms);
  const weights::MatrixError all = weights::SumErrors(errors);
  std::string text = fmt::format("{} quantised to {}, relative RMS error {:.4f}; worst: {} ({}) {:.4f}", all.name,
                                 weights::QuantizationName(options.quantization), all.relative_rms(), worst->name,
                                 worst->type, worst->relative_rms());
  if (all.num_outlier_columns > 0) {
    text += fmt::format("; {} column{} kept in BF16, without which it would be {:.4f}", all.num_outlier_columns,
                        all.num_outlier_columns == 1 ? "" : "s", all.all_quantised_rms());
  }
  return text;
}

Result<LoadedModel> LoadModel(const EngineOptions& options, const LoadProgress& progress) {
  QUIRE_TRY_VOID(options.Validate());
  const AffinityKeeper keeper;
  return LoadBound(options, progress);
}

Result<LoadedEngine> LoadEngine(const EngineOptions& options, const LoadProgress& progress) {
  QUIRE_TRY_VOID(options.Validate());
  LoadedEngine result;
  result.clock = std::make_unique<SteadyClock>();
  result.tracer = std::make_unique<Tracer>(result.clock.get());
  // The pool binds the calling thread to its first CPU. That one is meant for the engine's thread, which is started
  // below and inherits the binding; unless it plans beside a thread that computes, where both are left free.
  std::optional<AffinityKeeper> keeper(std::in_place);
  QUIRE_TRY(result.loaded, LoadBound(options, progress));
  QUIRE_TRY(const MemoryPlan plan, PlanFor(options, result.loaded));
  QUIRE_TRY(const int num_swap_blocks, NumSwapBlocks(options, result.loaded));
  EngineConfig config = MakeEngineConfig(options, plan, num_swap_blocks, result.loaded.model->config());
  result.beam_text = std::make_unique<BeamText>(options.model);
  config.text_stops = result.beam_text.get();
  std::unique_ptr<KvTiers> tiers;
  if (HasTiers(options)) {
    const std::size_t block_bytes = result.loaded.model->kv_layout().block_bytes();
    QUIRE_TRY(const TransferPlan transfer, PlanTransfer(options, block_bytes));
    config.scheduler.num_landing_blocks = transfer.num_landing_blocks;
    QUIRE_TRY(config.content_identity, ContentIdentity(options, result.loaded.kernels->isa));
    QUIRE_TRY(tiers, OpenTiers(options, config.content_identity, block_bytes, transfer.num_outgoing_blocks,
                               result.clock.get()));
  }
  QUIRE_TRY_VOID(config.Validate());
  QUIRE_TRY(
      std::unique_ptr<ModelRunner> runner,
      ModelRunner::Create(result.loaded.model.get(), result.loaded.kernels, result.loaded.pool.get(),
                          LimitsOf(options, plan.num_blocks + num_swap_blocks + config.scheduler.num_landing_blocks)));
  runner->Trace(LanesOf(*result.loaded.pool, options.async_scheduling > 0, result.tracer.get()));
  if (options.async_scheduling > 0) keeper.reset();
  QUIRE_TRY(result.engine, LocalEngine::Create(config, MakeInfo(options, result.loaded), std::move(runner),
                                               result.clock.get(), std::move(tiers), result.tracer.get()));
  QUIRE_TRY(result.info, result.engine->Info());
  return result;
}

}  // namespace quire::engine
