// The half of codec.h that reads, and trusts nothing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "wire/codec.h"
#include "wire/flat_protocol.h"

namespace quire::wire {
namespace {

constexpr auto kLastErrorCode = ErrorCode::kInternal;
constexpr auto kLastEarlyStopping = EarlyStopping::kNever;
constexpr auto kLastTraceCommand = TraceCommand::kStop;
constexpr auto kLastLifeChange = LifeChange::kScheduled;
constexpr auto kLastFinishReason = FinishReason::kShed;

std::string DecodeText(const flatbuffers::String* text) {
  if (text == nullptr) return {};
  return SanitizeUtf8(Shortened(std::string_view(text->data(), text->size())));
}

std::vector<TokenId> DecodeIds(const flatbuffers::Vector<std::int32_t>* ids) {
  if (ids == nullptr) return {};
  std::vector<TokenId> out(ids->size());
  if (!out.empty()) std::memcpy(static_cast<void*>(out.data()), ids->data(), out.size() * sizeof(TokenId));
  return out;
}

Result<> NotNegative(std::string_view name, std::int64_t value) {
  if (value >= 0) return {};
  return Fail(ErrorCode::kCorrupt, "{} is {}; it must not be negative", name, value);
}

using LogprobVector = flatbuffers::Vector<const fbs::TokenLogprob*>;

// Splits flat entries into positions; an entry less or more than the counts say is an error.
Result<std::vector<std::optional<PositionLogprobs>>> DecodePositions(const LogprobVector* entries,
                                                                     const flatbuffers::Vector<std::uint16_t>* counts) {
  const std::size_t num_entries = entries == nullptr ? 0 : entries->size();
  const std::size_t num_positions = counts == nullptr ? 0 : counts->size();
  std::size_t total = 0;
  for (std::size_t i = 0; i < num_positions; ++i) total += counts->Get(static_cast<flatbuffers::uoffset_t>(i));
  if (total != num_entries) {
    return Fail(ErrorCode::kCorrupt, "an event has {} logprobs for positions that count {}", num_entries, total);
  }
  std::vector<std::optional<PositionLogprobs>> positions(num_positions);
  flatbuffers::uoffset_t next = 0;
  for (std::size_t i = 0; i < num_positions; ++i) {
    const std::size_t count = counts->Get(static_cast<flatbuffers::uoffset_t>(i));
    if (count == 0) continue;
    PositionLogprobs& position = positions[i].emplace();
    position.top.reserve(count - 1);
    for (std::size_t j = 0; j < count; ++j, ++next) {
      const fbs::TokenLogprob* entry = entries->Get(next);
      if (std::isnan(entry->logprob())) return Fail(ErrorCode::kCorrupt, "a logprob is NaN");
      const TokenLogprob value{TokenId(entry->id()), entry->logprob(), entry->rank()};
      if (j == 0) {
        position.chosen = value;
      } else {
        position.top.push_back(value);
      }
    }
  }
  return positions;
}

Result<RequestTimes> DecodeTimes(const fbs::Event& event) {
  RequestTimes out;
  const auto stamp = [](std::int64_t nanoseconds) { return TimePoint(Duration(nanoseconds)); };
  if (const fbs::RequestTimes* times = event.times()) {
    out.queued = stamp(times->queued());
    out.first_scheduled = stamp(times->first_scheduled());
    out.last_scheduled = stamp(times->last_scheduled());
    out.inference_begin = stamp(times->inference_begin());
    out.inference_end = stamp(times->inference_end());
    out.first_token = stamp(times->first_token());
    out.last_token = stamp(times->last_token());
    out.finished = stamp(times->finished());
    out.longest_token_gap = Duration(times->longest_token_gap());
    out.num_steps = times->num_steps();
    out.num_preemptions = times->num_preemptions();
  }
  if (event.life_marks() == nullptr) return out;
  if (event.life_marks()->size() > kLifeMarksMax) {
    return Fail(ErrorCode::kCorrupt, "an event has {} marks of its life; at most {} are sent",
                event.life_marks()->size(), kLifeMarksMax);
  }
  for (const fbs::LifeMark* mark : *event.life_marks()) {
    if (mark->change() > static_cast<std::uint8_t>(kLastLifeChange)) {
      return Fail(ErrorCode::kCorrupt, "the life change {} does not exist", mark->change());
    }
    out.marks.push_back({static_cast<LifeChange>(mark->change()), stamp(mark->at())});
  }
  return out;
}

Result<EngineEvent> DecodeEvent(const fbs::Event& event) {
  EngineEvent out;
  out.request = RequestId(event.request());
  out.choice = event.choice();
  QUIRE_TRY_VOID(NotNegative("the choice of an event", out.choice));
  const std::vector<TokenId> tokens = DecodeIds(event.tokens());
  out.tokens.assign(tokens.begin(), tokens.end());
  QUIRE_TRY(auto logprobs, DecodePositions(event.logprobs(), event.logprob_counts()));
  for (std::optional<PositionLogprobs>& position : logprobs) {
    if (!position) return Fail(ErrorCode::kCorrupt, "an output position has no logprob");
    out.logprobs.push_back(*std::move(position));
  }
  if (!out.logprobs.empty() && out.logprobs.size() != out.tokens.size()) {
    return Fail(ErrorCode::kCorrupt, "an event has {} tokens and logprobs for {}", out.tokens.size(),
                out.logprobs.size());
  }
  QUIRE_TRY(out.prompt_logprobs, DecodePositions(event.prompt_logprobs(), event.prompt_logprob_counts()));
  if (event.finish_reason() > static_cast<std::uint8_t>(kLastFinishReason)) {
    return Fail(ErrorCode::kCorrupt, "finish reason {} does not exist", event.finish_reason());
  }
  out.finish_reason = static_cast<FinishReason>(event.finish_reason());
  if (event.stop_token() >= 0) out.stop_token = TokenId(event.stop_token());
  out.num_cached_tokens = event.num_cached_tokens();
  QUIRE_TRY_VOID(NotNegative("num_cached_tokens of an event", out.num_cached_tokens));
  QUIRE_TRY(out.times, DecodeTimes(event));
  out.error = DecodeText(event.error());
  out.ended_by_text = event.ended_by_text();
  out.retry_after_s = event.retry_after_s();
  QUIRE_TRY_VOID(NotNegative("retry_after_s of an event", out.retry_after_s));
  return out;
}

Result<Body> DecodeEvents(const fbs::Events& events) {
  std::vector<EngineEvent> out;
  if (events.events() != nullptr) {
    out.reserve(events.events()->size());
    for (const fbs::Event* event : *events.events()) {
      QUIRE_TRY(EngineEvent decoded, DecodeEvent(*event));
      out.push_back(std::move(decoded));
    }
  }
  return out;
}

Result<> DecodeBeam(const fbs::Submit& submit, GenerateRequest* out) {
  QUIRE_TRY_VOID(NotNegative("beam_width", submit.beam_width()));
  if (submit.early_stopping() > static_cast<std::uint8_t>(kLastEarlyStopping)) {
    return Fail(ErrorCode::kCorrupt, "early_stopping {} does not exist", submit.early_stopping());
  }
  if (submit.beam_width() > 0) {
    out->sampling.beam = {.width = submit.beam_width(),
                          .length_penalty = submit.length_penalty(),
                          .early_stopping = static_cast<EarlyStopping>(submit.early_stopping())};
  }
  if (submit.stop_strings() != nullptr) {
    for (const flatbuffers::String* text : *submit.stop_strings()) out->stop.stop_strings.push_back(text->str());
  }
  out->stop.skip_special_tokens = submit.skip_special_tokens();
  return {};
}

Result<Body> DecodeSubmit(const fbs::Submit& submit) {
  GenerateRequest out;
  out.id = RequestId(submit.request());
  out.prompt = DecodeIds(submit.prompt());
  if (submit.cache_salt() != nullptr) out.cache_salt = submit.cache_salt()->str();
  SamplingParams& sampling = out.sampling;
  sampling.temperature = submit.temperature();
  sampling.top_k = submit.top_k();
  sampling.top_p = submit.top_p();
  sampling.min_p = submit.min_p();
  sampling.repetition_penalty = submit.repetition_penalty();
  sampling.presence_penalty = submit.presence_penalty();
  sampling.frequency_penalty = submit.frequency_penalty();
  if (submit.logit_bias() != nullptr) {
    for (const fbs::LogitBias* entry : *submit.logit_bias()) {
      sampling.logit_bias.emplace_back(TokenId(entry->id()), entry->bias());
    }
  }
  sampling.seed = submit.seed();
  sampling.n = submit.n();
  if (submit.logprobs() >= 0) sampling.logprobs = submit.logprobs();
  if (submit.prompt_logprobs() >= 0) sampling.prompt_logprobs = submit.prompt_logprobs();
  out.stop.max_tokens = submit.max_tokens();
  out.stop.min_tokens = submit.min_tokens();
  out.stop.ignore_eos = submit.ignore_eos();
  out.stop.stop_token_ids = DecodeIds(submit.stop_token_ids());
  QUIRE_TRY_VOID(DecodeBeam(submit, &out));
  out.terms = {.priority = submit.priority(),
               .ttft_ms = submit.ttft_ms(),
               .tpot_ms = submit.tpot_ms(),
               .queue_timeout_ms = submit.queue_timeout_ms(),
               .tenant = submit.tenant(),
               .route = submit.route()};
  out.cache_retention_s = submit.cache_retention_s();
  return out;
}

Result<Body> DecodeReady(const fbs::Ready& ready) {
  EngineInfo info;
  info.model_path = DecodeText(ready.model_path());
  info.architecture = DecodeText(ready.architecture());
  info.weight_formats = DecodeText(ready.weight_formats());
  info.isa = DecodeText(ready.isa());
  info.num_parameters = ready.num_parameters();
  info.weight_bytes = ready.weight_bytes();
  info.num_threads = ready.num_threads();
  info.vocab_size = ready.vocab_size();
  info.max_model_len = ready.max_model_len();
  info.block_size = ready.block_size();
  info.num_blocks = ready.num_blocks();
  info.max_num_seqs = ready.max_num_seqs();
  info.max_num_batched_tokens = ready.max_num_batched_tokens();
  info.kv_dtype = DecodeText(ready.kv_dtype());
  info.load_seconds = ready.load_seconds();
  info.scheduling_policy = DecodeText(ready.scheduling_policy());
  // The front end checks requests against these, so that they cannot be nonsense.
  for (const auto& [name, value] : {std::pair{"vocab_size", info.vocab_size},
                                    {"max_model_len", info.max_model_len},
                                    {"block_size", info.block_size},
                                    {"max_num_seqs", info.max_num_seqs},
                                    {"max_num_batched_tokens", info.max_num_batched_tokens}}) {
    if (value < 1) return Fail(ErrorCode::kCorrupt, "the engine says that its {} is {}", name, value);
  }
  return info;
}

Result<> DecodeKvTiers(const fbs::StatsReply& reply, EngineStats* stats) {
  if (reply.kv_tiers() == nullptr) return {};
  if (reply.kv_tiers()->size() > std::size(kKvTierKinds)) {
    return Fail(ErrorCode::kCorrupt, "an engine has {} tiers; at most {} exist", reply.kv_tiers()->size(),
                std::size(kKvTierKinds));
  }
  for (const fbs::KvTierStats* tier : *reply.kv_tiers()) {
    if (tier->kind() >= std::size(kKvTierKinds)) return Fail(ErrorCode::kCorrupt, "unknown tier {}", tier->kind());
    if (tier->num_blocks() < 0 || tier->num_bytes() < 0)
      return Fail(ErrorCode::kCorrupt, "a tier holds less than nothing");
    stats->kv_tiers.push_back({kKvTierKinds[tier->kind()], tier->num_blocks(), tier->num_bytes(), tier->hits(),
                               tier->misses(), tier->stored(), tier->read_bytes(), tier->written_bytes(),
                               tier->errors(), tier->damaged(), tier->evictions()});
  }
  return {};
}

Result<> DecodeDurations(const fbs::DurationHistogram* histogram, DurationHistogram* out) {
  if (histogram == nullptr || histogram->counts() == nullptr) return {};
  if (histogram->counts()->size() != out->counts.size() || !(histogram->sum_s() >= 0)) {
    return Fail(ErrorCode::kCorrupt, "a histogram of durations has {} buckets and the sum {}; {} buckets exist",
                histogram->counts()->size(), histogram->sum_s(), out->counts.size());
  }
  std::memcpy(out->counts.data(), histogram->counts()->Data(), sizeof(out->counts));  // bytes: aligned to 4 only
  out->sum_s = histogram->sum_s();
  return {};
}

Result<> DecodeCacheStats(const fbs::StatsReply& reply, EngineStats* stats) {
  stats->block_evictions = {.capacity = reply.evictions_capacity(),
                            .expired = reply.evictions_expired(),
                            .retained = reply.evictions_retained(),
                            .reset = reply.evictions_reset()};
  stats->num_blocks_retained = reply.num_blocks_retained();
  QUIRE_TRY_VOID(NotNegative("num_blocks_retained", stats->num_blocks_retained));
  QUIRE_TRY_VOID(DecodeDurations(reply.block_lifetime(), &stats->block_lifetime));
  QUIRE_TRY_VOID(DecodeDurations(reply.block_idle_before_evict(), &stats->block_idle_before_evict));
  return DecodeDurations(reply.block_reuse_gap(), &stats->block_reuse_gap);
}

Result<Body> DecodeStats(const fbs::StatsReply& reply) {
  EngineStats stats;
  stats.num_requests_running = reply.num_requests_running();
  stats.num_requests_waiting = reply.num_requests_waiting();
  stats.num_blocks_total = reply.num_blocks_total();
  stats.num_blocks_free = reply.num_blocks_free();
  stats.num_blocks_cached = reply.num_blocks_cached();
  for (const int gauge :
       {stats.num_requests_running, stats.num_requests_waiting, stats.num_blocks_total, stats.num_blocks_free,
        stats.num_blocks_cached, reply.num_swap_blocks_total(), reply.num_swap_blocks_used()}) {
    QUIRE_TRY_VOID(NotNegative("a gauge of the engine", gauge));
  }
  stats.prompt_tokens = reply.prompt_tokens();
  stats.generation_tokens = reply.generation_tokens();
  stats.prefix_cache_queries = reply.prefix_cache_queries();
  stats.prefix_cache_hits = reply.prefix_cache_hits();
  stats.prefix_cache_evicted_blocks = reply.prefix_cache_evicted_blocks();
  stats.preemptions = reply.preemptions();
  stats.tier_hits = reply.tier_hits();
  stats.kv_tier_backlog_lost = reply.kv_tier_backlog_lost();
  QUIRE_TRY_VOID(DecodeKvTiers(reply, &stats));
  stats.num_swap_blocks_total = reply.num_swap_blocks_total();
  stats.num_swap_blocks_used = reply.num_swap_blocks_used();
  stats.swap_preemptions = reply.swap_preemptions();
  stats.swapped_out_blocks = reply.swapped_out_blocks();
  stats.swapped_in_blocks = reply.swapped_in_blocks();
  stats.steps = reply.steps();
  if (const auto* histogram = reply.step_tokens_histogram()) {
    if (histogram->size() > std::size(kStepTokenBuckets) + 1) {
      return Fail(ErrorCode::kCorrupt, "a histogram has {} buckets; at most {} exist", histogram->size(),
                  std::size(kStepTokenBuckets) + 1);
    }
    // Copied as bytes: the verifier holds the elements of a vector to an alignment of 4 only.
    stats.step_tokens_histogram.resize(histogram->size());
    if (histogram->size() > 0) {
      std::memcpy(stats.step_tokens_histogram.data(), histogram->Data(), histogram->size() * sizeof(std::uint64_t));
    }
  }
  stats.step_tokens_sum = reply.step_tokens_sum();
  stats.num_queued_tokens = reply.num_queued_tokens();
  QUIRE_TRY_VOID(NotNegative("num_queued_tokens", stats.num_queued_tokens));
  stats.requests_shed = reply.requests_shed();
  stats.queue_timeouts = reply.queue_timeouts();
  QUIRE_TRY_VOID(DecodeCacheStats(reply, &stats));
  return stats;
}

Result<Body> DecodeStatus(const fbs::Status& status) {
  if (status.ok()) return Status();
  if (status.code() > static_cast<std::uint8_t>(kLastErrorCode)) {
    return Fail(ErrorCode::kCorrupt, "error code {} does not exist", status.code());
  }
  return Status(std::unexpected(
      Error{static_cast<ErrorCode>(status.code()), DecodeText(status.message()), DecodeText(status.param())}));
}

Result<Body> DecodeProgress(const fbs::Progress& progress) {
  QUIRE_TRY_VOID(NotNegative("done_bytes", progress.done_bytes()));
  QUIRE_TRY_VOID(NotNegative("total_bytes", progress.total_bytes()));
  return LoadProgress{progress.done_bytes(), progress.total_bytes(), DecodeText(progress.tensor())};
}

Result<Body> DecodeAbort(const fbs::Abort& abort) {
  AbortRequest request{.request = RequestId(abort.request()), .choice = std::nullopt};
  if (abort.choice() == -1) return request;
  QUIRE_TRY_VOID(NotNegative("choice", abort.choice()));
  request.choice = abort.choice();
  return request;
}

Result<Body> DecodeTraceRequest(const fbs::TraceRequest& request) {
  if (request.command() > static_cast<std::uint8_t>(kLastTraceCommand)) {
    return Fail(ErrorCode::kCorrupt, "the trace command {} does not exist", request.command());
  }
  return TraceRequest{static_cast<TraceCommand>(request.command())};
}

Result<Body> DecodeTraceReply(const fbs::TraceReply& reply) {
  TraceBatch batch;
  batch.now = TimePoint(Duration(reply.now()));
  batch.is_on = reply.is_on();
  batch.pid = reply.pid();
  if (reply.lanes() == nullptr) return batch;
  if (reply.lanes()->size() > Tracer::kLanesMax) {
    return Fail(ErrorCode::kCorrupt, "a trace has {} lanes; at most {} are sent", reply.lanes()->size(),
                Tracer::kLanesMax);
  }
  for (const fbs::TraceLane* lane : *reply.lanes()) {
    TraceBatch::Lane& out = batch.lanes.emplace_back();
    out.name = DecodeText(lane->name());
    out.dropped = lane->dropped();
    if (lane->events() == nullptr) continue;
    out.events.reserve(lane->events()->size());
    for (const fbs::TraceEvent* event : *lane->events()) {
      if (event->label() >= static_cast<std::uint16_t>(TraceLabel::kNumLabels)) {
        return Fail(ErrorCode::kCorrupt, "the trace label {} does not exist", event->label());
      }
      QUIRE_TRY_VOID(NotNegative("the duration of a trace event", event->duration()));
      out.events.push_back({.begin = TimePoint(Duration(event->begin())),
                            .duration = Duration(event->duration()),
                            .label = static_cast<TraceLabel>(event->label()),
                            .values = {event->value0(), event->value1(), event->value2()}});
    }
  }
  return batch;
}

Result<Body> DecodeBody(const fbs::Message& message) {
  switch (message.body_type()) {
    case fbs::Body::Hello:
      return Hello{message.body_as_Hello()->version()};
    case fbs::Body::Progress:
      return DecodeProgress(*message.body_as_Progress());
    case fbs::Body::Ready:
      return DecodeReady(*message.body_as_Ready());
    case fbs::Body::Status:
      return DecodeStatus(*message.body_as_Status());
    case fbs::Body::Submit:
      return DecodeSubmit(*message.body_as_Submit());
    case fbs::Body::Abort:
      return DecodeAbort(*message.body_as_Abort());
    case fbs::Body::StatsRequest:
      return StatsRequest{};
    case fbs::Body::StatsReply:
      return DecodeStats(*message.body_as_StatsReply());
    case fbs::Body::ResetPrefixCache:
      return ResetPrefixCacheRequest{};
    case fbs::Body::Events:
      return DecodeEvents(*message.body_as_Events());
    case fbs::Body::TraceRequest:
      return DecodeTraceRequest(*message.body_as_TraceRequest());
    case fbs::Body::TraceReply:
      return DecodeTraceReply(*message.body_as_TraceReply());
    case fbs::Body::NONE:
      break;
  }
  return Fail(ErrorCode::kCorrupt, "message type {} does not exist", static_cast<int>(message.body_type()));
}

}  // namespace

Result<Message> Decode(std::span<const std::byte> frame) {
  if (frame.size() < kFramePrefixBytes + 8 || frame.size() > kFrameBytesMax) {
    return Fail(ErrorCode::kCorrupt, "a frame of {} bytes; 12 to {} are allowed", frame.size(), kFrameBytesMax);
  }
  const auto* data = reinterpret_cast<const std::uint8_t*>(frame.data());
  if (flatbuffers::GetPrefixedSize(data) != frame.size() - kFramePrefixBytes) {
    return Fail(ErrorCode::kCorrupt, "a frame of {} bytes says that it has {}", frame.size(),
                flatbuffers::GetPrefixedSize(data));
  }
  flatbuffers::Verifier verifier(data, frame.size(), /*max_depth=*/16, /*max_tables=*/1 << 17);
  if (!fbs::VerifySizePrefixedMessageBuffer(verifier)) {
    return Fail(ErrorCode::kCorrupt, "a message of {} bytes is not well-formed", frame.size());
  }
  const fbs::Message* message = fbs::GetSizePrefixedMessage(data);
  if (message->body() == nullptr) return Fail(ErrorCode::kCorrupt, "a message has no body");
  QUIRE_TRY(Body body, DecodeBody(*message));
  return Message{message->call(), std::move(body)};
}

}  // namespace quire::wire
