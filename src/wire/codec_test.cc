// Messages survive the journey, and bytes that are no message are refused.
#include "wire/codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

namespace quire::wire {
namespace {

// Frames must lie aligned, as FrameSocket leaves them.
struct Frame {
  std::vector<std::uint64_t> words;
  std::size_t size = 0;
  explicit Frame(std::span<const std::byte> bytes) : words((bytes.size() + 7) / 8), size(bytes.size()) {
    if (size > 0) std::memcpy(words.data(), bytes.data(), size);
  }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)).first(size); }
};

template <typename T>
T RoundTrip(const T& value, std::uint64_t call = 7) {
  Encoder encoder;
  Frame frame(encoder.Encode(call, value));
  Result<Message> message = Decode(frame.bytes());
  EXPECT_TRUE(message.has_value()) << message.error().message;
  EXPECT_EQ(message->call, call);
  return std::get<T>(std::move(message->body));
}

PositionLogprobs RandomPosition(std::mt19937& random) {
  PositionLogprobs position;
  const auto entry = [&] {
    return TokenLogprob{TokenId(static_cast<int>(random() % 1000)), -static_cast<float>(random() % 100) / 7,
                        static_cast<int>(random() % 50)};
  };
  position.chosen = entry();
  for (std::size_t i = random() % 5; i > 0; --i) position.top.push_back(entry());
  return position;
}

EngineEvent RandomEvent(std::mt19937& random) {
  EngineEvent event{.request = RequestId(random()), .choice = static_cast<int>(random() % 4)};
  for (std::size_t i = random() % 6; i > 0; --i) {
    event.tokens.emplace_back(static_cast<int>(random() % 100000));
  }
  if (random() % 2 != 0) {
    for (std::size_t i = 0; i < event.tokens.size(); ++i) event.logprobs.push_back(RandomPosition(random));
  }
  if (random() % 2 != 0) {
    event.prompt_logprobs.emplace_back();
    for (std::size_t i = random() % 4; i > 0; --i) event.prompt_logprobs.emplace_back(RandomPosition(random));
  }
  event.finish_reason = static_cast<FinishReason>(random() % 6);
  if (random() % 2 != 0) event.stop_token = TokenId(static_cast<int>(random() % 100));
  event.ended_by_text = random() % 2 != 0;
  event.num_cached_tokens = static_cast<int>(random() % 100);
  event.times.queued = TimePoint(Duration(static_cast<std::int64_t>(random())));
  event.times.last_token = TimePoint(Duration(std::numeric_limits<std::int64_t>::max()));
  event.times.num_preemptions = static_cast<int>(random() % 3);
  event.times.num_steps = static_cast<int>(random() % 100);
  event.times.inference_begin = TimePoint(Duration(1));
  event.times.inference_end = TimePoint(Duration(2));
  event.times.finished = TimePoint(Duration(3));
  event.times.longest_token_gap = Duration(4);
  for (int i = 0; i < event.times.num_preemptions; ++i) {
    event.times.marks.push_back({LifeChange::kPreempted, TimePoint(Duration(100 + i))});
    event.times.marks.push_back({LifeChange::kScheduled, TimePoint(Duration(200 + i))});
  }
  if (event.finish_reason == FinishReason::kError) event.error = "außer Speicher";
  if (event.finish_reason == FinishReason::kShed) event.retry_after_s = static_cast<int>(random() % 100);
  return event;
}

void ExpectEqual(const EngineEvent& a, const EngineEvent& b) {
  EXPECT_EQ(a.request, b.request);
  EXPECT_EQ(a.choice, b.choice);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.logprobs, b.logprobs);
  EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
  EXPECT_EQ(a.finish_reason, b.finish_reason);
  EXPECT_EQ(a.stop_token, b.stop_token);
  EXPECT_EQ(a.ended_by_text, b.ended_by_text);
  EXPECT_EQ(a.num_cached_tokens, b.num_cached_tokens);
  EXPECT_TRUE(a.times == b.times);
  EXPECT_EQ(a.error, b.error);
  EXPECT_EQ(a.retry_after_s, b.retry_after_s);
}

TEST(Codec, EventsSurvive) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<EngineEvent> events;
    std::size_t bound = 1024;
    for (std::size_t i = random() % 4; i > 0; --i) {
      events.push_back(RandomEvent(random));
      bound += EncodedBytesMax(events.back());
    }
    Encoder encoder;
    Frame frame(encoder.Encode(0, std::span<const EngineEvent>(events)));
    EXPECT_LE(frame.size, bound);
    const Result<Message> message = Decode(frame.bytes());
    ASSERT_TRUE(message.has_value()) << message.error().message;
    const auto& decoded = std::get<std::vector<EngineEvent>>(message->body);
    ASSERT_EQ(decoded.size(), events.size());
    for (std::size_t i = 0; i < events.size(); ++i) ExpectEqual(decoded[i], events[i]);
  }
}

TEST(Codec, NegativeInfinityIsALogprob) {
  EngineEvent event;
  event.tokens = {TokenId(5)};
  event.logprobs = {{.chosen = {TokenId(5), -std::numeric_limits<float>::infinity(), 9}, .top = {}}};
  Encoder encoder;
  Frame frame(encoder.Encode(0, std::span<const EngineEvent>(&event, 1)));
  EXPECT_TRUE(Decode(frame.bytes()).has_value());
  event.logprobs[0].chosen.logprob = std::numeric_limits<float>::quiet_NaN();
  Frame nan(encoder.Encode(0, std::span<const EngineEvent>(&event, 1)));
  EXPECT_EQ(Decode(nan.bytes()).error().code, ErrorCode::kCorrupt);
}

TEST(Codec, RequestsSurvive) {
  GenerateRequest request;
  request.id = RequestId(~std::uint64_t{0});
  request.prompt = {TokenId(1), TokenId(151'000), TokenId(0)};
  request.cache_salt = std::string("a\0b", 3);
  request.cache_retention_s = 77;
  request.sampling = {.temperature = 0.7,
                      .top_k = 40,
                      .top_p = 0.9,
                      .min_p = 0.05,
                      .repetition_penalty = 1.1,
                      .presence_penalty = -1,
                      .frequency_penalty = 2,
                      .logit_bias = {{TokenId(3), -100.f}},
                      .seed = ~std::uint64_t{0},
                      .n = 3,
                      .logprobs = 0,
                      .prompt_logprobs = 5,
                      .beam = BeamParams{.width = 4, .length_penalty = -0.5, .early_stopping = EarlyStopping::kNever}};
  request.stop = {.max_tokens = 100,
                  .min_tokens = 3,
                  .ignore_eos = true,
                  .stop_token_ids = {TokenId(9)},
                  .stop_strings = {"a", std::string(5000, 'b')},
                  .skip_special_tokens = false};
  request.terms = {
      .priority = -7, .ttft_ms = 250.5, .tpot_ms = 12.25, .queue_timeout_ms = 9000, .tenant = 65535, .route = 1};
  EXPECT_GE(EncodedBytesMax(request), Encoder().Encode(0, request).size());
  const GenerateRequest decoded = RoundTrip(request);
  EXPECT_EQ(decoded.id, request.id);
  EXPECT_EQ(decoded.prompt, request.prompt);
  EXPECT_EQ(decoded.cache_salt, request.cache_salt);
  EXPECT_EQ(decoded.cache_retention_s, 77);
  EXPECT_EQ(decoded.sampling.temperature, request.sampling.temperature);
  EXPECT_EQ(decoded.sampling.top_k, request.sampling.top_k);
  EXPECT_EQ(decoded.sampling.top_p, request.sampling.top_p);
  EXPECT_EQ(decoded.sampling.min_p, request.sampling.min_p);
  EXPECT_EQ(decoded.sampling.repetition_penalty, request.sampling.repetition_penalty);
  EXPECT_EQ(decoded.sampling.presence_penalty, request.sampling.presence_penalty);
  EXPECT_EQ(decoded.sampling.frequency_penalty, request.sampling.frequency_penalty);
  EXPECT_EQ(decoded.sampling.logit_bias, request.sampling.logit_bias);
  EXPECT_EQ(decoded.sampling.seed, request.sampling.seed);
  EXPECT_EQ(decoded.sampling.n, request.sampling.n);
  EXPECT_EQ(decoded.sampling.logprobs, request.sampling.logprobs);
  EXPECT_EQ(decoded.sampling.prompt_logprobs, request.sampling.prompt_logprobs);
  EXPECT_EQ(decoded.stop.max_tokens, request.stop.max_tokens);
  EXPECT_EQ(decoded.stop.min_tokens, request.stop.min_tokens);
  EXPECT_EQ(decoded.stop.ignore_eos, request.stop.ignore_eos);
  EXPECT_EQ(decoded.stop.stop_token_ids, request.stop.stop_token_ids);
  EXPECT_EQ(decoded.sampling.beam, request.sampling.beam);
  EXPECT_EQ(decoded.stop.stop_strings, request.stop.stop_strings);
  EXPECT_EQ(decoded.stop.skip_special_tokens, request.stop.skip_special_tokens);
  EXPECT_EQ(decoded.terms, request.terms);

  request.sampling.beam.reset();
  EXPECT_FALSE(RoundTrip(request).sampling.beam.has_value());
  request.sampling.beam.emplace();
  EXPECT_EQ(RoundTrip(request).sampling.beam, BeamParams{});
  request.sampling.logprobs.reset();
  request.sampling.prompt_logprobs.reset();
  EXPECT_FALSE(RoundTrip(request).sampling.logprobs.has_value());
  EXPECT_FALSE(RoundTrip(request).sampling.prompt_logprobs.has_value());
}

TEST(Codec, TheRestSurvives) {
  EngineInfo info{.model_path = "a/b",
                  .architecture = "Qwen3ForCausalLM",
                  .weight_formats = "BF16",
                  .isa = "avx2",
                  .num_parameters = 1'000'000'000'000,
                  .weight_bytes = 5,
                  .num_threads = 2,
                  .vocab_size = 7,
                  .max_model_len = 8,
                  .block_size = 16,
                  .num_blocks = 9,
                  .max_num_seqs = 10,
                  .max_num_batched_tokens = 11,
                  .kv_dtype = "bf16",
                  .load_seconds = 1.5,
                  .scheduling_policy = "slo"};
  const EngineInfo decoded = RoundTrip(info);
  EXPECT_EQ(decoded.model_path, info.model_path);
  EXPECT_EQ(decoded.num_parameters, info.num_parameters);
  EXPECT_EQ(decoded.kv_dtype, info.kv_dtype);
  EXPECT_EQ(decoded.load_seconds, info.load_seconds);
  EXPECT_EQ(decoded.scheduling_policy, info.scheduling_policy);
  EXPECT_EQ(decoded.max_num_batched_tokens, info.max_num_batched_tokens);

  EngineStats stats;
  stats.num_blocks_cached = 4;
  stats.steps = 1'000'000'000'000;
  stats.num_swap_blocks_total = 9;
  stats.num_swap_blocks_used = 8;
  stats.swap_preemptions = 7;
  stats.swapped_out_blocks = 60;
  stats.swapped_in_blocks = 50;
  stats.tier_hits = 40;
  stats.kv_tier_backlog_lost = 30;
  stats.kv_tiers = {{.kind = KvTierKind::kDisk, .num_blocks = 1, .num_bytes = 2, .hits = 3, .evictions = 4},
                    {.kind = KvTierKind::kRedis, .errors = 5, .damaged = 6}};
  stats.step_tokens_histogram = {1, 2, 3};
  stats.step_tokens_sum = 6;
  stats.num_queued_tokens = 5'000'000'000;
  stats.requests_shed = 8;
  stats.queue_timeouts = 9;
  stats.block_evictions = {.capacity = 1, .expired = 2, .retained = 3, .reset = 4};
  stats.num_blocks_retained = 5;
  stats.block_lifetime.Add(std::chrono::seconds(3), 7);
  stats.block_idle_before_evict.Add(std::chrono::hours(1));
  stats.block_reuse_gap.Add(Duration());
  EXPECT_EQ(RoundTrip(stats).block_evictions, stats.block_evictions);
  EXPECT_EQ(RoundTrip(stats).num_blocks_retained, 5);
  EXPECT_EQ(RoundTrip(stats).block_lifetime, stats.block_lifetime);
  EXPECT_EQ(RoundTrip(stats).block_idle_before_evict, stats.block_idle_before_evict);
  EXPECT_EQ(RoundTrip(stats).block_reuse_gap, stats.block_reuse_gap);
  EXPECT_EQ(RoundTrip(stats).num_blocks_cached, 4);
  EXPECT_EQ(RoundTrip(stats).steps, stats.steps);
  EXPECT_EQ(RoundTrip(stats).num_swap_blocks_total, 9);
  EXPECT_EQ(RoundTrip(stats).num_swap_blocks_used, 8);
  EXPECT_EQ(RoundTrip(stats).swap_preemptions, 7u);
  EXPECT_EQ(RoundTrip(stats).swapped_out_blocks, 60u);
  EXPECT_EQ(RoundTrip(stats).swapped_in_blocks, 50u);
  EXPECT_EQ(RoundTrip(stats).tier_hits, 40u);
  EXPECT_EQ(RoundTrip(stats).kv_tier_backlog_lost, 30u);
  EXPECT_EQ(RoundTrip(stats).kv_tiers, stats.kv_tiers);
  EXPECT_EQ(RoundTrip(stats).step_tokens_histogram, stats.step_tokens_histogram);
  EXPECT_EQ(RoundTrip(stats).step_tokens_sum, 6u);
  EXPECT_EQ(RoundTrip(stats).num_queued_tokens, 5'000'000'000);
  EXPECT_EQ(RoundTrip(stats).requests_shed, 8u);
  EXPECT_EQ(RoundTrip(stats).queue_timeouts, 9u);

  EXPECT_TRUE(RoundTrip(Status()).has_value());
  const Status failed = RoundTrip(Status(std::unexpected(Error{ErrorCode::kOutOfRange, "too long", "prompt"})));
  EXPECT_EQ(failed.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(failed.error().message, "too long");
  EXPECT_EQ(failed.error().param, "prompt");
  EXPECT_EQ(RoundTrip(LoadProgress{3, 5, "lm_head"}).tensor, "lm_head");
  EXPECT_EQ(RoundTrip(AbortRequest{RequestId(3), std::nullopt}).request, RequestId(3));
  EXPECT_EQ(RoundTrip(AbortRequest{RequestId(3), std::nullopt}).choice, std::nullopt);
  EXPECT_EQ(RoundTrip(AbortRequest{RequestId(3), 2}).choice, 2);
  EXPECT_EQ(RoundTrip(Hello{77}).version, 77u);
}

TEST(Codec, TracesSurvive) {
  Encoder encoder;
  for (const TraceCommand command : {TraceCommand::kStart, TraceCommand::kTake, TraceCommand::kStop}) {
    Frame frame(encoder.Encode(3, TraceRequest{command}));
    const Result<Message> message = Decode(frame.bytes());
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(std::get<TraceRequest>(message->body).command, command);
  }
  TraceBatch batch;
  batch.now = TimePoint(Duration(77));
  batch.is_on = true;
  batch.pid = 4711;
  batch.lanes.push_back({.name = "engine",
                         .events = {{.begin = TimePoint(Duration(5)),
                                     .duration = Duration(6),
                                     .label = TraceLabel::kAttention,
                                     .values = {1, -2, 3}},
                                    {.begin = TimePoint(Duration(7)), .duration = {}, .label = TraceLabel::kQueue}},
                         .dropped = 9});
  batch.lanes.push_back({.name = "empty", .events = {}, .dropped = 0});
  Frame frame(encoder.Encode(4, batch));
  const Result<Message> message = Decode(frame.bytes());
  ASSERT_TRUE(message.has_value()) << message.error().message;
  const auto& decoded = std::get<TraceBatch>(message->body);
  EXPECT_EQ(decoded.now, batch.now);
  EXPECT_EQ(decoded.is_on, batch.is_on);
  EXPECT_EQ(decoded.pid, batch.pid);
  ASSERT_EQ(decoded.lanes.size(), 2u);
  EXPECT_EQ(decoded.lanes[0].name, "engine");
  EXPECT_EQ(decoded.lanes[0].dropped, 9u);
  EXPECT_EQ(decoded.lanes[0].events, batch.lanes[0].events);
  EXPECT_TRUE(decoded.lanes[1].events.empty());

  batch.lanes[0].events[0].label = TraceLabel::kNumLabels;
  Frame unknown(encoder.Encode(4, batch));
  EXPECT_EQ(Decode(unknown.bytes()).error().code, ErrorCode::kCorrupt);
  batch.lanes[0].events[0] = {.begin = {}, .duration = Duration(-1), .label = TraceLabel::kStep};
  Frame backwards(encoder.Encode(4, batch));
  EXPECT_EQ(Decode(backwards.bytes()).error().code, ErrorCode::kCorrupt);
}

TEST(Codec, WhatIsOutOfRangeIsRefused) {
  const auto refused = [](const auto& value) {
    Encoder encoder;
    Frame frame(encoder.Encode(0, value));
    const Result<Message> message = Decode(frame.bytes());
    return !message && message.error().code == ErrorCode::kCorrupt;
  };
  const auto event_is_refused = [&](const EngineEvent& event) { return refused(std::span(&event, 1)); };
  EngineEvent event;
  EXPECT_FALSE(event_is_refused(event));
  event.choice = -1;
  EXPECT_TRUE(event_is_refused(event));
  event = {.finish_reason = static_cast<FinishReason>(17)};
  EXPECT_TRUE(event_is_refused(event));
  event = {.num_cached_tokens = -5};
  EXPECT_TRUE(event_is_refused(event));
  event = {.tokens = {TokenId(1)}};
  event.logprobs.resize(2);  // more positions than tokens
  EXPECT_TRUE(event_is_refused(event));
  GenerateRequest request;
  EXPECT_FALSE(refused(request));
  request.sampling.beam = {.early_stopping = static_cast<EarlyStopping>(3)};
  EXPECT_TRUE(refused(request));
  request.sampling.beam = {.width = -1};
  EXPECT_TRUE(refused(request));
  EXPECT_TRUE(refused(EngineInfo{}));  // a vocabulary of 0
  EXPECT_TRUE(refused(EngineStats{.num_requests_running = -1}));
  EXPECT_TRUE(refused(EngineStats{.kv_tiers = std::vector<KvTierStats>(9)}));
  EXPECT_TRUE(refused(EngineStats{.kv_tiers = {{.num_bytes = -1}}}));
  EXPECT_TRUE(refused(EngineStats{.num_queued_tokens = -1}));
  EXPECT_TRUE(refused(EngineStats{.num_blocks_retained = -1}));
  EXPECT_TRUE(refused(EngineStats{.block_lifetime = {.sum_s = -1}}));
  EXPECT_TRUE(refused(EngineStats{.step_tokens_histogram = std::vector<std::uint64_t>(100)}));
  EXPECT_TRUE(refused(LoadProgress{-1, 5, ""}));
  EXPECT_TRUE(refused(Status(std::unexpected(Error{static_cast<ErrorCode>(99), ""}))));
}

TEST(Codec, DamagedFramesNeverDoHarm) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Encoder encoder;
  for (int round = 0; round < 3000; ++round) {
    const EngineEvent event = RandomEvent(random);
    Frame frame(encoder.Encode(1, std::span(&event, 1)));
    std::span<std::byte> bytes = frame.bytes();
    for (std::size_t i = 1 + random() % 4; i > 0; --i)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    (void)Decode(bytes);  // the sanitizers watch
    Frame cut(bytes.first(random() % bytes.size()));
    EXPECT_FALSE(Decode(cut.bytes()).has_value());
  }
}

TEST(Codec, TheIdentifierMustBeOurs) {
  Encoder encoder;
  Frame frame(encoder.Encode(0, Hello{}));
  frame.bytes()[8] = std::byte{'X'};  // prefix, root offset, then the identifier
  EXPECT_EQ(Decode(frame.bytes()).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace quire::wire
