// The radix cache when it holds 1,000,000 blocks of 16 tokens: 1,024 system prompts of 256 tokens, each continued by 61
// conversations of 256 tokens.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/check.h"
#include "kv/block_allocator.h"
#include "kv/block_table.h"
#include "kv/radix_cache.h"

namespace quire::kv {
namespace {

constexpr int kBlockSize = 16;
constexpr int kNumBlocks = 1'000'000;
constexpr int kNumPrefixes = 1024;
constexpr int kPrefixTokens = 256, kPromptTokens = 512;

class LargeCache {
 public:
  explicit LargeCache(EvictionPolicy policy = EvictionPolicy::kLru)
      : allocator_(kNumBlocks), cache_(&allocator_, kBlockSize, {.eviction_policy = policy}) {
    while (allocator_.num_free() > kPromptTokens / kBlockSize) Insert(num_prompts_++);
  }

  // Prompt `index`, the same whenever it is asked for.
  std::span<const TokenId> Prompt(std::uint64_t index) {
    prompt_.clear();
    std::mt19937_64 prefix(index % kNumPrefixes), rest(index + 1'000'000);
    for (int i = 0; i < kPromptTokens; ++i) {
      prompt_.push_back(TokenId(static_cast<std::int32_t>((i < kPrefixTokens ? prefix() : rest()) % 150'000)));
    }
    return prompt_;
  }
  void Insert(std::uint64_t index) { Insert(Prompt(index)); }
  void Insert(std::span<const TokenId> prompt) {
    BlockTable table(&allocator_, kBlockSize);
    RadixCache::MatchResult match = cache_.Match("", prompt, &table);
    cache_.CountUse(&match.lock);
    while (table.capacity() < static_cast<int>(prompt.size())) table.Append(allocator_.Allocate());
    const auto first = static_cast<std::size_t>(match.num_full_blocks);
    cache_.Extend(prompt.subspan(first * kBlockSize), match.num_full_blocks, &match.lock, &table);
    table.Clear();
  }

  RadixCache& cache() { return cache_; }
  BlockAllocator* allocator() { return &allocator_; }
  std::uint64_t num_prompts() const { return num_prompts_; }

 private:
  BlockAllocator allocator_;
  RadixCache cache_;
  std::vector<TokenId> prompt_;
  std::uint64_t num_prompts_ = 0;
};

// A whole prompt of 512 tokens, found.
void BM_Peek(benchmark::State& state) {
  LargeCache large;
  CHECK(large.cache().num_blocks() > kNumBlocks - 100);
  std::uint64_t index = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const auto prompt = large.Prompt(index);
    index = (index + 7919) % large.num_prompts();
    state.ResumeTiming();
    benchmark::DoNotOptimize(large.cache().Peek("", prompt));
  }
}
BENCHMARK(BM_Peek)->Iterations(20'000);

// The same, with its blocks put in a table, pinned, and given back.
void BM_MatchAndRelease(benchmark::State& state) {
  LargeCache large;
  std::uint64_t index = 0;
  BlockTable table(large.allocator(), kBlockSize);
  for (auto _ : state) {
    state.PauseTiming();
    const auto prompt = large.Prompt(index);
    index = (index + 7919) % large.num_prompts();
    state.ResumeTiming();
    RadixCache::MatchResult match = large.cache().Match("", prompt, &table);
    CHECK(match.num_full_blocks == kPromptTokens / kBlockSize);
    table.Clear();
  }
}
BENCHMARK(BM_MatchAndRelease)->Iterations(20'000);

// A prompt whose prefix is known and 16 blocks are new: match, take blocks, insert, release; and 16 blocks evicted.
void BM_InsertAndEvict16Blocks(benchmark::State& state) {
  LargeCache large(kEvictionPolicies[state.range(0)]);
  std::uint64_t index = large.num_prompts();
  for (auto _ : state) {
    state.PauseTiming();
    const auto prompt = large.Prompt(index++);
    state.ResumeTiming();
    large.cache().Evict(16);
    large.Insert(prompt);
  }
}
BENCHMARK(BM_InsertAndEvict16Blocks)->ArgName("policy")->DenseRange(0, 2)->Iterations(20'000);

void BM_EvictOneBlock(benchmark::State& state) {
  LargeCache large(kEvictionPolicies[state.range(0)]);
  for (auto _ : state) CHECK(large.cache().Evict(1) == 1);
}
BENCHMARK(BM_EvictOneBlock)->ArgName("policy")->DenseRange(0, 2)->Iterations(500'000);

}  // namespace
}  // namespace quire::kv
