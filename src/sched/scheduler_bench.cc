// What a step costs besides the model: Plan and Commit with 256 sequences that decode.
#include <benchmark/benchmark.h>

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
  scheduler->Plan(TimePoint(), plan);
  result->sequences.resize(plan->sequences.size());
  for (std::size_t i = 0; i < plan->sequences.size(); ++i) {
    if (plan->sequences[i].samples) {
      result->sequences[i].tokens.assign(1, TokenId(7));
    } else {
      result->sequences[i].tokens.clear();
    }
  }
  events->clear();
  scheduler->Commit(*plan, result, TimePoint(), events);
}

// The argument is the number of requests that wait. All of them begin with the same 512 tokens, which are cached, and
// the oldest does not fit beside the others: the policy looks the oldest 64 up in every step, and nobody is admitted.
void BM_DecodeStep(benchmark::State& state) {
  const int num_waiting = static_cast<int>(state.range(0));
  SchedulerConfig config;
  config.max_num_seqs = kNumSeqs + 1;
  config.num_blocks = 100'000;
  config.max_model_len = 1'600'000;
  config.vocab_size = 32000;
  config.max_num_queued_requests = 5000;
  Scheduler scheduler(config, {});
  BatchPlan plan;
  StepResult result;
  std::vector<EngineEvent> events;
  const auto add = [&](GenerateRequest request) { CHECK(scheduler.Add(std::move(request), TimePoint()).has_value()); };
  const std::vector<TokenId> prefix = MakeRequest(1, {}, 512, 0).prompt;
  add(MakeRequest(2, prefix, 513, 1));
  for (int i = 0; i < kNumSeqs; ++i) add(MakeRequest(1000 + static_cast<std::uint64_t>(i), {}, 64, 9000));
  while (scheduler.num_queued_requests() > 0) Step(&scheduler, &plan, &result, &events);
  for (int i = 0; i < num_waiting; ++i) {
    add(MakeRequest(10'000 + static_cast<std::uint64_t>(i), prefix, i == 0 ? 1'595'000 : 520, 16));
  }
  for (auto _ : state) {
    Step(&scheduler, &plan, &result, &events);
    benchmark::DoNotOptimize(events.data());
  }
  CHECK(scheduler.num_running_sequences() == kNumSeqs && scheduler.num_queued_requests() == num_waiting);
  state.counters["per_sequence"] =
      benchmark::Counter(kNumSeqs, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_DecodeStep)->Arg(0)->Arg(1000)->Iterations(4000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::sched
