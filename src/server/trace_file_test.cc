#include "server/trace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "base/json.h"

namespace quire::server {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

class TraceFileTest : public testing::Test {
 protected:
  TraceFileTest() {
    std::string name = std::filesystem::temp_directory_path() / "quire-trace-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~TraceFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return folder_ / "trace.json"; }
  TraceFile Create(std::int64_t bytes_max = 1 << 30) {
    auto file = TraceFile::Create(Path(), TraceFile::Mode::kOverwrite, bytes_max);
    EXPECT_TRUE(file.has_value()) << file.error().message;
    return *std::move(file);
  }
  static TraceEvent Span(TraceLabel label, int begin_us, int duration_us, std::int32_t value = 0) {
    return {.begin = TimePoint(microseconds(begin_us)),
            .duration = microseconds(duration_us),
            .label = label,
            .values = {value, 0, 0}};
  }
  static TraceBatch Batch(std::vector<TraceEvent> events, int pid = 1, std::string lane = "engine") {
    TraceBatch batch;
    batch.pid = pid;
    batch.lanes.push_back({.name = std::move(lane), .events = std::move(events), .dropped = 0});
    return batch;
  }
  json::array Events() const {
    std::ifstream stream(Path());
    std::stringstream text;
    text << stream.rdbuf();
    auto parsed = ParseJson(text.str(), "trace");
    EXPECT_TRUE(parsed.has_value()) << parsed.error().message << "\n" << text.str();
    return parsed ? parsed->at("traceEvents").as_array() : json::array();
  }
  json::array EventsOf(std::string_view phase) const {
    json::array found;
    for (const json::value& event : Events()) {
      if (event.at("ph").as_string() == phase) found.push_back(event);
    }
    return found;
  }

  std::filesystem::path folder_;
};

TEST_F(TraceFileTest, IsWholeAtAllTimes) {
  TraceFile file = Create();
  EXPECT_TRUE(Events().empty());
  ASSERT_TRUE(file.Append(Batch({}), "server", {}).has_value());
  ASSERT_TRUE(file.Append(Batch({Span(TraceLabel::kPlan, 10, 5)}), "server", {}).has_value());
  EXPECT_EQ(EventsOf("X").size(), 1u);
  ASSERT_TRUE(file.Append(Batch({Span(TraceLabel::kPlan, 20, 5)}, 2, "\"odd\" näme"), "an \\ engine", {}).has_value());
  EXPECT_EQ(EventsOf("X").size(), 2u);
  EXPECT_EQ(file.num_events(), 2);

  std::map<std::string, std::string> names;  // what: of the second process
  for (const json::value& event : EventsOf("M")) {
    if (event.at("pid") == 2) {
      names[std::string(event.at("name").as_string())] = event.at("args").at("name").as_string();
    }
  }
  EXPECT_EQ(names["process_name"], "an \\ engine");
  EXPECT_EQ(names["thread_name"], "\"odd\" näme");
}

TEST_F(TraceFileTest, WritesEachKindOfEvent) {
  TraceFile file = Create();
  TraceEvent span = Span(TraceLabel::kAttention, 1, 2, /*layer*/ 3);
  span.begin += nanoseconds(45);
  span.duration += nanoseconds(7);
  TraceEvent counter{
      .begin = TimePoint(microseconds(9)), .duration = {}, .label = TraceLabel::kBlocks, .values = {1, 2, 3}};
  TraceEvent life{.begin = TimePoint(microseconds(100)),
                  .duration = microseconds(50),
                  .label = TraceLabel::kDecode,
                  .values = {16, 2, 0}};
  ASSERT_TRUE(file.Append(Batch({span, counter, life}), "server", microseconds(1000)).has_value());

  const json::array spans = EventsOf("X");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].at("name"), "attention");
  EXPECT_EQ(spans[0].at("cat"), "kernel");
  EXPECT_DOUBLE_EQ(spans[0].at("ts").to_number<double>(), 1001.045);
  EXPECT_DOUBLE_EQ(spans[0].at("dur").to_number<double>(), 2.007);
  EXPECT_EQ(spans[0].at("args").at("layer"), 3);
  const json::array counters = EventsOf("C");
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0].at("args"), json::value({{"held", 1}, {"cached", 2}, {"free", 3}}));
  const json::array begins = EventsOf("b"), ends = EventsOf("e");
  ASSERT_EQ(begins.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(begins[0].at("id2"), ends[0].at("id2"));
  EXPECT_EQ(begins[0].at("id2").at("local"), "0x1002");
  EXPECT_DOUBLE_EQ(begins[0].at("ts").to_number<double>(), 1100);
  EXPECT_DOUBLE_EQ(ends[0].at("ts").to_number<double>(), 1150);
}

TEST_F(TraceFileTest, EndsAtItsLargestSizeAndStaysWhole) {
  TraceFile file = Create(/*bytes_max=*/2000);
  Result<> appended;
  int count = 0;
  while (appended && count < 1000) {
    appended = file.Append(Batch({Span(TraceLabel::kPlan, count, 1)}), "server", {});
    ++count;
  }
  ASSERT_FALSE(appended.has_value());
  EXPECT_EQ(appended.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(std::ssize(EventsOf("X")), file.num_events());
  EXPECT_GT(file.num_events(), 5);
  EXPECT_LE(std::filesystem::file_size(Path()), 2100u);
}

// A limit of the process on the size of files behaves as a disk that runs full in the middle of a write.
TEST_F(TraceFileTest, ADiskThatRunsFullLeavesAWholeFile) {
  TraceFile file = Create();
  ASSERT_TRUE(file.Append(Batch({Span(TraceLabel::kPlan, 1, 1)}), "server", {}).has_value());
  const auto size = std::filesystem::file_size(Path());
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit limit{.rlim_cur = size + 50, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::vector<TraceEvent> events;
  for (int i = 0; i < 100; ++i) events.push_back(Span(TraceLabel::kPlan, 10 * i, 1));
  const Result<> appended = file.Append(Batch(events), "server", {});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_action);

  ASSERT_FALSE(appended.has_value());
  EXPECT_EQ(appended.error().code, ErrorCode::kIo);
  EXPECT_NE(appended.error().message.find(Path()), std::string::npos);
  EXPECT_EQ(EventsOf("X").size(), 1u);
  EXPECT_EQ(file.num_events(), 1);
}

TEST_F(TraceFileTest, AFullDiskShowsAtTheStart) {
  const auto file = TraceFile::Create("/dev/full", TraceFile::Mode::kOverwrite, 1 << 20);
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::kIo);
  EXPECT_FALSE(TraceFile::Create(folder_ / "no" / "such", TraceFile::Mode::kOverwrite, 1 << 20).has_value());
}

TEST_F(TraceFileTest, AFileOfOursIsNeverWrittenThroughALink) {
  const std::string victim = folder_ / "victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, Path());
  auto file = TraceFile::Create(Path(), TraceFile::Mode::kOwn, 1 << 20);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ASSERT_TRUE(file->Append(Batch({Span(TraceLabel::kPlan, 1, 1)}), "server", {}).has_value());
  std::ifstream stream(victim);
  std::string text;
  stream >> text;
  EXPECT_EQ(text, "precious");
  EXPECT_EQ(EventsOf("X").size(), 1u);
  EXPECT_FALSE(std::filesystem::is_symlink(Path()));
}

}  // namespace
}  // namespace quire::server
