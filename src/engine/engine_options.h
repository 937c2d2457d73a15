// Everything that a user may say about an engine, in one place. The command line, the JSON configuration and the log
// are made from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "kv/eviction_policy.h"
#include "sched/scheduler_config.h"
#include "weights/quantizing_matrix.h"

namespace quire::engine {

struct EngineOptions {
  std::filesystem::path model;  // a Hugging Face folder or a GGUF file
  int num_threads = 0;          // that compute; 0: one for each core that this process may use, within its CPU quota
  std::string isa;              // kernel tier; "" or "auto": the best that this CPU runs
  kernels::KvDtype kv_dtype = kernels::KvDtype::kBf16;
  weights::Quantization quantization = weights::Quantization::kNone;  // of a model in F32, F16 or BF16, as it is loaded
  std::string quantization_report;     // a file for the error of each matrix, see QuantizationTable; "": none
  std::int64_t kv_memory_bytes = 0;    // of keys and values; 0: kv_memory_fraction decides
  double kv_memory_fraction = 0.6;     // of the memory that is available once the weights are loaded; in (0, 1]
  std::int64_t swap_memory_bytes = 0;  // besides, for the keys and values of preempted sequences
  sched::PreemptionMode preemption_mode = sched::PreemptionMode::kAuto;
  // Lower tiers, where full blocks of the prefix cache are kept beyond this process.
  std::filesystem::path kv_disk;  // a folder; empty: none
  std::int64_t kv_disk_bytes = std::int64_t{16} << 30;
  std::string kv_redis;                                // RedisAddress::Parse; "": none
  std::chrono::milliseconds kv_redis_timeout{250};     // of each wait for it
  std::chrono::milliseconds kv_redis_ttl{86'400'000};  // how long it keeps a block; 0: as long as it wants
  std::int64_t kv_transfer_bytes = 256 << 20;          // for blocks on their way to and from them
  int max_model_len = 0;              // prompt and output of a choice, tokens; 0: what the model was made for, or as
                                      // much of it as fits into the memory
  int max_num_seqs = 256;             // choices that run at a time
  int max_num_batched_tokens = 2048;  // of one step
  int max_chunk_tokens = 0;           // of one sequence in one step; 0: no limit but the step's
  int max_num_queued_requests = 1024;
  int max_num_queued_tokens = 1 << 22;         // of their prompts
  std::chrono::milliseconds queue_timeout{0};  // until a waiting request is shed; 0: never
  sched::PolicyKind policy = sched::PolicyKind::kLpm;
  int async_scheduling = 0;       // EngineConfig::async_scheduling
  bool enable_fairness = false;   // between API keys
  double input_token_weight = 1;  // what tokens cost, for fairness and the policy sjf
  double output_token_weight = 2;
  double default_ttft_ms = 0;  // policy slo: targets of requests that name none; 0: none
  double default_tpot_ms = 0;
  bool shed_unmeetable = false;  // policy slo: requests that cannot be in time are refused
  bool enable_prefix_caching = true;
  kv::EvictionPolicy eviction_policy = kv::EvictionPolicy::kLru;  // of cached prefixes
  double kv_retained_fraction = 0.5;  // of the KV pool that requests may have retained; in [0, 1]
  // Where packed weights are kept for the next start, see PackedCachePlace; "" and "off": nowhere.
  std::string packed_cache;

  // kInvalidArgument names the option, its value and the limit. What only the model can tell is checked by LoadEngine.
  Result<> Validate() const;
};

// What these options say about who is served when, and what the prefix cache keeps.
void SetPolicy(const EngineOptions& options, sched::SchedulerConfig* config);

// "bf16", "f32", "fp8_e4m3", "int8", "int4".
std::string_view KvDtypeName(kernels::KvDtype dtype);
// The same, and vLLM's "auto", "bfloat16", "float32", "fp8".
Result<kernels::KvDtype> ParseKvDtype(std::string_view name);

}  // namespace quire::engine
