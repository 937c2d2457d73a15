// The half of codec.h that writes.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "wire/codec.h"
#include "wire/flat_protocol.h"

namespace quire::wire {
namespace {

constexpr int kLogprobCountMax = std::numeric_limits<std::uint16_t>::max();

flatbuffers::Offset<flatbuffers::Vector<std::int32_t>> EncodeIds(flatbuffers::FlatBufferBuilder& builder,
                                                                 std::span<const TokenId> ids) {
  return builder.CreateVector(reinterpret_cast<const std::int32_t*>(ids.data()), ids.size());
}

struct EncodedPositions {
  std::vector<fbs::TokenLogprob> entries;
  std::vector<std::uint16_t> counts;

  void Add(const PositionLogprobs& position) {
    const auto count = std::min<std::size_t>(position.top.size() + 1, kLogprobCountMax);
    counts.push_back(static_cast<std::uint16_t>(count));
    entries.emplace_back(position.chosen.id.value(), position.chosen.logprob, position.chosen.rank);
    for (std::size_t i = 0; i + 1 < count; ++i) {
      entries.emplace_back(position.top[i].id.value(), position.top[i].logprob, position.top[i].rank);
    }
  }
};

std::int64_t Nanoseconds(TimePoint time) {
  return time.time_since_epoch().count();
}

fbs::RequestTimes EncodeTimes(const RequestTimes& times) {
  return {Nanoseconds(times.queued),
          Nanoseconds(times.first_scheduled),
          Nanoseconds(times.last_scheduled),
          Nanoseconds(times.first_token),
          Nanoseconds(times.last_token),
          times.num_preemptions,
          times.num_steps,
          Nanoseconds(times.inference_begin),
          Nanoseconds(times.inference_end),
          Nanoseconds(times.finished),
          times.longest_token_gap.count()};
}

flatbuffers::Offset<fbs::Event> EncodeEvent(flatbuffers::FlatBufferBuilder& builder, const EngineEvent& event) {
  EncodedPositions output, prompt;
  for (const PositionLogprobs& position : event.logprobs) output.Add(position);
  for (const std::optional<PositionLogprobs>& position : event.prompt_logprobs) {
    if (position) {
      prompt.Add(*position);
    } else {
      prompt.counts.push_back(0);
    }
  }
  const auto tokens = EncodeIds(builder, event.tokens);
  const auto logprobs = builder.CreateVectorOfStructs(output.entries);
  const auto counts = builder.CreateVector(output.counts);
  const auto prompt_logprobs = builder.CreateVectorOfStructs(prompt.entries);
  const auto prompt_counts = builder.CreateVector(prompt.counts);
  const auto error =
      event.error.empty() ? flatbuffers::Offset<flatbuffers::String>() : builder.CreateString(Shortened(event.error));
  const fbs::RequestTimes times = EncodeTimes(event.times);
  flatbuffers::Offset<flatbuffers::Vector<const fbs::LifeMark*>> marks;
  if (!event.times.marks.empty()) {
    std::vector<fbs::LifeMark> encoded;
    for (const LifeMark& mark : event.times.marks) {
      encoded.emplace_back(Nanoseconds(mark.at), static_cast<std::uint8_t>(mark.change));
    }
    marks = builder.CreateVectorOfStructs(encoded);
  }
  return fbs::CreateEvent(builder, event.request.value(), event.choice, tokens, logprobs, counts, prompt_logprobs,
                          prompt_counts, static_cast<std::uint8_t>(event.finish_reason),
                          event.stop_token ? event.stop_token->value() : -1, event.num_cached_tokens, &times, error,
                          event.ended_by_text, marks, event.retry_after_s);
}

flatbuffers::Offset<fbs::DurationHistogram> EncodeDurations(flatbuffers::FlatBufferBuilder& flat,
                                                            const DurationHistogram& histogram) {
  const auto counts = flat.CreateVector(histogram.counts.data(), histogram.counts.size());
  return fbs::CreateDurationHistogram(flat, counts, histogram.sum_s);
}

}  // namespace

struct Encoder::Builder {
  flatbuffers::FlatBufferBuilder flat{4096};

  template <typename T>
  std::span<const std::byte> Finish(std::uint64_t call, flatbuffers::Offset<T> body) {
    flat.FinishSizePrefixed(fbs::CreateMessage(flat, call, fbs::BodyTraits<T>::enum_value, body.Union()),
                            fbs::MessageIdentifier());
    CHECK(flat.GetSize() <= kFrameBytesMax);  // callers have asked EncodedBytesMax first
    return std::as_bytes(std::span(flat.GetBufferPointer(), flat.GetSize()));
  }
};

Encoder::Encoder() : builder_(std::make_unique<Builder>()) {}
Encoder::~Encoder() = default;

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const Hello& hello) {
  builder_->flat.Clear();
  return builder_->Finish(call, fbs::CreateHello(builder_->flat, hello.version));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const LoadProgress& progress) {
  flatbuffers::FlatBufferBuilder& flat = builder_->flat;
  flat.Clear();
  const auto tensor = flat.CreateString(Shortened(progress.tensor));
  return builder_->Finish(call, fbs::CreateProgress(flat, progress.done_bytes, progress.total_bytes, tensor));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const EngineInfo& info) {
  flatbuffers::FlatBufferBuilder& flat = builder_->flat;
  flat.Clear();
  const auto model_path = flat.CreateString(Shortened(info.model_path));
  const auto architecture = flat.CreateString(Shortened(info.architecture));
  const auto weight_formats = flat.CreateString(Shortened(info.weight_formats));
  const auto isa = flat.CreateString(Shortened(info.isa));
  const auto kv_dtype = flat.CreateString(Shortened(info.kv_dtype));
  const auto policy = flat.CreateString(Shortened(info.scheduling_policy));
  return builder_->Finish(
      call,
      fbs::CreateReady(flat, model_path, architecture, weight_formats, isa, info.num_parameters, info.weight_bytes,
                       info.num_threads, info.vocab_size, info.max_model_len, info.block_size, info.num_blocks,
                       info.max_num_seqs, info.max_num_batched_tokens, kv_dtype, info.load_seconds, policy));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const Status& status) {
  flatbuffers::FlatBufferBuilder& flat = builder_->flat;
  flat.Clear();
  if (status.has_value()) return builder_->Finish(call, fbs::CreateStatus(flat, true));
  const Error& error = status.error();
  const auto message = flat.CreateString(Shortened(error.message));
  const auto param = flat.CreateString(Shortened(error.param));
  return builder_->Finish(call, fbs::CreateStatus(flat, false, static_cast<std::uint8_t>(error.code), message, param));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const GenerateRequest& request) {
  flatbuffers::FlatBufferBuilder& flat = builder_->flat;
  flat.Clear();
  const SamplingParams& sampling = request.sampling;
  const ServiceTerms& terms = request.terms;
  std::vector<fbs::LogitBias> biases;
  biases.reserve(sampling.logit_bias.size());
  for (const auto& [id, bias] : sampling.logit_bias) biases.emplace_back(id.value(), bias);
  const auto prompt = EncodeIds(flat, request.prompt);
  const auto salt = flat.CreateString(request.cache_salt);
  const auto logit_bias = flat.CreateVectorOfStructs(biases);
  const auto stop_ids = EncodeIds(flat, request.stop.stop_token_ids);
  const auto stop_strings = flat.CreateVectorOfStrings(request.stop.stop_strings);
  const BeamParams beam = sampling.beam.value_or(BeamParams{.width = 0});
  return builder_->Finish(
      call,
      fbs::CreateSubmit(flat, request.id.value(), prompt, salt, sampling.temperature, sampling.top_k, sampling.top_p,
                        sampling.min_p, sampling.repetition_penalty, sampling.presence_penalty,
                        sampling.frequency_penalty, logit_bias, sampling.seed, sampling.n,
                        sampling.logprobs.value_or(-1), sampling.prompt_logprobs.value_or(-1), request.stop.max_tokens,
                        request.stop.min_tokens, request.stop.ignore_eos, stop_ids, beam.width, beam.length_penalty,
                        static_cast<std::uint8_t>(beam.early_stopping), stop_strings, request.stop.skip_special_tokens,
                        terms.priority, terms.ttft_ms, terms.tpot_ms, terms.queue_timeout_ms, terms.tenant, terms.route,
                        request.cache_retention_s));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const AbortRequest& abort) {
  builder_->flat.Clear();
  return builder_->Finish(call, fbs::CreateAbort(builder_->flat, abort.request.value(), abort.choice.value_or(-1)));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const StatsRequest&) {
  builder_->flat.Clear();
  return builder_->Finish(call, fbs::CreateStatsRequest(builder_->flat));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const EngineStats& stats) {
  flatbuffers::FlatBufferBuilder& flat = builder_->flat;
  flat.Clear();
  const auto histogram = flat.CreateVector(stats.step_tokens_histogram);
  std::vector<flatbuffers::Offset<fbs::KvTierStats>> tiers;
  for (const KvTierStats& tier : stats.kv_tiers) {
    tiers.push_back(fbs::CreateKvTierStats(flat, static_cast<std::uint8_t>(tier.kind), tier.num_blocks, tier.num_bytes,
                                           tier.hits, tier.misses, tier.stored, tier.read_bytes, tier.written_bytes,
                                           tier.errors, tier.damaged, tier.evictions));
  }
  const auto kv_tiers = flat.CreateVector(tiers);
  const auto lifetime = EncodeDurations(flat, stats.block_lifetime);
  const auto idle = EncodeDurations(flat, stats.block_idle_before_evict);
  const auto reuse_gap = EncodeDurations(flat, stats.block_reuse_gap);
  const BlockEvictions& evictions = stats.block_evictions;
  return builder_->Finish(
      call,
      fbs::CreateStatsReply(
          flat, stats.num_requests_running, stats.num_requests_waiting, stats.num_blocks_total, stats.num_blocks_free,
          stats.num_blocks_cached, stats.prompt_tokens, stats.generation_tokens, stats.prefix_cache_queries,
          stats.prefix_cache_hits, stats.prefix_cache_evicted_blocks, stats.preemptions, stats.steps, histogram,
          stats.step_tokens_sum, stats.num_swap_blocks_total, stats.num_swap_blocks_used, stats.swap_preemptions,
          stats.swapped_out_blocks, stats.swapped_in_blocks, stats.tier_hits, kv_tiers, stats.kv_tier_backlog_lost,
          stats.num_queued_tokens, stats.requests_shed, stats.queue_timeouts, evictions.capacity, evictions.expired,
          evictions.retained, evictions.reset, stats.num_blocks_retained, lifetime, idle, reuse_gap));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const ResetPrefixCacheRequest&) {
  builder_->flat.Clear();
  return builder_->Finish(call, fbs::CreateResetPrefixCache(builder_->flat));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, std::span<const EngineEvent> events) {
  flatbuffers::FlatBufferBuilder& flat = builder_->flat;
  flat.Clear();
  std::vector<flatbuffers::Offset<fbs::Event>> offsets;
  offsets.reserve(events.size());
  for (const EngineEvent& event : events) offsets.push_back(EncodeEvent(flat, event));
  return builder_->Finish(call, fbs::CreateEvents(flat, flat.CreateVector(offsets)));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const TraceRequest& request) {
  builder_->flat.Clear();
  return builder_->Finish(call, fbs::CreateTraceRequest(builder_->flat, static_cast<std::uint8_t>(request.command)));
}

std::span<const std::byte> Encoder::Encode(std::uint64_t call, const TraceBatch& batch) {
  flatbuffers::FlatBufferBuilder& flat = builder_->flat;
  flat.Clear();
  std::vector<flatbuffers::Offset<fbs::TraceLane>> lanes;
  std::vector<fbs::TraceEvent> events;
  for (const TraceBatch::Lane& lane : batch.lanes) {
    events.clear();
    for (const TraceEvent& event : lane.events) {
      events.emplace_back(Nanoseconds(event.begin), event.duration.count(), static_cast<std::uint16_t>(event.label),
                          event.values[0], event.values[1], event.values[2]);
    }
    const auto name = flat.CreateString(Shortened(lane.name));
    lanes.push_back(fbs::CreateTraceLane(flat, name, lane.dropped, flat.CreateVectorOfStructs(events)));
  }
  return builder_->Finish(
      call, fbs::CreateTraceReply(flat, Nanoseconds(batch.now), batch.is_on, batch.pid, flat.CreateVector(lanes)));
}

std::size_t EncodedBytesMax(const EngineEvent& event) {
  // Tables, vector headers, scalars and padding come to about 300 bytes; 768 leaves room.
  std::size_t bytes = 768 + event.times.marks.size() * sizeof(fbs::LifeMark) +
                      event.tokens.size() * sizeof(std::int32_t) + std::min(event.error.size(), kTextBytesMax);
  const auto position_bytes = [](const PositionLogprobs& position) {
    return sizeof(std::uint16_t) + (position.top.size() + 1) * sizeof(fbs::TokenLogprob);
  };
  for (const PositionLogprobs& position : event.logprobs) bytes += position_bytes(position);
  for (const std::optional<PositionLogprobs>& position : event.prompt_logprobs) {
    bytes += position ? position_bytes(*position) : sizeof(std::uint16_t);
  }
  return bytes;
}

std::size_t EncodedBytesMax(const GenerateRequest& request) {
  std::size_t text_bytes = 0;
  for (const std::string& text : request.stop.stop_strings) text_bytes += text.size() + 16;
  return 512 + text_bytes + (request.prompt.size() + request.stop.stop_token_ids.size()) * sizeof(std::int32_t) +
         request.cache_salt.size() + request.sampling.logit_bias.size() * sizeof(fbs::LogitBias);
}

}  // namespace quire::wire
