// The small pieces of base/, one group of tests each.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>

#include "base/aligned_buffer.h"
#include "base/bounded_queue.h"
#include "base/counter_rng.h"
#include "base/cpu_topology.h"
#include "base/float16.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/strong_id.h"
#include "base/thread_pool.h"
#include "base/utf8.h"

namespace quire {
namespace {

TEST(CounterRng, MatchesTheKnownAnswerOfTheReferenceImplementation) {
  // philox4x32-10 vectors of Random123's kat_vectors.
  EXPECT_EQ(Philox4x32(0, {0, 0, 0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32(~std::uint64_t{0}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(CounterRng, IsUniform) {
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = UniformDouble(42, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const F16 half{static_cast<std::uint16_t>(bits)};
    const float value = ToFloat(half);
    if (std::isnan(value)) continue;
    EXPECT_EQ(ToF16(value).bits, half.bits) << bits;
    const Bf16 brain{static_cast<std::uint16_t>(bits)};
    if (!std::isnan(ToFloat(brain))) {
      EXPECT_EQ(ToBf16(ToFloat(brain)).bits, brain.bits);
    }
  }
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(ToF16(1.0f + 0x1p-11f).bits, 0x3C00);      // a tie, down to even
  EXPECT_EQ(ToF16(1.0f + 3 * 0x1p-11f).bits, 0x3C02);  // a tie, up to even
  EXPECT_EQ(ToF16(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(ToF16(65520.0f).bits, 0x7C00);  // to infinity
  EXPECT_EQ(ToF16(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(ToBf16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);
}

TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(SanitizeUtf8("a\xF0\x9F\x98z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(SanitizeUtf8("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(SanitizeUtf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(IncompleteUtf8Tail("ab\xE2\x82"), 2u);
  EXPECT_EQ(IncompleteUtf8Tail("ab\xE2\x82\xAC"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\x80\x80"), 0u);
  std::string euro;
  AppendUtf8(0x20AC, &euro);
  EXPECT_EQ(euro, "\xE2\x82\xAC");
}

TEST(Json, WritesNumbersAsPythonDoes) {
  const auto text = [](double value) {
    std::string out;
    AppendJsonDouble(value, &out);
    return out;
  };
  EXPECT_EQ(text(0.7), "0.7");
  EXPECT_EQ(text(1), "1.0");
  EXPECT_EQ(text(1e-7), "1e-07");
  EXPECT_EQ(text(1e16), "1e+16");
  EXPECT_EQ(text(123456.789), "123456.789");
  EXPECT_EQ(text(std::nan("")), "null");
}

TEST(Json, WriterEscapesAndNests) {
  std::string out;
  JsonWriter(&out)
      .BeginObject()
      .Key("a")
      .BeginArray()
      .Int(1)
      .String("\"\n\xFF\x01")
      .EndArray()
      .Key("b")
      .Null()
      .EndObject();
  EXPECT_EQ(out, "{\"a\":[1,\"\\\"\\n\xEF\xBF\xBD\\u0001\"],\"b\":null}");
}

TEST(Json, ParserKeepsItsLimits) {
  EXPECT_TRUE(ParseJson("{\"a\": 1, \"a\": 2}", "t").has_value());
  const auto twice = ParseJson("{\"a\": {\"b\": 1, \"b\": 2}}", "t", {.refuse_duplicate_keys = true});
  ASSERT_FALSE(twice.has_value());
  EXPECT_NE(twice.error().message.find("\"b\" stands twice"), std::string::npos);
  EXPECT_FALSE(ParseJson(std::string(1000, '['), "t").has_value());
  EXPECT_FALSE(ParseJson("{} x", "t").has_value());
  EXPECT_FALSE(ParseJson("\"\xFF\"", "t").has_value());
  EXPECT_FALSE(ParseJson("[1]", "t", {.bytes_max = 2}).has_value());
}

// Boost.JSON 1.81 alone gives a neighbour of some of these.
TEST(Json, ParsesTheNearestDouble) {
  const auto expect_exact = [](const std::string& text) {
    const auto parsed = ParseJson("[" + text + "]", "t");
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_EQ(parsed->at(0).to_number<double>(), std::strtod(text.c_str(), nullptr)) << text;
  };
  for (const char* text : {"0.1",
                           "-0.3",
                           "1e23",
                           "8.41e21",
                           "9007199254740993.0",
                           "6.02214076e23",
                           "1.7976931348623157e308",
                           "2.2250738585072011e-308",
                           "2.2250738585072014e-308",
                           "4.9406564584124654e-324",
                           "5e-324",
                           "1e-400",
                           "1e999",
                           "123456789012345678901234567890",
                           "0.500000000000000166533453693773481063544750213623046875",
                           "1.00000000000000011102230246251565404236316680908203125",
                           "1.00000000000000011102230246251565404236316680908203124",
                           "1.00000000000000011102230246251565404236316680908203126",
                           "3.518437208883201171875E+13",
                           "62.5364939768271845828",
                           "8.10109172351e-10",
                           "1.50000000000000011102230246251565",
                           "9007199254740991.4999999",
                           "7205759403792793199999e-5",
                           "5708990770823839207320493820740630171355185152001e-3"}) {
    expect_exact(text);
  }
  std::mt19937_64 random(20240607);
  for (int i = 0; i < 20'000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    char text[64];
    std::snprintf(text, sizeof text, "%.*e", static_cast<int>(random() % 30), value);
    expect_exact(text);
  }
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  queue.Close();
  EXPECT_FALSE(queue.TryPush(4));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(ThreadPool, RunsEveryThreadOnceAndPublishesTheirWrites) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<int> counts(static_cast<std::size_t>(threads));
    for (int round = 0; round < 2000; ++round)
      pool.Run([&](int thread) { ++counts[static_cast<std::size_t>(thread)]; });
    for (const int count : counts) EXPECT_EQ(count, 2000);
  }
}

TEST(ThreadPool, ParallelForCoversTheRangeOnce) {
  ThreadPool pool(3);
  for (const std::int64_t count : {0, 1, 15, 16, 17, 100}) {
    std::vector<std::atomic<int>> touched(static_cast<std::size_t>(count));
    pool.ParallelFor(count, 16, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(begin % 16, 0);
      for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
    });
    for (const auto& times : touched) EXPECT_EQ(times.load(), 1);
  }
}

TEST(MappedFile, OpensFilesAndRefusesTheRest) {
  const auto path = std::filesystem::temp_directory_path() / "quire_mapped_file_test";
  std::ofstream(path) << "hello";
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->bytes().size(), 5u);
  EXPECT_FALSE(ReadFile(path, 4).has_value());
  EXPECT_EQ(*ReadFile(path, 5), "hello");
  EXPECT_FALSE(MappedFile::Open(path.parent_path()).has_value());
  EXPECT_FALSE(MappedFile::Open(path / "nothing").has_value());
  std::filesystem::remove(path);
  // What would never end, or never begin: nobody waits for it.
  EXPECT_FALSE(MappedFile::Open("/dev/zero").has_value());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(path).error().message, path.string() + " is not a regular file");
  std::filesystem::remove(path);
}

TEST(AlignedBuffer, IsAlignedAndZero) {
  auto buffer = AlignedBuffer::Allocate(1000);
  ASSERT_TRUE(buffer.has_value());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % kCacheLineBytes, 0u);
  EXPECT_EQ(buffer->as<int>().size(), 250u);
  EXPECT_EQ(std::accumulate(buffer->as<int>().begin(), buffer->as<int>().end(), 0), 0);
  EXPECT_FALSE(AlignedBuffer::Allocate(~std::size_t{0}).has_value());
}

TEST(CpuTopology, ReadsTheCgroupQuota) {  // CPU-01
  EXPECT_EQ(ParseCpuMax("max 100000\n"), std::nullopt);
  EXPECT_EQ(ParseCpuMax("250000 100000\n"), 2.5);
  EXPECT_EQ(ParseCpuMax("nonsense"), std::nullopt);
  const auto root = std::filesystem::temp_directory_path() / "quire_cgroup_test";
  std::filesystem::create_directories(root / "a/b");
  std::ofstream(root / "a/cpu.max") << "400000 100000";
  std::ofstream(root / "a/b/cpu.max") << "max 100000";
  EXPECT_EQ(CgroupCpuQuota(root, "0::/a/b\n"), 4.0);
  EXPECT_EQ(CgroupCpuQuota(root, "0::/\n"), std::nullopt);
  std::filesystem::remove_all(root);
}

// CPU-02: cores count, not hardware threads.
TEST(CpuTopology, CountsCoresAndNotTheirThreads) {
  const std::size_t allowed = DetectCpuTopology().allowed_cpus.size();
  ::setenv("HWLOC_SYNTHETIC", fmt::format("package:1 core:1 pu:{}", CPU_SETSIZE).c_str(), 1);
  EXPECT_EQ(DetectCpuTopology().core_cpus.size(), 1u);
  EXPECT_EQ(DetectCpuTopology().num_threads, 1);
  ::setenv("HWLOC_SYNTHETIC", fmt::format("package:1 core:{} pu:1", CPU_SETSIZE).c_str(), 1);
  EXPECT_EQ(DetectCpuTopology().core_cpus.size(), allowed);
  ::unsetenv("HWLOC_SYNTHETIC");
}
// CPU-04: the mask that we were given is all that is used.
TEST(CpuTopology, StaysWithinTheMask) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const int last = DetectCpuTopology().allowed_cpus.back();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const CpuTopology topology = DetectCpuTopology();
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(topology.allowed_cpus, std::vector<int>{last});
  EXPECT_EQ(topology.core_cpus, std::vector<int>{last});
  EXPECT_EQ(topology.num_threads, 1);
}
TEST(CpuTopology, ChoosesAtLeastOneThreadWithinTheMask) {
  const CpuTopology topology = DetectCpuTopology();
  EXPECT_GE(topology.num_threads, 1);
  EXPECT_LE(topology.core_cpus.size(), topology.allowed_cpus.size());
  EXPECT_TRUE(topology.thread_cpus.empty() ||
              topology.thread_cpus.size() == static_cast<std::size_t>(topology.num_threads));
}

}  // namespace
}  // namespace quire
