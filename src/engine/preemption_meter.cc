#include "engine/preemption_meter.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace quire::engine {
namespace {

// More than a cache near the core holds, and nothing beside what a pool holds.
constexpr int kCopiedBlocks = 32;
constexpr int kPasses = 3;
// From here on a step's time is mostly that of its tokens, on the machines that were looked at.
constexpr int kPromptTokens = 32;
// Of the newest step in the average: some twenty steps are remembered, in which the lengths of prompts change.
constexpr double kNewest = 0.1;

}  // namespace

void PreemptionMeter::MeasureCopies(int num_pool_blocks, int num_swap_blocks, Runner* runner, const Clock& clock) {
  const int count = std::min({kCopiedBlocks, num_pool_blocks, num_swap_blocks});
  if (count == 0 || runner->BlockBytes(BlockId(0)).empty()) return;
  // Written once: pages that were never written cost nothing to read.
  for (int i = 0; i < count; ++i) std::ranges::fill(runner->BlockBytes(BlockId(i)), std::byte{0});
  for (int pass = 0; pass < kPasses; ++pass) {
    const TimePoint start = clock.Now();
    for (int i = 0; i < count; ++i) {
      const std::span<std::byte> from = runner->BlockBytes(BlockId(i));
      std::memcpy(runner->BlockBytes(BlockId(num_pool_blocks + i)).data(), from.data(), from.size());
    }
    // The first pass touches the pages of the swap area; the best one is what later copies cost.
    const double took = Seconds(clock.Now() - start) / count;
    costs_.block_copy_s = pass == 0 ? took : std::min(costs_.block_copy_s, took);
  }
}

void PreemptionMeter::ObserveStep(int num_tokens, Duration took) {
  if (num_tokens < kPromptTokens) return;
  const double token_s = Seconds(took) / num_tokens;
  costs_.token_s = costs_.token_s == 0 ? token_s : (1 - kNewest) * costs_.token_s + kNewest * token_s;
}

}  // namespace quire::engine
