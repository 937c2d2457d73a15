// The whole tokenizer on models/demo: golden ids, decoding.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/mapped_file.h"

namespace quire::text {
namespace {

std::vector<std::int32_t> Values(std::span<const TokenId> ids) {
  std::vector<std::int32_t> values;
  for (const TokenId id : ids) values.push_back(id.value());
  return values;
}

class DemoTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = QUIRE_SOURCE_DIR "/models/demo/";
    const Result<std::string> text = ReadFile(folder + "tokenizer.json", 1 << 24);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizerJson(*text, "tokenizer.json");
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    tokenizer_ = *std::move(tokenizer);
    const Result<std::string> golden = ReadFile(folder + "golden.json", 1 << 24);
    ASSERT_TRUE(golden.has_value()) << golden.error().message;
    golden_ = ParseJson(*golden, "golden.json").value();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  json::value golden_;
};

TEST_F(DemoTokenizer, EncodesAndDecodesTheGoldenPrompts) {
  ASSERT_FALSE(golden_.as_array().empty());
  for (const json::value& entry : golden_.as_array()) {
    const std::string prompt(entry.at("prompt").as_string());
    std::vector<std::int32_t> expected;
    for (const json::value& id : entry.at("prompt_ids").as_array()) {
      expected.push_back(static_cast<std::int32_t>(id.as_int64()));
    }
    const Result<std::vector<TokenId>> ids = tokenizer_->Encode(prompt, {});
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(Values(*ids), expected) << prompt;
    EXPECT_EQ(tokenizer_->Decode(*ids, /*skip_special_tokens=*/false), prompt);
    std::vector<TokenId> greedy;
    for (const json::value& id : entry.at("greedy_ids").as_array()) {
      greedy.emplace_back(static_cast<std::int32_t>(id.as_int64()));
    }
    EXPECT_EQ(tokenizer_->Decode(greedy, /*skip_special_tokens=*/false), entry.at("greedy_text").as_string());
  }
}

TEST_F(DemoTokenizer, KnowsItsSpecialTokens) {
  const std::optional<TokenId> end = tokenizer_->FindToken("<|im_end|>");
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->value(), 4089);
  EXPECT_TRUE(tokenizer_->IsSpecial(*end));
  EXPECT_EQ(tokenizer_->TokenText(*end), "<|im_end|>");
  const std::optional<TokenId> think = tokenizer_->FindToken("<think>");
  ASSERT_TRUE(think.has_value());
  EXPECT_FALSE(tokenizer_->IsSpecial(*think));
  EXPECT_EQ(tokenizer_->vocab_size(), 4096);
  EXPECT_FALSE(tokenizer_->IsSpecial(TokenId(-1)));
  EXPECT_EQ(tokenizer_->TokenBytes(TokenId(5000)), "");
}

TEST_F(DemoTokenizer, LeavesSpecialTokensInTheTextWhenAsked) {
  const auto ids = tokenizer_->Encode("a<|im_end|>b<think>", {.parse_special_tokens = false});
  ASSERT_TRUE(ids.has_value());
  EXPECT_THAT(*ids, testing::Not(testing::Contains(TokenId(4089))));
  EXPECT_EQ(ids->back(), TokenId(4094));  // an ordinary added token is found all the same
  EXPECT_EQ(tokenizer_->Decode(*ids, true), "a<|im_end|>b<think>");
}

}  // namespace
}  // namespace quire::text
