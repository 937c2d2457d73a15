// What a row of a large vocabulary costs, for each kind of request; BM_MaxValue is one pass over the row, the floor.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "sample/sampler.h"

namespace quire::sample {
namespace {

constexpr int kVocabSize = 151936;

std::vector<float> Logits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5);
  std::vector<float> logits(kVocabSize);
  for (float& x : logits) x = normal(random);
  return logits;
}

const kernels::KernelTable* Kernels() {
  return kernels::AvailableKernels().back();
}

void BM_MaxValue(benchmark::State& state) {
  const std::vector<float> logits = Logits();
  std::int64_t index = 0;
  for (auto _ : state) benchmark::DoNotOptimize(Kernels()->max_value(logits.data(), kVocabSize, &index));
}
BENCHMARK(BM_MaxValue);

void Run(benchmark::State& state, SamplingParams params) {
  std::vector<float> logits = Logits();
  Sampler sampler(Kernels(), kVocabSize);
  for (auto _ : state) {
    ++params.seed;
    benchmark::DoNotOptimize(sampler.Sample(logits, {.params = &params}));
  }
}

void BM_Greedy(benchmark::State& state) {
  Run(state, {.temperature = 0});
}
void BM_Temperature(benchmark::State& state) {
  Run(state, {.temperature = 0.8});
}
void BM_TopK40(benchmark::State& state) {
  Run(state, {.temperature = 0.8, .top_k = 40});
}
void BM_TopP(benchmark::State& state) {
  Run(state, {.temperature = 0.8, .top_p = 0.9});
}
void BM_TopKTopP(benchmark::State& state) {
  Run(state, {.temperature = 0.8, .top_k = 40, .top_p = 0.9});
}
void BM_MinP(benchmark::State& state) {
  Run(state, {.temperature = 0.8, .min_p = 0.05});
}
void BM_FlatTopP(benchmark::State& state) {
  Run(state, {.temperature = 50, .top_p = 0.9});
}
void BM_GreedyLogprobs(benchmark::State& state) {
  SamplingParams params{.temperature = 0};
  params.logprobs = 20;
  Run(state, params);
}
BENCHMARK(BM_Greedy);
BENCHMARK(BM_Temperature);
BENCHMARK(BM_TopK40);
BENCHMARK(BM_TopP);
BENCHMARK(BM_TopKTopP);
BENCHMARK(BM_MinP);
BENCHMARK(BM_FlatTopP);
BENCHMARK(BM_GreedyLogprobs);

}  // namespace
}  // namespace quire::sample
