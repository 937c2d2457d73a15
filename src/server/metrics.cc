#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "api/intervals.h"

namespace quire::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using prometheus::Labels;

const Buckets kFirstTokenBuckets = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                    1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kTokenBuckets = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
const Buckets kRequestBuckets = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kHttpBuckets = {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60};

// 1, 2, 5, 10, 20, 50, … up to max.
Buckets OneTwoFive(int max) {
  Buckets buckets;
  for (double decade = 1; decade <= max; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (decade * step <= max) buckets.push_back(decade * step);
    }
  }
  return buckets;
}

// A counter that follows a count of the engine's.
class Follower {
 public:
  explicit Follower(Counter* counter) : counter_(counter) {}
  void Update(std::uint64_t count) {
    const std::uint64_t grown = count >= last_ ? count - last_ : count;  // smaller: a new engine
    counter_->Increment(static_cast<double>(grown));
    last_ = count;
  }

 private:
  Counter* counter_;
  std::uint64_t last_ = 0;
};

// A histogram that follows one of the engine's.
class DurationFollower {
 public:
  explicit DurationFollower(Histogram* histogram) : histogram_(histogram) {}
  static Buckets Bounds() {
    return {std::begin(DurationHistogram::kSecondsMax), std::end(DurationHistogram::kSecondsMax)};
  }
  void Update(const DurationHistogram& now) {
    const bool is_new_engine =
        !std::ranges::equal(now.counts, last_.counts, [](std::uint64_t a, std::uint64_t b) { return a >= b; });
    if (is_new_engine) last_ = {};
    std::vector<double> increments(now.counts.size());
    for (std::size_t i = 0; i < increments.size(); ++i) {
      increments[i] = static_cast<double>(now.counts[i] - last_.counts[i]);
    }
    histogram_->ObserveMultiple(increments, std::max(0.0, now.sum_s - last_.sum_s));
    last_ = now;
  }

 private:
  Histogram* histogram_;
  DurationHistogram last_;
};

// What is counted of each tier below the KV pool.
struct TierCounter {
  const char* name;
  const char* help;
  std::uint64_t KvTierStats::* count;
};
constexpr TierCounter kTierCounters[] = {
    {"quire:kv_tier_hits_total", "KV blocks read from a tier.", &KvTierStats::hits},
    {"quire:kv_tier_misses_total", "KV blocks that were gone when a tier was to read them.", &KvTierStats::misses},
    {"quire:kv_tier_stored_total", "KV blocks written to a tier.", &KvTierStats::stored},
    {"quire:kv_tier_read_bytes_total", "Bytes read from a tier.", &KvTierStats::read_bytes},
    {"quire:kv_tier_written_bytes_total", "Bytes written to a tier.", &KvTierStats::written_bytes},
    {"quire:kv_tier_errors_total", "Failures of a tier's disk or connection.", &KvTierStats::errors},
    {"quire:kv_tier_damaged_total", "Entries dropped because size or checksum were wrong.", &KvTierStats::damaged},
    {"quire:kv_tier_evictions_total", "Entries removed for want of room.", &KvTierStats::evictions},
};

}  // namespace

struct Metrics::Impl {
  Impl(const std::string& model_name, int max_model_len, std::shared_ptr<prometheus::Registry> registry_of_others)
      : shared_registry(registry_of_others
                            ? std::move(registry_of_others)
                            : std::make_shared<prometheus::Registry>(prometheus::Registry::InsertBehavior::Merge)),
        labels{{"model_name", model_name}, {"engine", "0"}},
        max_model_len_buckets(OneTwoFive(max_model_len)) {}

  Gauge& AddGauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& AddCounter(const char* name, const char* help, Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(more);
  }
  Histogram& AddHistogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }
  // One tier's; they exist from the time on when the engine first tells of it.
  struct Tier {
    std::vector<Follower> counters;
    Gauge* bytes = nullptr;
  };
  Tier& TierOf(KvTierKind kind) {
    const auto [entry, is_new] = tiers.try_emplace(kind);
    if (is_new) {
      const Labels label{{"tier", std::string(KvTierName(kind))}};
      for (const TierCounter& counter : kTierCounters) {
        entry->second.counters.emplace_back(&AddCounter(counter.name, counter.help, label));
      }
      Labels all = label;
      all.insert(labels.begin(), labels.end());
      entry->second.bytes = &prometheus::BuildGauge()
                                 .Name("quire:kv_tier_bytes")
                                 .Help("Bytes that a tier holds, as far as this server knows.")
                                 .Register(registry)
                                 .Add(all);
    }
    return entry->second;
  }
  Counter& AddFinish(const char* reason) {
    return AddCounter("vllm:request_success_total", "Choices that ended, by reason.", {{"finished_reason", reason}});
  }

  const std::shared_ptr<prometheus::Registry> shared_registry;  // by the metrics of all models of a server
  prometheus::Registry& registry = *shared_registry;
  const Labels labels;
  const Buckets max_model_len_buckets;

  Gauge& running = AddGauge("vllm:num_requests_running", "Requests in the engine's running batch.");
  Gauge& waiting = AddGauge("vllm:num_requests_waiting", "Requests that wait to be scheduled.");
  Gauge& queued_tokens = AddGauge("quire:num_queued_tokens", "Prompt tokens of requests that have not run yet.");
  Gauge& kv_usage = AddGauge("vllm:kv_cache_usage_perc", "Part of the KV blocks that requests hold, 0 to 1.");

  Follower prefix_queries{&AddCounter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache.")};
  Follower prefix_hits{&AddCounter("vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.")};
  Follower evicted{&AddCounter("vllm:prefix_cache_evicted_blocks_total", "Cached blocks that were given up.")};
  Counter& AddEvictions(const char* reason) {
    return AddCounter("quire:kv_block_evictions_total", "Cached blocks that were given up, by reason.",
                      {{"reason", reason}});
  }
  Follower evictions_capacity{&AddEvictions("capacity")};
  Follower evictions_expired{&AddEvictions("expired")};
  Follower evictions_retained{&AddEvictions("retained")};
  Follower evictions_reset{&AddEvictions("reset")};
  Gauge& retained_blocks = AddGauge("quire:kv_retained_blocks", "Cached blocks that are retained for their time.");
  DurationFollower block_lifetime{&AddHistogram(
      "vllm:kv_block_lifetime_seconds", "From caching a KV block to its eviction.", DurationFollower::Bounds())};
  DurationFollower block_idle{&AddHistogram("vllm:kv_block_idle_before_evict_seconds",
                                            "From the last use of a KV block to its eviction.",
                                            DurationFollower::Bounds())};
  DurationFollower block_reuse_gap{&AddHistogram("vllm:kv_block_reuse_gap_seconds",
                                                 "For how long nobody had used a KV block that a request found.",
                                                 DurationFollower::Bounds())};
  Follower preemptions{&AddCounter("vllm:num_preemptions_total", "Preemptions.")};
  Follower tier_hits{&AddCounter("vllm:external_prefix_cache_hits_total", "Prompt tokens found in a lower tier.")};
  Follower tier_backlog_lost{
      &AddCounter("quire:kv_tier_backlog_lost_total", "KV blocks evicted before they could be written to a tier.")};
  Gauge& swap_usage = AddGauge("quire:swap_usage_perc", "Part of the swap area that preempted sequences use, 0 to 1.");
  Follower swap_preemptions{
      &AddCounter("quire:swap_preemptions_total", "Preemptions that saved keys and values in the swap area.")};
  Follower swapped_out{&AddCounter("quire:swapped_out_blocks_total", "KV blocks copied to the swap area.")};
  Follower swapped_in{&AddCounter("quire:swapped_in_blocks_total", "KV blocks copied back from the swap area.")};
  Follower shed{&AddCounter("quire:requests_shed_total", "Requests refused because they would have been late.")};
  Follower queue_timeouts{&AddCounter("quire:queue_timeouts_total", "Requests that waited too long to run.")};
  Follower prompt_tokens{&AddCounter("vllm:prompt_tokens_total", "Prompt tokens processed.")};
  Follower cached_tokens{&AddCounter("vllm:prompt_tokens_cached_total", "Prompt tokens taken from the cache.")};
  Follower generation_tokens{&AddCounter("vllm:generation_tokens_total", "Tokens generated.")};
  Follower exported_spans{&AddCounter("quire:otlp_spans_exported_total", "Spans that the collector has taken.")};
  Follower dropped_spans{&AddCounter("quire:otlp_spans_dropped_total", "Spans that found no place or no collector.")};
  Counter& stop = AddFinish("stop");
  Counter& length = AddFinish("length");
  Counter& abort = AddFinish("abort");
  Counter& error = AddFinish("error");

  Histogram& first_token =
      AddHistogram("vllm:time_to_first_token_seconds", "Arrival to first token.", kFirstTokenBuckets);
  Histogram& inter_token =
      AddHistogram("vllm:inter_token_latency_seconds", "Time between successive outputs of a choice.", kTokenBuckets);
  Histogram& per_token = AddHistogram("vllm:request_time_per_output_token_seconds",
                                      "Decode time of a choice by its tokens after the first.", kTokenBuckets);
  Histogram& end_to_end =
      AddHistogram("vllm:e2e_request_latency_seconds", "Arrival to the last token.", kRequestBuckets);
  Histogram& queue =
      AddHistogram("vllm:request_queue_time_seconds", "Time in the engine before it is scheduled.", kRequestBuckets);
  Histogram& inference =
      AddHistogram("vllm:request_inference_time_seconds", "Scheduling to the last token.", kRequestBuckets);
  Histogram& prefill =
      AddHistogram("vllm:request_prefill_time_seconds", "Scheduling to the first token.", kRequestBuckets);
  Histogram& decode = AddHistogram("vllm:request_decode_time_seconds", "First to last token.", kRequestBuckets);
  Histogram& iteration_tokens = AddHistogram("vllm:iteration_tokens_total", "Tokens of an engine step.",
                                             Buckets(std::begin(kStepTokenBuckets), std::end(kStepTokenBuckets)));
  Histogram& request_prompt =
      AddHistogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", max_model_len_buckets);
  Histogram& request_generation =
      AddHistogram("vllm:request_generation_tokens", "Tokens generated for a choice.", max_model_len_buckets);
  Histogram& most_generated = AddHistogram("vllm:request_max_num_generation_tokens",
                                           "Tokens of the longest choice of a request.", max_model_len_buckets);
  Histogram& computed_prompt =
      AddHistogram("vllm:request_prefill_kv_computed_tokens",
                   "Prompt tokens of a choice that were computed, not taken from the cache.", max_model_len_buckets);
  Histogram& request_max_tokens =
      AddHistogram("vllm:request_params_max_tokens", "max_tokens of a request.", max_model_len_buckets);
  Histogram& request_preemptions =
      AddHistogram("vllm:request_num_preemptions", "Preemptions of a request.", {0, 1, 2, 5, 10});
  Histogram& request_n = AddHistogram("vllm:request_params_n", "n of a request.", {1, 2, 5, 10, 20});

  Family<Counter>& http_requests =
      prometheus::BuildCounter().Name("http_requests_total").Help("HTTP requests.").Register(registry);
  Family<Histogram>& http_duration = prometheus::BuildHistogram()
                                         .Name("http_request_duration_seconds")
                                         .Help("Head of the request to the end of the answer.")
                                         .Register(registry);

  std::map<KvTierKind, Tier> tiers;
  std::mutex mutex;  // guards the followers, tiers and step_tokens, which remember what was said last
  std::vector<std::uint64_t> step_tokens;
  std::uint64_t step_tokens_sum = 0;
};

Metrics::Metrics(const std::string& model_name, int max_model_len, const Metrics* others)
    : impl_(std::make_unique<Impl>(model_name, max_model_len,
                                   others != nullptr ? others->impl_->shared_registry : nullptr)) {}
Metrics::~Metrics() = default;

void Metrics::ObserveRequest(int prompt_tokens, int n, int max_tokens) {
  impl_->request_prompt.Observe(prompt_tokens);
  impl_->request_n.Observe(n);
  impl_->request_max_tokens.Observe(max_tokens);
}

void Metrics::ObserveTimeToFirstToken(double seconds) {
  impl_->first_token.Observe(seconds);
}
void Metrics::ObserveInterTokenLatency(double seconds, std::int64_t count) {
  for (; count > 0; --count) impl_->inter_token.Observe(seconds);
}
void Metrics::ObserveMostGenerated(int generation_tokens) {
  impl_->most_generated.Observe(generation_tokens);
}

void Metrics::ObserveFinish(const FinishRecord& record) {
  switch (record.reason) {
    case FinishReason::kStop:
      impl_->stop.Increment();
      break;
    case FinishReason::kLength:
      impl_->length.Increment();
      break;
    case FinishReason::kAbort:
      impl_->abort.Increment();
      break;
    case FinishReason::kNone:
    case FinishReason::kShed:
    case FinishReason::kError:
      impl_->error.Increment();
      break;
  }
  impl_->end_to_end.Observe(record.end_to_end_s);
  impl_->request_generation.Observe(record.generation_tokens);
  if (record.times == nullptr) return;
  const RequestIntervals intervals = DeriveIntervals(*record.times, record.generation_tokens);
  const auto observe = [](Histogram& histogram, std::optional<double> seconds) {
    if (seconds) histogram.Observe(*seconds);
  };
  observe(impl_->queue, intervals.queue);
  observe(impl_->prefill, intervals.prefill);
  observe(impl_->decode, intervals.decode);
  observe(impl_->inference, intervals.inference);
  observe(impl_->per_token, intervals.time_per_output_token);
  impl_->computed_prompt.Observe(record.computed_prompt_tokens);
  impl_->request_preemptions.Observe(record.times->num_preemptions);
}

void Metrics::ObserveFailure(bool aborted) {
  (aborted ? impl_->abort : impl_->error).Increment();
}

void Metrics::ObserveHttp(std::string_view handler, std::string_view method, int status, double seconds) {
  const Labels labels{{"handler", std::string(handler)}, {"method", std::string(method)}};
  Labels with_status = labels;
  with_status.emplace("status", std::to_string(status));
  impl_->http_requests.Add(with_status).Increment();
  impl_->http_duration.Add(labels, kHttpBuckets).Observe(seconds);
}

void Metrics::Update(const EngineStats& stats) {
  const std::lock_guard lock(impl_->mutex);
  impl_->running.Set(stats.num_requests_running);
  impl_->waiting.Set(stats.num_requests_waiting);
  impl_->queued_tokens.Set(static_cast<double>(stats.num_queued_tokens));
  const int held = stats.num_blocks_total - stats.num_blocks_free - stats.num_blocks_cached;
  impl_->kv_usage.Set(stats.num_blocks_total > 0 ? static_cast<double>(held) / stats.num_blocks_total : 0.0);
  impl_->prefix_queries.Update(stats.prefix_cache_queries);
  impl_->prefix_hits.Update(stats.prefix_cache_hits);
  impl_->cached_tokens.Update(stats.prefix_cache_hits + stats.tier_hits);
  impl_->tier_hits.Update(stats.tier_hits);
  impl_->tier_backlog_lost.Update(stats.kv_tier_backlog_lost);
  for (const KvTierStats& tier : stats.kv_tiers) {
    Impl::Tier& kept = impl_->TierOf(tier.kind);
    for (std::size_t i = 0; i < std::size(kTierCounters); ++i) kept.counters[i].Update(tier.*kTierCounters[i].count);
    kept.bytes->Set(static_cast<double>(tier.num_bytes));
  }
  impl_->evicted.Update(stats.prefix_cache_evicted_blocks);
  impl_->evictions_capacity.Update(stats.block_evictions.capacity);
  impl_->evictions_expired.Update(stats.block_evictions.expired);
  impl_->evictions_retained.Update(stats.block_evictions.retained);
  impl_->evictions_reset.Update(stats.block_evictions.reset);
  impl_->retained_blocks.Set(stats.num_blocks_retained);
  impl_->block_lifetime.Update(stats.block_lifetime);
  impl_->block_idle.Update(stats.block_idle_before_evict);
  impl_->block_reuse_gap.Update(stats.block_reuse_gap);
  impl_->preemptions.Update(stats.preemptions);
  impl_->swap_usage.Set(stats.num_swap_blocks_total > 0
                            ? static_cast<double>(stats.num_swap_blocks_used) / stats.num_swap_blocks_total
                            : 0.0);
  impl_->swap_preemptions.Update(stats.swap_preemptions);
  impl_->swapped_out.Update(stats.swapped_out_blocks);
  impl_->swapped_in.Update(stats.swapped_in_blocks);
  impl_->shed.Update(stats.requests_shed);
  impl_->queue_timeouts.Update(stats.queue_timeouts);
  impl_->prompt_tokens.Update(stats.prompt_tokens);
  impl_->generation_tokens.Update(stats.generation_tokens);

  constexpr std::size_t kNumBuckets = std::size(kStepTokenBuckets) + 1;
  if (stats.step_tokens_histogram.size() != kNumBuckets) {  // an engine that has not stepped yet, or none
    impl_->step_tokens.clear();
    return;
  }
  if (stats.step_tokens_sum < impl_->step_tokens_sum || impl_->step_tokens.empty()) {
    impl_->step_tokens.assign(kNumBuckets, 0);
    impl_->step_tokens_sum = 0;
  }
  std::vector<double> increments(kNumBuckets);
  for (std::size_t i = 0; i < kNumBuckets; ++i) {
    const std::uint64_t now = stats.step_tokens_histogram[i];
    increments[i] = static_cast<double>(now - std::min(now, impl_->step_tokens[i]));
  }
  impl_->iteration_tokens.ObserveMultiple(increments,
                                          static_cast<double>(stats.step_tokens_sum - impl_->step_tokens_sum));
  impl_->step_tokens = stats.step_tokens_histogram;
  impl_->step_tokens_sum = stats.step_tokens_sum;
}

void Metrics::UpdateSpans(std::uint64_t exported, std::uint64_t dropped) {
  const std::lock_guard lock(impl_->mutex);
  impl_->exported_spans.Update(exported);
  impl_->dropped_spans.Update(dropped);
}

void Metrics::SetInfo(const EngineInfo& info) {
  Labels labels = impl_->labels;
  labels.emplace("block_size", std::to_string(info.block_size));
  labels.emplace("num_gpu_blocks", std::to_string(info.num_blocks));
  labels.emplace("cache_dtype", info.kv_dtype);
  prometheus::BuildGauge()
      .Name("vllm:cache_config_info")
      .Help("The KV pool.")
      .Register(impl_->registry)
      .Add(labels)
      .Set(1);
}

std::string Metrics::Serialize() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace quire::server
