// Engines that end and start again, and engines that share a tier: what they say stays the same, and what they know is
// found again.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/fake_runner.h"
#include "engine/local_engine.h"
#include "engine/tiers/disk_tier.h"
#include "engine/tiers/kv_tiers.h"
#include "engine/tiers/redis_process.h"
#include "engine/tiers/redis_tier.h"

namespace quire::engine {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class RestartTest : public testing::Test {
 protected:
  struct Answer {
    std::vector<TokenId> tokens;
    int num_cached = 0;
    FinishReason reason = FinishReason::kNone;
  };

  RestartTest() {
    std::string name = (fs::temp_directory_path() / "quire-restart-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    sched::SchedulerConfig& scheduler = config_.scheduler;
    scheduler.max_num_batched_tokens = 64;
    scheduler.max_num_seqs = 4;
    scheduler.max_model_len = 400;
    scheduler.num_blocks = 100;
    scheduler.num_landing_blocks = 60;
    scheduler.block_size = 4;
    scheduler.vocab_size = 50;
    config_.content_identity = "model 1";
  }
  ~RestartTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::size_t BlockBytes() const {
    return FakeRunner(1, config_.scheduler.block_size, 50).BlockBytes(BlockId(0)).size();
  }
  std::unique_ptr<KvTier> Disk() {
    auto tier = DiskTier::Open({.folder = folder_, .identity = "x", .bytes_max = 1 << 20, .block_bytes = BlockBytes()},
                               &clock_);
    EXPECT_TRUE(tier.has_value()) << tier.error().message;
    return *std::move(tier);
  }
  std::unique_ptr<KvTier> Redis(const std::string& url) {
    return std::make_unique<RedisTier>(
        RedisTier::Config{.address = *RedisAddress::Parse(url), .block_bytes = BlockBytes(), .timeout = 200ms},
        &clock_);
  }
  std::unique_ptr<LocalEngine> Start(std::unique_ptr<KvTier> tier) {
    const sched::SchedulerConfig& scheduler = config_.scheduler;
    std::vector<std::unique_ptr<KvTier>> tiers;
    tiers.push_back(std::move(tier));
    auto all = KvTiers::Create({.block_bytes = BlockBytes(), .num_outgoing = 8}, std::move(tiers));
    EXPECT_TRUE(all.has_value());
    auto runner = std::make_unique<FakeRunner>(scheduler.num_blocks + scheduler.num_landing_blocks,
                                               scheduler.block_size, scheduler.vocab_size);
    auto engine = LocalEngine::Create(config_, {}, std::move(runner), &clock_, *std::move(all));
    EXPECT_TRUE(engine.has_value());
    return *std::move(engine);
  }
  // Two hundred tokens and some of its own, so that prompts share a prefix.
  static GenerateRequest MakeRequest(std::uint64_t id, int own = 0) {
    GenerateRequest request;
    request.id = RequestId(id);
    for (int i = 0; i < 200; ++i) request.prompt.push_back(TokenId(i * i % 50));
    for (int i = 0; i < 3; ++i) request.prompt.push_back(TokenId((own + i) % 50));
    request.stop.max_tokens = 10;
    request.stop.ignore_eos = true;
    return request;
  }
  static Answer Ask(LocalEngine* engine, GenerateRequest request) {
    Answer answer;
    const Result<> submitted = engine->Submit(std::move(request));
    EXPECT_TRUE(submitted.has_value());
    for (int i = 0; submitted && i < 100 && answer.reason == FinishReason::kNone; ++i) {
      const auto events = engine->Next(1s);
      if (!events) break;
      for (const EngineEvent& event : *events) {
        answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
        answer.num_cached = event.num_cached_tokens;
        answer.reason = event.finish_reason;
      }
    }
    EXPECT_EQ(answer.reason, FinishReason::kLength);
    return answer;
  }
  static EngineStats StatsOf(LocalEngine* engine) {
    const Result<EngineStats> stats = engine->Stats();
    EXPECT_TRUE(stats.has_value());
    return stats.value_or(EngineStats());
  }

  // As long as the engine is left alone, it hands over everything.
  static void AwaitStored(LocalEngine* engine, std::uint64_t num_blocks) {
    for (int i = 0; i < 1000 && StatsOf(engine).kv_tiers.at(0).stored < num_blocks; ++i) {
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_GE(StatsOf(engine).kv_tiers.at(0).stored, num_blocks);
  }

  const SteadyClock clock_;
  fs::path folder_;
  EngineConfig config_;
};

TEST_F(RestartTest, ARestartFindsItsPrefixesAgain) {
  auto engine = Start(Disk());
  const Answer cold = Ask(engine.get(), MakeRequest(1));
  EXPECT_EQ(cold.num_cached, 0);
  engine.reset();  // what is not written yet is written now
  engine = Start(Disk());
  const Answer warm = Ask(engine.get(), MakeRequest(1));
  EXPECT_EQ(warm.tokens, cold.tokens);
  EXPECT_EQ(warm.num_cached, 200);
  EXPECT_EQ(StatsOf(engine.get()).tier_hits, 200u);
  // From now on the prefix cache has it.
  EXPECT_EQ(Ask(engine.get(), MakeRequest(2, 7)).num_cached, 200);
  EXPECT_EQ(StatsOf(engine.get()).tier_hits, 200u);
  // Another tenant does not.
  GenerateRequest salted = MakeRequest(3);
  salted.cache_salt = "other";
  EXPECT_EQ(Ask(engine.get(), std::move(salted)).num_cached, 0);
  // Nor does another model.
  engine.reset();
  config_.content_identity = "model 2";
  engine = Start(Disk());
  EXPECT_EQ(Ask(engine.get(), MakeRequest(4)).num_cached, 0);
}

TEST_F(RestartTest, DamagedFilesCostOnlyTime) {
  auto engine = Start(Disk());
  const Answer cold = Ask(engine.get(), MakeRequest(1));
  engine.reset();
  int number = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "x")) {
    if (entry.path().extension() != ".kv") continue;
    if (++number % 5 == 0) fs::resize_file(entry.path(), 70);
    if (number % 5 == 1) std::ofstream(entry.path(), std::ios::in | std::ios::binary).seekp(100).put('?');
  }
  EXPECT_GT(number, 40);
  engine = Start(Disk());
  const Answer warm = Ask(engine.get(), MakeRequest(1));
  EXPECT_EQ(warm.tokens, cold.tokens);
  EXPECT_LT(warm.num_cached, 200);
  EXPECT_GT(StatsOf(engine.get()).kv_tiers.at(0).damaged, 0u);
}

TEST_F(RestartTest, ManyPromptsThroughASmallPool) {
  config_.scheduler.num_blocks = 60;  // of one sequence, and little more
  config_.scheduler.max_model_len = 220;
  config_.scheduler.num_landing_blocks = 20;
  auto engine = Start(Disk());
  std::vector<Answer> answers;
  const auto request = [&](std::uint64_t id, int number) {
    GenerateRequest made = MakeRequest(id);
    made.prompt[0] = TokenId(number);
    return made;
  };
  for (int i = 0; i < 6; ++i) {
    answers.push_back(Ask(engine.get(), request(1, i)));
    AwaitStored(engine.get(), 50 * (static_cast<std::uint64_t>(i) + 1));
  }
  for (int i = 0; i < 6; ++i) {
    const Answer again = Ask(engine.get(), request(1, i));
    EXPECT_EQ(again.tokens, answers[static_cast<std::size_t>(i)].tokens);
    EXPECT_GE(again.num_cached, 80);  // as much as there are landing blocks for
  }
  const EngineStats stats = StatsOf(engine.get());
  EXPECT_GT(stats.tier_hits, 0u);
  EXPECT_EQ(stats.num_blocks_free + stats.num_blocks_cached, stats.num_blocks_total);
  GenerateRequest too_long = MakeRequest(9);
  too_long.prompt.resize(300, TokenId(1));
  EXPECT_EQ(engine->Submit(std::move(too_long)).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RestartTest, ServersShareThroughRedisUntilItDies) {
  if (RedisProcess::FindBinary().empty()) GTEST_SKIP() << "SKIPPED: redis-server is not installed";
  RedisProcess server(folder_);
  auto one = Start(Redis(server.url())), other = Start(Redis(server.url()));
  const Answer cold = Ask(one.get(), MakeRequest(1));
  AwaitStored(one.get(), 50);
  const Answer warm = Ask(other.get(), MakeRequest(1));
  EXPECT_EQ(warm.tokens, cold.tokens);
  EXPECT_EQ(warm.num_cached, 200);
  ASSERT_TRUE(other->ResetPrefixCache().has_value());
  server.Stop(SIGKILL);
  const Answer alone = Ask(other.get(), MakeRequest(1));
  EXPECT_EQ(alone.tokens, cold.tokens);
  EXPECT_EQ(alone.num_cached, 0);
  EXPECT_GT(StatsOf(other.get()).kv_tiers.at(0).errors, 0u);
  server.Start();
  EXPECT_EQ(Ask(one.get(), MakeRequest(3)).tokens, cold.tokens);
}

// A tier that does not answer at all, as a disk behind a broken network may.
TEST_F(RestartTest, AHangingTierHoldsNobodyUpForLong) {
  if (RedisProcess::FindBinary().empty()) GTEST_SKIP() << "SKIPPED: redis-server is not installed";
  RedisProcess server(folder_);
  auto engine = Start(Redis(server.url()));
  const Answer cold = Ask(engine.get(), MakeRequest(1));
  ASSERT_TRUE(engine->ResetPrefixCache().has_value());
  server.Signal(SIGSTOP);
  const TimePoint start = clock_.Now();
  const Answer alone = Ask(engine.get(), MakeRequest(1));
  EXPECT_EQ(alone.tokens, cold.tokens);
  EXPECT_LT(clock_.Now() - start, 10s);
}

}  // namespace
}  // namespace quire::engine
