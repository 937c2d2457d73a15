// Every configuration that a user can set, field by field: the one list from which flags, --help, JSON and log lines
// are made (see config_visitor.h). Names are vLLM's where vLLM has the thing.
#pragma once

#include <concepts>
#include <type_traits>

#include "bench/workload.h"
#include "cli/config_visitor.h"
#include "engine/engine_options.h"
#include "server/config.h"
#include "server/models_config.h"
#include "wire/supervised_engine.h"

namespace quire::cli {

// What every command that loads a model without an engine around it computes with.
inline void AddComputeFields(engine::EngineOptions* options, FlagVisitor* visitor) {
  visitor->Field("threads", options->num_threads, "threads that compute; 0: one for each core that may be used");
  visitor->Field("isa", options->isa, "kernel tier; default: the variable QUIRE_ISA, or the best that this CPU has");
}

template <typename T, typename Config>
concept ConfigOf = std::same_as<std::remove_const_t<T>, Config>;

template <ConfigOf<weights::Quantization> Quantization>
ChoiceField QuantizationChoice(Quantization& field) {
  return Choice(field, weights::QuantizationName, weights::ParseQuantization, "none, int8, int4 or fp8");
}

template <ConfigOf<engine::EngineOptions> Config, typename Visitor>
void VisitFields(Config& config, Visitor& visitor) {
  visitor.Argument("model", config.model, "a Hugging Face folder or a .gguf file (default: the demo model)");
  visitor.Field("max-model-len", config.max_model_len,
                "longest sequence, prompt and output together, in tokens; 0: the model's own length, or what fits "
                "into the memory");
  visitor.Field("max-num-seqs", config.max_num_seqs, "sequences that are generated at the same time");
  visitor.Field("max-num-batched-tokens", config.max_num_batched_tokens, "tokens computed in one step, at most");
  visitor.Field("max-chunk-tokens", config.max_chunk_tokens,
                "tokens of one prompt in one step, at most; 0: as many as the step has");
  visitor.Field("max-queued-requests", config.max_num_queued_requests,
                "requests that may wait for their first step; more get 503");
  visitor.Field("max-queued-tokens", config.max_num_queued_tokens, "tokens of their prompts, at most; more get 503");
  visitor.Field("queue-timeout", config.queue_timeout,
                "how long a request may wait for its first step (its queue_timeout_ms goes before this), then it gets "
                "503; 0: for ever");
  visitor.Field("kv-cache-dtype",
                Choice(config.kv_dtype, engine::KvDtypeName, engine::ParseKvDtype,
                       "auto (bf16), bf16, f32, fp8 (fp8_e4m3), int8 or int4"),
                "type of cached keys and values; smaller ones hold more tokens in the same memory");
  visitor.Field("quantization", QuantizationChoice(config.quantization),
                "quantise a model in F32, F16 or BF16 while it is loaded");
  visitor.Field(
      "quantization-report", config.quantization_report,
      "file to write the relative RMS error of each quantised matrix to, and how many of its columns were kept in "
      "BF16, the worst first");
  visitor.Field("kv-memory", Bytes(config.kv_memory_bytes),
                "memory for cached keys and values, such as 4GiB; 0: a share of what is free, see "
                "--kv-memory-fraction");
  visitor.Field("kv-memory-fraction", config.kv_memory_fraction,
                "share of the free memory that --kv-memory 0 takes, once the weights are loaded");
  visitor.Field(
      "swap-memory", Bytes(config.swap_memory_bytes),
      "memory besides --kv-memory where preempted sequences leave their keys and values, such as 1GiB; 0: none, "
      "they are computed again");
  visitor.Field("preemption-mode",
                Choice(config.preemption_mode, sched::PreemptionModeName, sched::ParsePreemptionMode,
                       "auto (whatever costs less), recompute or swap"),
                "what becomes of the keys and values of a preempted sequence");
  visitor.Field(
      "kv-disk", config.kv_disk,
      "folder where cached keys and values are kept beyond their memory and this process; each server needs its "
      "own");
  visitor.Field("kv-disk-bytes", Bytes(config.kv_disk_bytes),
                "that they may take there; the least recently used go first");
  visitor.Field(
      "kv-redis", config.kv_redis,
      "Redis or Valkey server where servers share cached keys and values: "
      "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE] or unix:///PATH. It must be as trusted as the model. The "
      "variable QUIRE_KV_REDIS keeps passwords out of the process list");
  visitor.Field("kv-redis-timeout", config.kv_redis_timeout, "how long it may take to answer, before it is left alone");
  visitor.Field("kv-redis-ttl", config.kv_redis_ttl, "how long it keeps a block; 0: as long as it wants");
  visitor.Field("kv-transfer-memory", Bytes(config.kv_transfer_bytes),
                "memory besides --kv-memory for blocks on their way to and from --kv-disk and --kv-redis");
  visitor.Field("enable-prefix-caching", config.enable_prefix_caching,
                "keep the keys and values of prompts for later prompts that begin the same");
  visitor.Field("eviction-policy",
                Choice(config.eviction_policy, kv::EvictionPolicyName, kv::ParseEvictionPolicy,
                       "lru (least recently used), lfu (least frequently used) or size-aware (fewest uses for its "
                       "size)"),
                "which of them goes first when memory runs out");
  visitor.Field("kv-retained-fraction", config.kv_retained_fraction,
                "share of --kv-memory where prompts stay for which requests ask so (prompt_cache_retention)");
  visitor.Field("scheduling-policy",
                Choice(config.policy, sched::PolicyName, sched::ParsePolicy,
                       "lpm (longest cached prefix first), fcfs (first come, first served), dfs-weight (along the "
                       "cached prefixes), random, priority (the requests' own), sjf (shortest job first) or slo "
                       "(earliest deadline first, at the running streams' tempo)"),
                "which waiting request goes first: docs/scheduling.md");
  visitor.Field(
      "async-scheduling", config.async_scheduling,
      "0: steps are planned one after another; 1: each is planned while the one before it is computed; 2: and "
      "begins before that one's tokens are dealt with. For hundreds of sequences on a small "
      "model: docs/async-scheduling.md");
  visitor.Field("default-ttft-ms", config.default_ttft_ms,
                "policy slo: milliseconds to the first token, for requests without ttft_ms; 0: no target");
  visitor.Field("default-tpot-ms", config.default_tpot_ms,
                "policy slo: milliseconds between tokens, for requests without tpot_ms; 0: no target");
  visitor.Field("shed-unmeetable", config.shed_unmeetable,
                "policy slo: requests whose first token would come too late get 503 at once");
  visitor.Field("enable-fairness", config.enable_fairness,
                "between API keys: whichever had fewest tokens goes first; not with the policies priority and slo");
  visitor.Field("input-token-weight", config.input_token_weight, "cost of a prompt's token, for fairness and sjf");
  visitor.Field("output-token-weight", config.output_token_weight, "cost of a generated token, for fairness and sjf");
  visitor.Field("packed-cache", config.packed_cache,
                "where packed weights are kept, so that the next start only maps them: auto (under the user's cache "
                "folder), a folder, a file that ends in .packed, or off; read: before it reads only. Default: the "
                "variable QUIRE_PACKED_CACHE, or read:auto");
  visitor.Field("threads", config.num_threads, "threads that compute; 0: one for each core that may be used");
  visitor.Field(
      "isa", config.isa,
      "kernel tier: reference, avx2, avx512, avx512vnni, avx512bf16, amx, or auto: the best that this CPU has. "
      "Default: the variable QUIRE_ISA, or auto");
}

template <ConfigOf<server::ServerConfig> Config, typename Visitor>
void VisitFields(Config& config, Visitor& visitor) {
  visitor.Field("host", config.host, "address to listen on; 0.0.0.0 or :: for all");
  visitor.Field("port", config.port, "port to listen on; 0: any free one, which is printed");
  visitor.Field("api-key", config.api_keys,
                "key that clients must send (Authorization: Bearer KEY); several, separated by commas, are all good. "
                "The variable QUIRE_API_KEY keeps them out of the process list");
  visitor.Field("allowed-hosts", config.allowed_hosts,
                "host names besides localhost that requests to a loopback address may carry");
  visitor.Field("allowed-origins", config.allowed_origins,
                "origins of web pages that may call the server (CORS), or *");
  visitor.Field("max-requests", config.requests_max,
                "generation requests being read, waiting or running; more get 503");
  visitor.Field("max-waiting-tokens", config.waiting_tokens_max,
                "prompt tokens that wait for their first token; while there are more, further requests get 503");
  visitor.Field("max-connections", config.connections_max, "open connections, at most");
  visitor.Field("max-logprobs", config.logprobs_max, "alternatives per token that a request may ask for");
  visitor.Field("max-body-size", config.body_bytes_max, "largest body of a request");
  visitor.Field("max-total-body-size", config.all_bodies_bytes_max,
                "of all request bodies that are being read or prepared");
  visitor.Field("max-header-size", config.header_bytes_max, "largest head of a request (request line and headers)");
  visitor.Field("max-header-fields", config.header_fields_max, "header fields of a request, at most");
  visitor.Field("max-unread-output", config.unread_output_bytes_max,
                "output held for a client that does not read, before its request is aborted");
  visitor.Field("http-threads", config.worker_threads, "threads that parse, render templates and tokenise");
  visitor.Field("trace", config.trace,
                "file for a trace of everything that the server and its engine do, for Perfetto; empty: none");
  visitor.Field("profile-dir", config.profile_dir, "folder where POST /start_profile writes such a trace");
  visitor.Field("max-trace-size", config.trace_bytes_max, "largest trace; then it ends");
  visitor.Field("otlp-traces-endpoint", config.otlp_traces_endpoint,
                "collector that gets a span of each request (OTLP over HTTP, JSON), such as "
                "http://127.0.0.1:4318/v1/traces; empty: none");
  visitor.Field("idle-timeout", config.idle_timeout, "how long a connection may wait for its next request");
  visitor.Field("header-timeout", config.header_timeout, "how long the head of a request may take to arrive");
  visitor.Field("body-timeout", config.body_timeout, "how long the body of a request may take to arrive");
  visitor.Field("write-timeout", config.write_timeout, "how long a client may read nothing of its answer");
  visitor.Field("keep-alive-interval", config.keep_alive_interval,
                "time between comment lines in a stream that is silent; 0: none");
  visitor.Field("drain-timeout", config.drain_timeout, "how long running requests may go on after SIGTERM");
}

template <ConfigOf<server::ModelsConfig> Config, typename Visitor>
void VisitFields(Config& config, Visitor& visitor) {
  visitor.Field(
      "memory", Bytes(config.memory_bytes),
      "memory for the weights, keys and values of all models that are loaded at a time, such as 16GiB; what is "
      "idle makes room for what is asked for; 0: four fifths of what is free");
  visitor.Field("models-max", config.loaded_max, "models that are loaded at a time");
  visitor.Field("model-wait-timeout", config.wait_timeout,
                "how long a request may wait for its model to be loaded, before it gets 503");
  visitor.Field("max-model-waiters", config.waiting_max,
                "requests that may wait for models to be loaded; more get 503");
  visitor.Field("model-idle-timeout", config.idle_timeout,
                "a model that no request has used for so long is unloaded; 0: only when its memory is needed");
}

template <ConfigOf<wire::SupervisorConfig> Config, typename Visitor>
void VisitFields(Config& config, Visitor& visitor) {
  visitor.Field("engine-silence-timeout", config.silence_max,
                "an engine process that gives no sign of life for so long is killed and started again; 0: never");
}

template <ConfigOf<bench::WorkloadConfig> Config, typename Visitor>
void VisitFields(Config& config, Visitor& visitor) {
  visitor.Field("input-len", config.input_len, "tokens of each prompt");
  visitor.Field("output-len", config.output_len, "tokens generated for each prompt");
  visitor.Field("prefix-len", config.prefix_len, "tokens that all prompts begin with, for the prefix cache to save");
  visitor.Field("num-prompts", config.num_prompts, "requests that are measured");
  visitor.Field("num-warmup", config.num_warmup, "requests before them that are not");
  visitor.Field("max-concurrency", config.max_concurrency, "requests at the same time");
  visitor.Field("seed", config.seed, "of the random prompts");
}

}  // namespace quire::cli
