// A runner for tests whose model is a pure function of the tokens that it was shown, through the block table.
// It keeps a fake pool: each slot remembers which token stood at which position behind which prefix. Whatever
// a sequence reads is checked against its own tokens, so a block mix-up, a missed copy or a stale cache entry
// shows at once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "api/events.h"
#include "api/sampling_params.h"
#include "base/clock.h"
#include "engine/runner.h"
#include "engine/step_executor.h"
#include "kv/block_allocator.h"
#include "sched/batch_plan.h"
#include "sched/sequence.h"

namespace quire::engine {

// The model: a hash chain over the tokens, begun by the namespace, from which the next token and its logprob
// are drawn.
class FakeModel {
 public:
  explicit FakeModel(int vocab_size) : vocab_size_(vocab_size) {}

  static std::uint64_t Begin(std::string_view cache_namespace) {
    std::uint64_t chain = 0xCBF29CE484222325u;
    for (const char c : cache_namespace) chain = Mix(chain, static_cast<unsigned char>(c));
    return chain;
  }
  static std::uint64_t Next(std::uint64_t chain, TokenId token) {
    return Mix(chain, static_cast<std::uint64_t>(token.value()) + 1);
  }
  TokenId Sample(std::uint64_t chain, const SamplingParams& sampling, int choice,
                 std::span<const TokenId> masked) const {
    const std::uint64_t draw = Mix(Mix(chain, sampling.seed), static_cast<std::uint64_t>(choice));
    TokenId token(static_cast<std::int32_t>(draw % static_cast<std::uint64_t>(vocab_size_)));
    while (std::ranges::find(masked, token) != masked.end()) token = TokenId((token.value() + 1) % vocab_size_);
    return token;
  }
  // The likeliest tokens but the masked ones, best first; of equals the lower id. At least one.
  std::vector<TokenLogprob> Propose(std::uint64_t chain, int count, std::span<const TokenId> masked) const {
    std::vector<TokenLogprob> all;
    for (int id = 0; id < vocab_size_; ++id) {
      if (std::ranges::find(masked, TokenId(id)) == masked.end()) all.push_back(Logprobs(chain, TokenId(id)).chosen);
    }
    if (all.empty()) all.push_back({.id = TokenId(0), .logprob = -std::numeric_limits<float>::infinity(), .rank = 1});
    std::ranges::sort(all, [](const TokenLogprob& a, const TokenLogprob& b) {
      return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
    });
    all.resize(std::min(all.size(), static_cast<std::size_t>(count)));
    return all;
  }
  static PositionLogprobs Logprobs(std::uint64_t chain, TokenId token) {
    const auto draw = Mix(chain, static_cast<std::uint64_t>(token.value())) % 1000;
    return {.chosen = {.id = token, .logprob = -static_cast<float>(draw) / 100, .rank = 1}, .top = {}};
  }

 private:
  static std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ b) * 0x9E3779B97F4A7C15u + 0xD1B54A32D192ED03u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 27);
  }

  int vocab_size_;
};

class FakeRunner final : public Runner {
 public:
  FakeRunner(int num_blocks, int block_size, int vocab_size)
      : model_(vocab_size),
        block_size_(block_size),
        pool_(static_cast<std::size_t>(num_blocks) * static_cast<std::size_t>(block_size)) {}

  std::span<std::byte> BlockBytes(BlockId block) override {
    return std::as_writable_bytes(std::span(&At(block, 0), static_cast<std::size_t>(block_size_)));
  }

  // With an allocator, the runner also checks that it writes into no block that is shared.
  void Watch(const kv::BlockAllocator* allocator) { allocator_ = allocator; }
  // Each step takes its time of this clock: some for itself, and some for each token.
  void TakeTimeOf(ManualClock* clock, Duration per_step, Duration per_token) {
    clock_ = clock;
    per_step_ = per_step;
    per_token_ = per_token;
  }
  // The next Run fails after it has done half of its work.
  void FailNext() { fails_next_ = true; }

  // Forgets what blocks without owner hold, as if somebody else had overwritten them.
  void PoisonFreeBlocks() {
    for (int block = 0; block < allocator_->num_blocks(); ++block) {
      if (allocator_->ref_count(BlockId(block)) > 0) continue;
      for (int i = 0; i < block_size_; ++i) At(BlockId(block), i) = Slot();
    }
  }

  Result<> Run(const sched::BatchPlan& plan, sched::StepResult* result) override {
    for (const sched::BlockCopy& copy : plan.copies) {
      for (int i = 0; i < block_size_; ++i) At(copy.to, i) = At(copy.from, i);
    }
    EXPECT_EQ(result->sequences.size(), plan.sequences.size());
    int num_tokens = 0;
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      if (fails_next_ && i >= plan.sequences.size() / 2) {
        fails_next_ = false;
        return Fail(ErrorCode::kInternal, "the fake runner was told to fail");
      }
      RunSequence(plan.sequences[i], &result->sequences[i]);
      num_tokens += plan.sequences[i].num_tokens;
    }
    EXPECT_EQ(num_tokens, plan.num_tokens);
    num_tokens_run_ += num_tokens;
    if (clock_ != nullptr) clock_->Advance(per_step_ + per_token_ * num_tokens);
    return {};
  }

  std::int64_t num_tokens_run() const { return num_tokens_run_; }

 private:
  struct Slot {
    std::uint64_t chain = 0;
    TokenId token;
    int position = -1;
  };

  Slot& At(BlockId block, int offset) {
    return pool_[static_cast<std::size_t>(block.value()) * static_cast<std::size_t>(block_size_) +
                 static_cast<std::size_t>(offset)];
  }

  void RunSequence(const sched::ScheduledSequence& scheduled, sched::SequenceResult* found) {
    const sched::Sequence& sequence = *scheduled.sequence;
    EXPECT_TRUE(found->tokens.empty() && found->logprobs.empty() && found->prompt_logprobs.empty());
    EXPECT_GT(scheduled.num_tokens, 0);
    const int end = scheduled.first_position + scheduled.num_tokens;
    ASSERT_LE(end, static_cast<int>(scheduled.tokens.size()));
    ASSERT_GE(static_cast<int>(scheduled.blocks.size()) * block_size_, end);
    std::uint64_t chain = FakeModel::Begin(sequence.request().cache_namespace);
    for (int position = 0; position < end; ++position) {
      const TokenId token = scheduled.tokens[static_cast<std::size_t>(position)];
      chain = FakeModel::Next(chain, token);
      const BlockId block = scheduled.blocks[static_cast<std::size_t>(position / block_size_)];
      Slot& slot = At(block, position % block_size_);
      if (position < scheduled.first_position) {
        ASSERT_EQ(slot.position, position) << "request " << sequence.request().id.value();
        ASSERT_EQ(slot.token, token);
        ASSERT_EQ(slot.chain, chain);
        continue;
      }
      if (allocator_ != nullptr) {
        ASSERT_EQ(allocator_->ref_count(block), 1) << "a shared block is written";
      }
      slot = {.chain = chain, .token = token, .position = position};
      if (scheduled.prompt_logprobs && position + 1 < sequence.num_prompt_tokens()) {
        const TokenId next = scheduled.tokens[static_cast<std::size_t>(position) + 1];
        found->prompt_logprobs.push_back(FakeModel::Logprobs(chain, next));
      }
    }
    EXPECT_EQ(scheduled.samples, end == std::ssize(scheduled.tokens) && sequence.wants_output());
    EXPECT_TRUE(found->candidates.empty() && found->alternatives.empty());
    if (!scheduled.samples) return;
    const auto masked = sequence.masked(end - sequence.num_prompt_tokens());
    if (const int count = sequence.request().num_beam_candidates; count > 0) {
      found->candidates = model_.Propose(chain, count, masked);
      return;
    }
    found->tokens.push_back(model_.Sample(chain, sequence.sampling(), sequence.choice(), masked));
    if (sequence.sampling().logprobs) found->logprobs.push_back(FakeModel::Logprobs(chain, found->tokens.back()));
  }

  FakeModel model_;
  int block_size_;
  std::vector<Slot> pool_;
  const kv::BlockAllocator* allocator_ = nullptr;
  bool fails_next_ = false;
  ManualClock* clock_ = nullptr;
  Duration per_step_{}, per_token_{};
  std::int64_t num_tokens_run_ = 0;
};

// Runs a step on the engine's thread: as soon as it is launched, or as late as can be, when everything around it has
// changed.
class FakeExecutor final : public StepExecutor {
 public:
  FakeExecutor(Runner* runner, const Clock* clock, bool is_late) : runner_(runner), clock_(clock), is_late_(is_late) {}

  void Launch(const sched::BatchPlan* plan, sched::StepResult* result) override {
    EXPECT_EQ(plan_, nullptr);
    plan_ = plan;
    result_ = result;
    if (!is_late_) Run();
  }
  Result<> Wait() override {
    EXPECT_NE(plan_, nullptr);
    if (is_late_) Run();
    plan_ = nullptr;
    return std::exchange(ran_, {});
  }

 private:
  void Run() { ran_ = RunTimed(*plan_, runner_, *clock_, result_); }

  Runner* const runner_;
  const Clock* const clock_;
  const bool is_late_;
  const sched::BatchPlan* plan_ = nullptr;
  sched::StepResult* result_ = nullptr;
  Result<> ran_;
};

}  // namespace quire::engine
