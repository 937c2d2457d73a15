#include "engine/engine_options.h"

#include <utility>

#include "api/request.h"
#include "engine/engine.h"
#include "engine/tiers/redis_tier.h"

namespace quire::engine {
namespace {

constexpr int kThreadsMax = 1024;

Result<> InRange(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return FailParam(name, "{} is {}; it must lie between {} and {}", name, value, least, most);
}

Result<> ValidateTiers(const EngineOptions& options) {
  using std::chrono::milliseconds;
  QUIRE_TRY_VOID(InRange("kv_disk_bytes", options.kv_disk_bytes, 1, INT64_MAX));
  QUIRE_TRY_VOID(InRange("kv_transfer_bytes", options.kv_transfer_bytes, 1, INT64_MAX));
  if (options.kv_redis_timeout < milliseconds(1) || options.kv_redis_timeout > milliseconds(60'000)) {
    return FailParam("kv_redis_timeout", "kv_redis_timeout is {} ms; it must lie between 1 and 60000 ms",
                     options.kv_redis_timeout.count());
  }
  const std::int64_t ttl_ms = options.kv_redis_ttl.count();
  if (ttl_ms < 0 || (ttl_ms > 0 && ttl_ms < 1000) || ttl_ms > std::int64_t{1000} * INT32_MAX) {
    return FailParam("kv_redis_ttl", "kv_redis_ttl is {} ms; it must be 0 or lie between 1000 and {} ms", ttl_ms,
                     std::int64_t{1000} * INT32_MAX);
  }
  if (!options.kv_redis.empty()) {
    QUIRE_TRY([[maybe_unused]] const RedisAddress address, RedisAddress::Parse(options.kv_redis));
  }
  for (const auto& [name, is_set] :
       {std::pair{"kv_disk", !options.kv_disk.empty()}, std::pair{"kv_redis", !options.kv_redis.empty()}}) {
    if (is_set && !options.enable_prefix_caching) {
      return FailParam(name, "{} keeps blocks of the prefix cache, which enable_prefix_caching turns off", name);
    }
  }
  return {};
}

}  // namespace

std::string_view KvDtypeName(kernels::KvDtype dtype) {
  switch (dtype) {
    case kernels::KvDtype::kBf16:
      return "bf16";
    case kernels::KvDtype::kF32:
      return "f32";
    case kernels::KvDtype::kFp8E4m3:
      return "fp8_e4m3";
    case kernels::KvDtype::kInt8:
      return "int8";
    case kernels::KvDtype::kInt4:
      return "int4";
  }
  return "";
}

Result<kernels::KvDtype> ParseKvDtype(std::string_view name) {
  for (const kernels::KvDtype dtype : kernels::kKvDtypes) {
    if (name == KvDtypeName(dtype)) return dtype;
  }
  // vLLM's names.
  if (name == "auto" || name == "bfloat16") return kernels::KvDtype::kBf16;
  if (name == "float32") return kernels::KvDtype::kF32;
  if (name == "fp8") return kernels::KvDtype::kFp8E4m3;
  return Fail(ErrorCode::kInvalidArgument,
              "unknown KV data type \"{}\"; known are auto, bf16, f32, fp8 (fp8_e4m3), int8 and int4", name);
}

void SetPolicy(const EngineOptions& options, sched::SchedulerConfig* config) {
  config->policy = options.policy;
  config->queue_timeout_ms = static_cast<int>(options.queue_timeout.count());
  config->enable_fairness = options.enable_fairness;
  config->input_token_weight = options.input_token_weight;
  config->output_token_weight = options.output_token_weight;
  config->default_ttft_ms = options.default_ttft_ms;
  config->default_tpot_ms = options.default_tpot_ms;
  config->shed_unmeetable = options.shed_unmeetable;
  config->eviction_policy = options.eviction_policy;
  config->kv_retained_fraction = options.kv_retained_fraction;
}

Result<> EngineOptions::Validate() const {
  if (model.empty()) return FailParam("model", "no model was named");
  QUIRE_TRY_VOID(InRange("num_threads", num_threads, 0, kThreadsMax));
  if (!quantization_report.empty() && quantization == weights::Quantization::kNone) {
    return FailParam("quantization_report", "there is nothing to report without a quantization");
  }
  QUIRE_TRY_VOID(InRange("kv_memory_bytes", kv_memory_bytes, 0, INT64_MAX));
  QUIRE_TRY_VOID(InRange("swap_memory_bytes", swap_memory_bytes, 0, INT64_MAX));
  if (preemption_mode == sched::PreemptionMode::kSwap && swap_memory_bytes == 0) {
    return FailParam("preemption_mode", "preemption_mode is swap, but swap_memory_bytes is 0: give it memory");
  }
  QUIRE_TRY_VOID(ValidateTiers(*this));
  if (!(kv_memory_fraction > 0 && kv_memory_fraction <= 1)) {
    return FailParam("kv_memory_fraction", "kv_memory_fraction is {}; it must lie above 0 and at most at 1",
                     kv_memory_fraction);
  }
  if (max_model_len == 1) return FailParam("max_model_len", "max_model_len is 1; it must be 0 or at least 2");
  QUIRE_TRY_VOID(InRange("max_model_len", max_model_len, 0, INT32_MAX / 2));
  QUIRE_TRY_VOID(InRange("max_num_seqs", max_num_seqs, 1, 1 << 16));
  QUIRE_TRY_VOID(InRange("max_num_batched_tokens", max_num_batched_tokens, 1, 1 << 20));
  QUIRE_TRY_VOID(InRange("max_chunk_tokens", max_chunk_tokens, 0, INT32_MAX));
  QUIRE_TRY_VOID(InRange("max_num_queued_requests", max_num_queued_requests, 1, 1 << 24));
  QUIRE_TRY_VOID(InRange("max_num_queued_tokens", max_num_queued_tokens, 1, INT32_MAX));
  sched::SchedulerConfig scheduler;
  SetPolicy(*this, &scheduler);
  QUIRE_TRY_VOID(scheduler.ValidatePolicy());
  QUIRE_TRY_VOID(ValidateAsyncScheduling(async_scheduling, policy));
  QUIRE_TRY_VOID(InRange("queue_timeout", queue_timeout.count(), 0, static_cast<std::int64_t>(kServiceMsMax)));
  return {};
}

}  // namespace quire::engine
