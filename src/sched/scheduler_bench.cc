// What a step costs besides the model: Plan and Commit with 256 sequences that decode.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {
namespace {

constexpr int kNumSeqs = 256;

// A prompt that begins with `prefix` and goes on at random.
GenerateRequest MakeRequest(std::uint64_t id, const std::vector<TokenId>& prefix, int prompt_size, int max_tokens) {
  GenerateRequest request;
  request.id = RequestId(id);
  request.prompt = prefix;
  std::mt19937_64 random(id);
  while (static_cast<int>(request.prompt.size()) < prompt_size) {
    request.prompt.push_back(TokenId(static_cast<std::int32_t>(random() % 32000)));
  }
  request.stop.max_tokens = max_tokens;
  return request;
}

void Step(Scheduler* scheduler, BatchPlan* plan, StepResult* result, std::vector<EngineEvent>* events) {
  events->clear();
  static TimePoint now{};  // the clock of all benchmarks
  scheduler->Shed(now, events);
  scheduler->Plan(now, plan);
  result->sequences.resize(plan->sequences.size());
  for (std::size_t i = 0; i < plan->sequences.size(); ++i) {
    if (plan->sequences[i].samples) {
      result->sequences[i].tokens.assign(1, TokenId(7));
    } else {
      result->sequences[i].tokens.clear();
    }
  }
  now += std::chrono::milliseconds(10);
  scheduler->Commit(plan, result, now, events);
}

constexpr int kBlockSize = 16;
constexpr int kCachedPromptBlocks = 250;

// Puts `num_blocks` blocks in the prefix cache: prompts of 4,000 tokens, a hundred of which share each beginning.
void FillCache(Scheduler* scheduler, int num_blocks, BatchPlan* plan, StepResult* result,
               std::vector<EngineEvent>* events) {
  std::uint64_t id = 1'000'000;
  while (scheduler->kv().num_evictable_blocks() < num_blocks) {
    const std::vector<TokenId> beginning = MakeRequest(id / 100, {}, 8 * kBlockSize, 0).prompt;
    CHECK(scheduler->Add(MakeRequest(id++, beginning, kCachedPromptBlocks * kBlockSize, 1), TimePoint()).has_value());
    while (scheduler->has_unfinished()) Step(scheduler, plan, result, events);
  }
}

// The arguments are the policy, the number of requests that wait, and the number of blocks that are cached. All that
// wait begin with the same 512 tokens, which are cached, and the first does not fit beside those that run: the policy
// orders them in every step, and nobody is admitted.
void BM_DecodeStep(benchmark::State& state) {
  const auto policy = static_cast<PolicyKind>(state.range(0));
  const int num_waiting = static_cast<int>(state.range(1));
  const int num_cached = static_cast<int>(state.range(2));
  SchedulerConfig config;
  config.policy = policy;
  config.max_num_seqs = kNumSeqs + 1;
  // Those that run grow to 600 blocks each.
  config.num_blocks = 200'000 + num_cached;
  config.max_model_len = 1 << 28;
  config.vocab_size = 32000;
  config.max_num_queued_requests = 5000;
  config.max_num_queued_tokens = INT32_MAX;
  if (policy == PolicyKind::kSlo) config.default_tpot_ms = 50;
  Scheduler scheduler(config, {});
  BatchPlan plan;
  StepResult result;
  std::vector<EngineEvent> events;
  const auto add = [&](GenerateRequest request) { CHECK(scheduler.Add(std::move(request), TimePoint()).has_value()); };
  FillCache(&scheduler, num_cached, &plan, &result, &events);
  const std::vector<TokenId> prefix = MakeRequest(1, {}, 512, 0).prompt;
  add(MakeRequest(2, prefix, 513, 1));
  for (int i = 0; i < kNumSeqs; ++i) add(MakeRequest(1000 + static_cast<std::uint64_t>(i), {}, 64, 9000));
  while (scheduler.num_queued_requests() > 0) Step(&scheduler, &plan, &result, &events);
  // Each needs more than is left beside those that run, whoever the policy takes for the first.
  const int too_long = (config.num_blocks - 1000) * kBlockSize;
  std::vector<TokenId> long_prompt = prefix;
  long_prompt.resize(static_cast<std::size_t>(too_long), TokenId(3));
  for (int i = 0; i < num_waiting; ++i) {
    const auto id = 10'000 + static_cast<std::uint64_t>(i);
    GenerateRequest request = MakeRequest(id, prefix, 520, 16);
    if (i == 0) request.prompt = long_prompt;
    add(std::move(request));
  }
  for (auto _ : state) {
    Step(&scheduler, &plan, &result, &events);
    benchmark::DoNotOptimize(events.data());
  }
  state.counters["running"] = scheduler.num_running_sequences();
  state.counters["waiting"] = scheduler.num_queued_requests();
  state.counters["cached_blocks"] = scheduler.kv().num_evictable_blocks();
  state.counters["per_sequence"] =
      benchmark::Counter(kNumSeqs, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_DecodeStep)
    ->ArgNames({"policy", "waiting", "cached"})
    ->Args({static_cast<int>(PolicyKind::kLpm), 0, 0})
    ->Args({static_cast<int>(PolicyKind::kLpm), 1000, 0})
    ->Args({static_cast<int>(PolicyKind::kFcfs), 1000, 1'000'000})
    ->Args({static_cast<int>(PolicyKind::kLpm), 0, 1'000'000})
    ->Args({static_cast<int>(PolicyKind::kLpm), 1000, 1'000'000})
    ->Args({static_cast<int>(PolicyKind::kDfsWeight), 1000, 1'000'000})
    ->Args({static_cast<int>(PolicyKind::kSlo), 1000, 1'000'000})
    ->Iterations(4000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::sched
