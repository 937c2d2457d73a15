// Lower tiers, each with what can go wrong with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/tiers/disk_tier.h"
#include "engine/tiers/kv_entry.h"
#include "engine/tiers/kv_tiers.h"
#include "engine/tiers/memory_tier.h"
#include "engine/tiers/redis_process.h"
#include "engine/tiers/redis_tier.h"

namespace quire::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = 1000;
constexpr std::int64_t kEntryBytes = kBlockBytes + kKvEntryHeadBytes;
using Block = std::vector<std::byte>;

kv::ContentKey Key(int number) {
  kv::ContentHasher hasher("test");
  return hasher.Root(std::to_string(number));
}

Block MakeBlock(int number) {
  Block block(kBlockBytes);
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(number));
  return block;
}

bool Has(KvTier* tier, int number) {
  const kv::ContentKey key = Key(number);
  bool found = false;
  tier->Contains({&key, 1}, {&found, 1});
  return found;
}

// Whether the tier gives exactly what was put.
bool Gets(KvTier* tier, int number) {
  Block block(kBlockBytes);
  return tier->Get(Key(number), block) && block == MakeBlock(number);
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "quire-tier-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(KvEntry, EveryDamageIsSeen) {
  const Block block = MakeBlock(1);
  const KvEntryHead head = MakeKvEntryHead(Key(1), block);
  EXPECT_TRUE(IsIntactKvEntry(Key(1), head, block));
  EXPECT_FALSE(IsIntactKvEntry(Key(2), head, block));
  EXPECT_FALSE(IsIntactKvEntry(Key(1), std::span(head).first(63), block));
  EXPECT_FALSE(IsIntactKvEntry(Key(1), head, std::span(block).first(kBlockBytes - 1)));
  for (std::size_t bit = 0; bit < 8 * head.size(); ++bit) {
    KvEntryHead damaged = head;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(IsIntactKvEntry(Key(1), damaged, block));
  }
  for (std::size_t bit = 0; bit < 8 * block.size(); bit += 11) {
    Block damaged = block;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(IsIntactKvEntry(Key(1), head, damaged));
  }
}

class DiskTierTest : public testing::Test {
 protected:
  Result<std::unique_ptr<DiskTier>> TryOpen(std::int64_t bytes_max) {
    return DiskTier::Open(
        {.folder = folder_.path(), .identity = "model", .bytes_max = bytes_max, .block_bytes = kBlockBytes}, &clock_);
  }
  std::unique_ptr<DiskTier> Open(std::int64_t num_blocks_max = 10) {
    auto tier = TryOpen(num_blocks_max * kEntryBytes);
    EXPECT_TRUE(tier.has_value()) << tier.error().message;
    return *std::move(tier);
  }
  fs::path FileOf(int number) const { return folder_.path() / "model" / (Key(number).ToHex() + ".kv"); }

  TemporaryFolder folder_;
  ManualClock clock_;
};

TEST_F(DiskTierTest, ARestartFindsWhatWasWritten) {
  auto tier = Open();
  EXPECT_FALSE(Has(tier.get(), 1));
  for (int i = 0; i < 3; ++i) tier->Put(Key(i), MakeBlock(i));
  EXPECT_TRUE(Gets(tier.get(), 1));
  EXPECT_FALSE(Gets(tier.get(), 7));
  EXPECT_EQ(tier->stats().stored, 3u);
  tier.reset();
  tier = Open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Gets(tier.get(), i));
  EXPECT_EQ(tier->stats().num_blocks, 3);
  EXPECT_EQ(tier->stats().num_bytes, 3 * kEntryBytes);
  EXPECT_EQ(tier->stats().hits, 3u);
}

TEST_F(DiskTierTest, TheLeastRecentlyUsedGoesFirst) {
  auto tier = Open(3);
  for (int i = 0; i < 3; ++i) tier->Put(Key(i), MakeBlock(i));
  EXPECT_TRUE(Gets(tier.get(), 0));
  tier->Put(Key(3), MakeBlock(3));
  EXPECT_FALSE(Has(tier.get(), 1));
  for (const int kept : {0, 2, 3}) EXPECT_TRUE(Has(tier.get(), kept));
  EXPECT_EQ(tier->stats().evictions, 1u);
  EXPECT_FALSE(fs::exists(FileOf(1)));
  // The order outlives the process, by the times of the files; a smaller limit takes effect at once.
  fs::last_write_time(FileOf(2), fs::file_time_type::clock::now() - std::chrono::hours(1));
  tier.reset();
  tier = Open(2);
  EXPECT_FALSE(Has(tier.get(), 2));
  EXPECT_EQ(tier->stats().num_blocks, 2);
}

// Times of files from the future and from the beginning of time: an odd order, and nothing else.
TEST_F(DiskTierTest, ClockJumpsDoNoHarm) {
  auto tier = Open();
  for (int i = 0; i < 3; ++i) tier->Put(Key(i), MakeBlock(i));
  fs::last_write_time(FileOf(0), fs::file_time_type::clock::now() + std::chrono::hours(24 * 365));
  fs::last_write_time(FileOf(1), fs::file_time_type{} - std::chrono::hours(24 * 365 * 100));
  tier.reset();
  tier = Open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Gets(tier.get(), i));
}

TEST_F(DiskTierTest, DamagedEntriesAreDropped) {
  auto tier = Open();
  for (int i = 0; i < 4; ++i) tier->Put(Key(i), MakeBlock(i));
  {
    std::fstream file(FileOf(0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(500);
    file.put('?');
  }
  fs::resize_file(FileOf(1), kEntryBytes - 1);
  fs::remove(FileOf(2));
  fs::copy_file(FileOf(3), FileOf(4));  // under a name that is not its own
  for (const int bad : {0, 1, 2}) {
    EXPECT_TRUE(Has(tier.get(), bad));
    EXPECT_FALSE(Gets(tier.get(), bad));
    EXPECT_FALSE(Has(tier.get(), bad));
    EXPECT_FALSE(fs::exists(FileOf(bad)));
  }
  EXPECT_EQ(tier->stats().damaged, 2u);
  EXPECT_TRUE(Gets(tier.get(), 3));
  tier->Put(Key(0), MakeBlock(0));
  fs::resize_file(FileOf(0), 10);
  std::ofstream(folder_.path() / "model" / (Key(5).ToHex() + ".new")) << "half";
  std::ofstream(folder_.path() / "model" / "notes.txt") << "somebody's";
  fs::create_symlink("/dev/zero", FileOf(6));
  tier.reset();
  tier = Open();
  EXPECT_FALSE(Has(tier.get(), 0));  // by its size, at the start
  EXPECT_FALSE(Has(tier.get(), 6));
  EXPECT_TRUE(Has(tier.get(), 4));
  EXPECT_FALSE(Gets(tier.get(), 4));
  EXPECT_TRUE(Gets(tier.get(), 3));
  EXPECT_FALSE(fs::exists(folder_.path() / "model" / (Key(5).ToHex() + ".new")));
  EXPECT_TRUE(fs::exists(folder_.path() / "model" / "notes.txt"));
}

TEST_F(DiskTierTest, AFolderHasOneOwner) {
  auto tier = Open();
  const auto second = TryOpen(1 << 20);
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, testing::HasSubstr("in use by another process"));
  tier.reset();
  EXPECT_TRUE(TryOpen(1 << 20).has_value());
}

TEST_F(DiskTierTest, RefusesWhatCannotWork) {
  EXPECT_EQ(TryOpen(kEntryBytes - 1).error().param, "kv_disk_bytes");
  std::ofstream(folder_.path() / "file") << "x";
  const auto tier = DiskTier::Open(
      {.folder = folder_.path() / "file", .identity = "model", .bytes_max = 1 << 20, .block_bytes = kBlockBytes},
      &clock_);
  ASSERT_FALSE(tier.has_value());
  EXPECT_EQ(tier.error().param, "kv_disk");
}

// A file system of 64 KiB. Needs the right to mount one.
TEST_F(DiskTierTest, AFullDiskCostsOnlyBlocks) {
  const fs::path small = folder_.path() / "small";
  fs::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "SKIPPED: a small file system cannot be mounted here: " << std::strerror(errno);
  }
  {
    constexpr std::size_t kLarge = 12000;
    auto opened =
        DiskTier::Open({.folder = small, .identity = "model", .bytes_max = 1 << 20, .block_bytes = kLarge}, &clock_);
    ASSERT_TRUE(opened.has_value());
    DiskTier& tier = **opened;
    const Block block(kLarge, std::byte{3});
    for (int i = 0; i < 10; ++i) tier.Put(Key(i), block);
    EXPECT_GE(tier.stats().stored, 2u);
    EXPECT_EQ(tier.stats().errors, 1u);  // the first failure; then it is left alone for a while
    Block read(kLarge);
    EXPECT_TRUE(tier.Get(Key(0), read));
    EXPECT_EQ(read, block);
    clock_.Advance(std::chrono::seconds(2));
    tier.Put(Key(20), block);
    EXPECT_EQ(tier.stats().errors, 2u);
    // Somebody makes room.
    fs::remove(small / "model" / (Key(1).ToHex() + ".kv"));
    clock_.Advance(std::chrono::minutes(2));
    tier.Put(Key(20), block);
    EXPECT_TRUE(tier.Get(Key(20), read));
    int num_left_over = 0;
    for (const auto& entry : fs::directory_iterator(small / "model")) {
      if (entry.path().extension() == ".new") ++num_left_over;
    }
    EXPECT_EQ(num_left_over, 0);
  }
  EXPECT_EQ(::umount(small.c_str()), 0);
}

TEST(RedisAddress, Parses) {
  const auto parse = [](std::string_view url) {
    const auto address = RedisAddress::Parse(url);
    return address ? fmt::format("{}|{}|{}|{}", address->ToString(), address->user, address->password, address->port)
                   : "refused: " + address.error().param;
  };
  EXPECT_EQ(parse("redis://localhost"), "localhost:6379/0|||6379");
  EXPECT_EQ(parse("valkey://me:p@ss@10.0.0.1:7000/3"), "10.0.0.1:7000/3|me|p@ss|7000");
  EXPECT_EQ(parse("redis://:word@[::1]:1"), "::1:1/0||word|1");
  EXPECT_EQ(parse("unix:///run/redis.sock"), "/run/redis.sock|||6379");
  for (const char* bad :
       {"", "localhost", "http://x", "rediss://x", "redis://", "redis://:1", "redis://x:0", "redis://x:1x",
        "redis://x:99999", "redis://x/y", "redis://[::1", "redis://[::1]x", "redis://me@x", "unix://x"}) {
    EXPECT_EQ(parse(bad), "refused: kv_redis") << bad;
  }
}

class RedisTierTest : public testing::Test {
 protected:
  void SetUp() override {
    if (RedisProcess::FindBinary().empty()) GTEST_SKIP() << "SKIPPED: redis-server is not installed";
    ::signal(SIGPIPE, SIG_IGN);  // as in the thread of KvTiers
    server_ = std::make_unique<RedisProcess>(folder_.path());
  }
  std::unique_ptr<RedisTier> Connect(std::chrono::seconds time_to_live = std::chrono::seconds(100)) {
    return std::make_unique<RedisTier>(RedisTier::Config{.address = *RedisAddress::Parse(server_->url()),
                                                         .block_bytes = kBlockBytes,
                                                         .timeout = std::chrono::milliseconds(100),
                                                         .time_to_live = time_to_live},
                                       &clock_);
  }

  TemporaryFolder folder_;
  std::unique_ptr<RedisProcess> server_;
  ManualClock clock_;
};

TEST_F(RedisTierTest, TwoServersShareBlocks) {
  auto one = Connect(), other = Connect(std::chrono::seconds(0));
  EXPECT_FALSE(Gets(one.get(), 1));
  EXPECT_EQ(one->stats().misses, 1u);
  one->Put(Key(1), MakeBlock(1));
  other->Put(Key(2), MakeBlock(2));
  EXPECT_TRUE(Gets(other.get(), 1));
  EXPECT_TRUE(Gets(one.get(), 2));
  const std::array keys{Key(1), Key(2), Key(3), Key(2)};
  std::array<bool, 4> found{};
  one->Contains(keys, found);
  EXPECT_THAT(found, testing::ElementsAre(true, true, false, true));
  EXPECT_EQ(one->stats().errors + other->stats().errors, 0u);
}

TEST_F(RedisTierTest, ADeadServerCostsATimeoutNowAndThen) {
  auto tier = Connect();
  tier->Put(Key(1), MakeBlock(1));
  server_->Stop(SIGKILL);
  EXPECT_FALSE(Gets(tier.get(), 1));
  EXPECT_EQ(tier->stats().errors, 1u);
  for (int i = 0; i < 100; ++i) {  // it is left alone
    EXPECT_FALSE(Has(tier.get(), i));
    tier->Put(Key(i), MakeBlock(i));
  }
  EXPECT_EQ(tier->stats().errors, 1u);
  server_->Start();
  clock_.Advance(std::chrono::seconds(11));
  EXPECT_FALSE(Gets(tier.get(), 1));  // it has forgotten
  tier->Put(Key(1), MakeBlock(1));
  EXPECT_TRUE(Gets(tier.get(), 1));
  EXPECT_EQ(tier->stats().errors, 1u);
}

TEST_F(RedisTierTest, ASlowServerIsNotWaitedFor) {
  auto tier = Connect();
  tier->Put(Key(1), MakeBlock(1));
  server_->Signal(SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(Gets(tier.get(), 1));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Gets(tier.get(), 1));
  // One timeout, and no more.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(tier->stats().errors, 1u);
  server_->Signal(SIGCONT);
  clock_.Advance(std::chrono::seconds(11));
  EXPECT_TRUE(Gets(tier.get(), 1));
}

TEST_F(RedisTierTest, DamagedEntriesAreDropped) {
  auto tier = Connect();
  tier->Put(Key(1), MakeBlock(1));
  // An entry of another size, and one with a key that is not its own: as another version might write it.
  RedisTier larger({.address = *RedisAddress::Parse(server_->url()), .block_bytes = 10}, &clock_);
  larger.Put(Key(2), Block(10));
  EXPECT_TRUE(Has(tier.get(), 2));
  EXPECT_FALSE(Gets(tier.get(), 2));
  EXPECT_FALSE(Has(tier.get(), 2));
  EXPECT_EQ(tier->stats().damaged, 1u);
  EXPECT_TRUE(Gets(tier.get(), 1));
}

TEST_F(RedisTierTest, AFullServerIsStillRead) {
  server_->Stop(SIGTERM);
  server_ = std::make_unique<RedisProcess>(folder_.path(), "3mb");
  auto tier = Connect();
  for (int i = 0; i < 20000 && tier->stats().errors == 0; ++i) tier->Put(Key(i), MakeBlock(i));
  EXPECT_EQ(tier->stats().errors, 1u);
  tier->Put(Key(30000), MakeBlock(30000));
  EXPECT_EQ(tier->stats().errors, 1u);
  EXPECT_TRUE(Gets(tier.get(), 0));
}

TEST(KvTiers, TheUpperTierGetsWhatTheLowerOneHas) {
  std::vector<std::unique_ptr<KvTier>> tiers;
  tiers.push_back(std::make_unique<MemoryTier>(10));
  tiers.push_back(std::make_unique<MemoryTier>(10));
  KvTier* const upper = tiers[0].get();
  KvTier* const lower = tiers[1].get();
  for (int i = 0; i < 3; ++i) lower->Put(Key(i), MakeBlock(i));
  upper->Put(Key(0), MakeBlock(0));
  auto made = KvTiers::Create({.block_bytes = kBlockBytes, .num_outgoing = 1, .runs_thread = false}, std::move(tiers));
  ASSERT_TRUE(made.has_value());
  KvTiers& all = **made;
  const auto fetch = all.LookUp({Key(0), Key(1), Key(2), Key(3), Key(0)});
  EXPECT_EQ(fetch->state(), PrefixFetch::State::kLookingUp);
  EXPECT_TRUE(all.RunOne());
  ASSERT_EQ(fetch->state(), PrefixFetch::State::kFound);
  EXPECT_EQ(fetch->num_found(), 3);
  std::vector<Block> blocks(2, Block(kBlockBytes));
  all.Read(fetch, 1, {blocks[0], blocks[1]});
  EXPECT_TRUE(all.RunOne());
  EXPECT_EQ(fetch->state(), PrefixFetch::State::kReading);
  EXPECT_TRUE(all.RunOne());
  ASSERT_EQ(fetch->state(), PrefixFetch::State::kRead);
  EXPECT_EQ(fetch->num_read(), 2);
  EXPECT_EQ(blocks[1], MakeBlock(2));
  EXPECT_TRUE(Has(upper, 1) && Has(upper, 2));

  EXPECT_TRUE(all.Store(Key(9), MakeBlock(9)));
  EXPECT_FALSE(all.Store(Key(8), MakeBlock(8)));  // one may wait
  EXPECT_TRUE(all.RunOne());
  EXPECT_TRUE(Gets(upper, 9) && Gets(lower, 9));
  EXPECT_FALSE(all.RunOne());
}

TEST(KvTiers, WritesWhatWaitsBeforeItEnds) {
  TemporaryFolder folder;
  const SteadyClock clock;
  const auto open = [&] {
    return *DiskTier::Open(
        {.folder = folder.path(), .identity = "model", .bytes_max = 1 << 20, .block_bytes = kBlockBytes}, &clock);
  };
  {
    std::vector<std::unique_ptr<KvTier>> tiers;
    tiers.push_back(open());
    auto all = KvTiers::Create({.block_bytes = kBlockBytes, .num_outgoing = 50}, std::move(tiers));
    ASSERT_TRUE(all.has_value());
    for (int i = 0; i < 50; ++i) EXPECT_TRUE((*all)->Store(Key(i), MakeBlock(i)));
  }
  const auto tier = open();
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(Gets(tier.get(), i));
}

}  // namespace
}  // namespace quire::engine
