// The parts of the program that are not commands: units, progress bars, configurations as flags and JSON.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "cli/config_fields.h"
#include "cli/help_formatter.h"
#include "cli/progress_bar.h"
#include "cli/units.h"

namespace quire::cli {
namespace {

using namespace std::chrono_literals;
using namespace std::string_view_literals;

TEST(Units, BytesAreReadWithUnits) {
  EXPECT_EQ(ParseBytes("4GiB"), std::int64_t{4} << 30);
  EXPECT_EQ(ParseBytes("4GB"), 4'000'000'000);
  EXPECT_EQ(ParseBytes("1.5m"), 3 << 19);
  EXPECT_EQ(ParseBytes("17"), 17);
  EXPECT_EQ(ParseBytes("0"), 0);
  EXPECT_EQ(ParseBytes("2 kib"), 2048);
  for (const char* wrong : {"", "GiB", "-1", "1e3", "4 apples", "99999999999999999999", "nan", "inf", "0x10", "1..2"}) {
    EXPECT_FALSE(ParseBytes(wrong).has_value()) << wrong;
  }
  EXPECT_EQ(ParseBytes(ExactBytes(3 << 20)), 3 << 20);
  EXPECT_EQ(ParseBytes(ExactBytes(12345)), 12345);
}

TEST(Units, DurationsAreReadWithUnits) {
  EXPECT_EQ(ParseDuration("250ms"), 250ms);
  EXPECT_EQ(ParseDuration("30"), 30s);
  EXPECT_EQ(ParseDuration("1.5s"), 1500ms);
  EXPECT_EQ(ParseDuration("5m"), 5min);
  EXPECT_FALSE(ParseDuration("5 fortnights").has_value());
  for (const auto duration : {250ms, 1500ms, 75'000ms, 300'000ms, 0ms}) {
    EXPECT_EQ(ParseDuration(ExactDuration(duration)), duration);
  }
}

TEST(Units, NumbersForPeople) {
  EXPECT_EQ(FormatBytes(12), "12 B");
  EXPECT_EQ(FormatBytes(9'190'512), "8.76 MiB");
  EXPECT_EQ(FormatBytes(std::int64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(FormatCount(4'590'000), "4.59M");
  EXPECT_EQ(FormatCount(494'000'000), "494M");
  EXPECT_EQ(FormatCount(2048), "2048");
  EXPECT_EQ(FormatSeconds(0.42), "0.4 s");
  EXPECT_EQ(FormatSeconds(185), "3 min 05 s");
}

// What is written to a file that is no terminal.
TEST(Units, TextOfAFileDoesNotSteerTheTerminal) {
  EXPECT_EQ(Printable("tensor \xC3\xA9\x1B[2J\a\0!"sv), "tensor \xC3\xA9\\x1b[2J\\x07\\x00!");
  EXPECT_EQ(Printable("\x7F\xC2\x9B two\nlines \xFF"), "\\x7f\\x9b two\nlines \xEF\xBF\xBD");
}

class ProgressTest : public ::testing::Test {
 protected:
  ProgressTest() : file_(std::tmpfile()) {}
  ~ProgressTest() override { std::fclose(file_); }

  std::string Written() {
    std::string text(static_cast<std::size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    return text;
  }
  std::FILE* file_;
  ManualClock clock_;
};

TEST_F(ProgressTest, OneLinePerTenthWithoutATerminal) {
  ProgressBar bar("loading", {.file = file_}, &clock_);
  for (int i = 0; i <= 1000; ++i) {
    bar.Update(i << 19, 1000 << 19);
    clock_.Advance(1ms);
  }
  const std::string text = Written();
  EXPECT_EQ(std::ranges::count(text, '\n'), 11);
  EXPECT_NE(text.find(" 50 %  250 MiB of 500 MiB  0.5 GB/s  0.5 s left\n"), std::string::npos) << text;
  EXPECT_NE(text.find("100 %"), std::string::npos);
}

TEST_F(ProgressTest, ABarOnATerminalFitsIntoItsWidth) {
  for (const std::size_t columns : {200u, 80u, 70u, 20u, 2u}) {
    const long begin = std::ftell(file_);
    {
      ProgressBar bar("loading", {.file = file_, .is_tty = true, .columns = static_cast<int>(columns)}, &clock_);
      bar.Update(1, 100);
      clock_.Advance(400s);
      bar.Update(std::int64_t{999} << 30, std::int64_t{2000} << 30);
    }
    const std::string text = Written().substr(static_cast<std::size_t>(begin));
    EXPECT_EQ(text.find("█") != std::string::npos, columns >= 80);
    EXPECT_TRUE(text.ends_with("\r\x1b[K"));  // nothing is left behind
    for (std::size_t at = 0; at != std::string::npos && at < text.size();) {
      const std::size_t end = std::min(text.find('\r', at), text.size());
      const std::string line = text.substr(at, end - at);
      const auto is_first_byte = [](char c) { return (c & 0xC0) != 0x80; };  // of a character
      EXPECT_LT(std::ranges::count_if(line, is_first_byte), static_cast<long>(columns + std::size("\x1b[K") - 1));
      at = end + 1;
    }
  }
}

TEST_F(ProgressTest, ARestartBeginsAnew) {
  ProgressBar bar("loading", {.file = file_}, &clock_);
  bar.Update(100, 100);
  bar.Update(0, 100);
  bar.Update(100, 100);
  const std::string text = Written();
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
}

// ---- Configurations ------------------------------------------------------------------------------------------------

TEST(ConfigVisitor, JsonBringsEveryFieldAcross) {
  engine::EngineOptions options;
  options.model = "a folder/model.gguf";
  options.num_threads = 3;
  options.isa = "avx2";
  options.kv_dtype = kernels::KvDtype::kInt4;
  options.quantization = weights::Quantization::kInt4;
  options.quantization_report = "errors.tsv";
  options.kv_memory_bytes = std::int64_t{5} << 30;
  options.kv_memory_fraction = 0.25;
  options.max_model_len = 4096;
  options.max_num_seqs = 7;
  options.max_num_batched_tokens = 99;
  options.max_chunk_tokens = 64;
  options.max_num_queued_requests = 12;
  options.policy = sched::PolicyKind::kFcfs;
  options.enable_prefix_caching = false;
  const std::string text = ConfigToJson(options);
  const Result<engine::EngineOptions> read = ConfigFromJson<engine::EngineOptions>(text, "test");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(ConfigToJson(*read), text);
  EXPECT_EQ(read->model, options.model);
  EXPECT_EQ(read->kv_memory_bytes, options.kv_memory_bytes);
  EXPECT_EQ(read->policy, options.policy);
  EXPECT_EQ(read->kv_dtype, options.kv_dtype);
  EXPECT_EQ(read->quantization, options.quantization);
  EXPECT_EQ(read->quantization_report, options.quantization_report);
  EXPECT_FALSE(read->enable_prefix_caching);
}

TEST(ConfigVisitor, WrongJsonIsRefused) {
  const auto error = [](std::string_view text) {
    const auto read = ConfigFromJson<engine::EngineOptions>(text, "test");
    return read ? std::string("none") : read.error().message;
  };
  EXPECT_EQ(error("{}"), "none");
  EXPECT_EQ(error(R"({"max_num_seqs": "7"})"), "max_num_seqs must be an integer from -2147483648 to 2147483647");
  EXPECT_NE(error(R"({"max_num_seqs": 2147483648})"), "none");
  EXPECT_NE(error(R"({"max_num_seqs": 7.0})"), "none");
  EXPECT_NE(error(R"({"enable_prefix_caching": 1})"), "none");
  EXPECT_NE(error(R"({"scheduling_policy": "best"})"), "none");
  EXPECT_NE(error(R"({"eviction_policy": "best"})"), "none");
  EXPECT_EQ(error(R"({"no_such_field": 1})"), "the configuration has no field \"no_such_field\"");
  EXPECT_NE(error("[]"), "none");
  EXPECT_NE(error("{"), "none");
}

template <typename Config>
std::string Parse(Config* config, std::vector<std::string> arguments) {
  CLI::App app;
  AddFlags(*config, &app, "Group");
  std::ranges::reverse(arguments);  // CLI11 wants them so
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigVisitor, FlagsSetFields) {
  engine::EngineOptions options;
  EXPECT_EQ(Parse(&options, {"some/model", "--kv-memory", "2GiB", "--no-enable-prefix-caching", "--scheduling-policy",
                             "fcfs", "--eviction-policy", "size-aware", "--kv-retained-fraction", "0.25",
                             "--max-num-seqs", "9", "--kv-cache-dtype", "fp8", "--quantization", "int8"}),
            "");
  EXPECT_EQ(options.model, "some/model");
  EXPECT_EQ(options.kv_memory_bytes, std::int64_t{2} << 30);
  EXPECT_FALSE(options.enable_prefix_caching);
  EXPECT_EQ(options.policy, sched::PolicyKind::kFcfs);
  EXPECT_EQ(options.eviction_policy, kv::EvictionPolicy::kSizeAware);
  EXPECT_EQ(options.kv_retained_fraction, 0.25);
  EXPECT_EQ(options.kv_dtype, kernels::KvDtype::kFp8E4m3);
  EXPECT_EQ(options.quantization, weights::Quantization::kInt8);
  EXPECT_EQ(options.max_num_seqs, 9);

  server::ServerConfig server;
  EXPECT_EQ(Parse(&server, {"--api-key", "a,b", "--max-body-size", "1MiB", "--idle-timeout", "5s"}), "");
  EXPECT_EQ(server.api_keys, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(server.body_bytes_max, std::size_t{1} << 20);
  EXPECT_EQ(server.idle_timeout, 5s);
}

// Whatever else is a path: what stands alone on the command line is the model.
TEST(ConfigVisitor, OnlyTheModelIsAnArgument) {
  engine::EngineOptions options;
  EXPECT_EQ(Parse(&options, {"some/model", "--kv-disk", "some/folder"}), "");
  EXPECT_EQ(options.model, "some/model");
  EXPECT_EQ(options.kv_disk, "some/folder");
  EXPECT_EQ(Parse(&options, {"--model", "other/model"}), "");
  EXPECT_EQ(options.model, "other/model");
  EXPECT_NE(Parse(&options, {"some/model", "some/folder"}), "");
}

TEST(ConfigVisitor, FlagErrorsNameFlagAndValue) {
  engine::EngineOptions options;
  EXPECT_NE(Parse(&options, {"--max-num-seqs", "many"}).find("--max-num-seqs"), std::string::npos);
  const std::string memory = Parse(&options, {"--kv-memory", "lots"});
  EXPECT_NE(memory.find("\"lots\""), std::string::npos) << memory;
  EXPECT_NE(memory.find("--kv-memory"), std::string::npos) << memory;
  EXPECT_NE(Parse(&options, {"--scheduling-policy", "best"}).find("fcfs"), std::string::npos);
  EXPECT_NE(Parse(&options, {"--eviction-policy", "fifo"}).find("\"fifo\"; known are lru, lfu and size-aware"),
            std::string::npos);
  const std::string quantization = Parse(&options, {"--quantization", "int3"});
  EXPECT_NE(quantization.find("\"int3\"; known are none, int8, int4, fp8"), std::string::npos) << quantization;
  EXPECT_NE(Parse(&options, {"--no-such-flag"}), "");
}

// Keys must not get into logs.
TEST(ConfigVisitor, LogsShowNoKeys) {
  server::ServerConfig server;
  server.api_keys = {"secret-key"};
  const std::string line = ConfigToLog(server);
  EXPECT_EQ(line.find("secret"), std::string::npos);
  EXPECT_NE(line.find("api-key=[1]"), std::string::npos);
  EXPECT_NE(line.find("port=8000"), std::string::npos);
  engine::EngineOptions engine;
  engine.kv_redis = "redis://me:secret@host:1";
  EXPECT_EQ(ConfigToLog(engine).find("secret"), std::string::npos);
  EXPECT_NE(ConfigToLog(engine).find("kv-redis=redis://…@host:1"), std::string::npos);
}

TEST(HelpFormatter, FieldsHaveFlags) {
  EXPECT_EQ(FlagOfField("max_model_len"), "--max-model-len");
  EXPECT_EQ(FlagOfField("kv_memory_bytes"), "--kv-memory");
  EXPECT_EQ(Wrap("one two three", 7, 2), "one two\n  three");
}

}  // namespace
}  // namespace quire::cli
