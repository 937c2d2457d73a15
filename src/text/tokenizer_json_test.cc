// What a tokenizer.json may not say, and how long it may take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/mapped_file.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

// A tiny file; `model` and `rest` are members of the model and of the whole.
std::string File(std::string_view model, std::string_view rest) {
  return fmt::format(R"({{"model": {{"type": "BPE", {}}}{}{}}})", model, rest.empty() ? "" : ", ", rest);
}
constexpr std::string_view kModel =
    R"("unk_token": null, "vocab": {"a": 0, "b": 1, "ab": 2, " ": 3}, "merges": ["a b"])";

std::string ErrorOf(std::string_view json) {
  const auto tokenizer = LoadTokenizerJson(json, "t.json");
  return tokenizer.has_value() ? "no error" : tokenizer.error().message;
}

TEST(TokenizerJson, UnknownComponentsAreNamed) {
  using testing::HasSubstr;
  EXPECT_EQ(ErrorOf(File(kModel, "")), "no error");
  EXPECT_THAT(ErrorOf(File(kModel, R"("normalizer": {"type": "Fancy"})")), HasSubstr("Fancy"));
  EXPECT_THAT(ErrorOf(File(kModel, R"("pre_tokenizer": {"type": "UnicodeScripts"})")), HasSubstr("UnicodeScripts"));
  EXPECT_THAT(ErrorOf(File(kModel, R"("decoder": {"type": "WordPiece"})")), HasSubstr("WordPiece"));
  EXPECT_THAT(ErrorOf(File(kModel, R"("post_processor": {"type": "Other"})")), HasSubstr("Other"));
  EXPECT_THAT(ErrorOf(R"({"model": {"type": "WordLevel", "vocab": {}}})"), HasSubstr("WordLevel"));
  EXPECT_THAT(ErrorOf(File(R"("vocab": {}, "merges": [], "dropout": 0.1)", "")), HasSubstr("dropout"));
}

TEST(TokenizerJson, BrokenFilesAreRefused) {
  const std::string hostile[] = {
      "",
      "[]",
      "{}",
      R"({"model": null})",
      R"({"model": 3})",
      File(R"("vocab": 1, "merges": [])", ""),
      File(R"("vocab": {"a": -1}, "merges": [])", ""),
      File(R"("vocab": {"a": 4294967296}, "merges": [])", ""),
      File(R"("vocab": {"a": 9999999}, "merges": [])", ""),  // far beyond the entries
      File(R"("vocab": {"a": 0.5}, "merges": [])", ""),
      File(R"("vocab": {"a": 0, "b": 0}, "merges": [])", ""),
      File(R"("vocab": {"a": 0, "a": 1}, "merges": [])", ""),  // a key that stands twice
      File(R"("vocab": {"a": 0}, "merges": ["a b"])", ""),     // a part that is no entry
      File(R"("vocab": {"a": 0}, "merges": ["a a"])", ""),     // a result that is no entry
      File(R"("vocab": {"a": 0}, "merges": ["a"])", ""),
      File(R"("vocab": {"a": 0}, "merges": [["a"]])", ""),
      File(R"("vocab": {"a": 0}, "merges": [5])", ""),
      File(R"("vocab": {"a": 0}, "merges": [], "unk_token": "zz")", ""),
      File(R"("vocab": {"a": 0}, "merges": [], "byte_fallback": 1)", ""),
      File(R"("vocab": {"a": 0, "aa": 1}, "merges": ["a a"], "continuing_subword_prefix": "##")", ""),
      File(kModel, R"("added_tokens": [{"id": 5}])"),
      File(kModel, R"("added_tokens": [{"id": -5, "content": "x"}])"),
      File(kModel, R"("added_tokens": [{"id": 9000000, "content": "x"}])"),
      File(kModel, R"("added_tokens": [{"id": 5, "content": "x"}, {"id": 5, "content": "y"}])"),
      File(kModel, R"("added_tokens": [{"id": 5, "content": "x"}, {"id": 6, "content": "x"}])"),
      File(kModel, fmt::format(R"("added_tokens": [{{"id": 5, "content": "{}"}}])", std::string(5000, 'x'))),
      File(kModel, R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})"),
      File(kModel, R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Sideways"})"),
      File(kModel, R"("pre_tokenizer": {"type": "Metaspace", "replacement": "__"})"),
      File(kModel, R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": 3})"),
      File(kModel, R"("normalizer": {"type": "Replace", "pattern": {"String": "a"}})"),
      File(kModel, R"("decoder": {"type": "Strip", "content": " ", "start": -1, "stop": 0})"),
      File(kModel, R"("decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"},
                      {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})"),
      File(kModel, R"("post_processor": {"type": "BertProcessing", "cls": ["x", 77], "sep": ["x", 0]})"),
      File(kModel, R"("post_processor": {"type": "TemplateProcessing", "single": []})"),
      File(kModel, R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}},
                      {"Sequence": {"id": "A"}}], "special_tokens": {"x": {"ids": [99]}}})"),
      std::string(100, '[') + std::string(100, ']'),
  };
  for (const std::string& json : hostile) {
    const auto tokenizer = LoadTokenizerJson(json, "t.json");
    ASSERT_FALSE(tokenizer.has_value()) << json;
    EXPECT_NE(tokenizer.error().message.find("t.json"), std::string::npos) << tokenizer.error().message;
  }
}

TEST(TokenizerJson, ARunawayRegexFailsTheTextNotTheProcess) {
  const auto tokenizer = LoadTokenizerJson(
      File(kModel,
           R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?:a|aa)+[^ab]"}, "behavior": "Isolated"})"),
      "t.json");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const auto ids = (*tokenizer)->Encode(std::string(30000, 'a'), {});
  ASSERT_FALSE(ids.has_value());
  EXPECT_EQ(ids.error().code, ErrorCode::kOutOfRange);
  EXPECT_TRUE((*tokenizer)->Encode("ab ab", {}).has_value());
}

TEST(TokenizerJson, TextsThatExplodeAreRefused) {
  const auto tokenizer = LoadTokenizerJson(
      File(kModel, fmt::format(R"("normalizer": {{"type": "Replace", "pattern": {{"String": "a"}}, "content": "{}"}})",
                               std::string(100000, 'b'))),
      "t.json");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const auto ids = (*tokenizer)->Encode(std::string(100000, 'a'), {});
  ASSERT_FALSE(ids.has_value());
  EXPECT_EQ(ids.error().code, ErrorCode::kOutOfRange);
}

// A special token that the normalizer changes is special all the same; the reference's decoder forgets that.
TEST(TokenizerJson, NormalizedSpecialTokensAreSkipped) {
  const auto tokenizer =
      LoadTokenizerJson(File(kModel, R"("normalizer": {"type": "Prepend", "prepend": "b"}, "decoder": {"type": "Fuse"},
           "added_tokens": [{"id": 4, "content": "<s>", "normalized": true, "special": true}])"),
                        "t.json");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const auto ids = (*tokenizer)->Encode("<s>ab", {});
  ASSERT_TRUE(ids.has_value());
  EXPECT_THAT(*ids, testing::ElementsAre(TokenId(4), TokenId(2)));
  EXPECT_EQ((*tokenizer)->Decode(*ids, true), "ab");
  EXPECT_EQ((*tokenizer)->Decode(*ids, false), "b<s>ab");
}

class DemoJson : public testing::Test {
 protected:
  const std::string json_ = ReadFile(QUIRE_SOURCE_DIR "/models/demo/tokenizer.json", 1 << 24).value();
};

// A word of 200,000 letters must not take the square of its length.
TEST_F(DemoJson, LongWordsTakeTheTimeOfManyShortOnes) {
  const auto tokenizer = LoadTokenizerJson(json_, "tokenizer.json");
  ASSERT_TRUE(tokenizer.has_value());
  std::string word;
  while (word.size() < 200000) word.append("tion");
  const auto long_ids = (*tokenizer)->Encode(word, {});
  ASSERT_TRUE(long_ids.has_value());
  EXPECT_EQ((*tokenizer)->Decode(*long_ids, false), word);
  EXPECT_LE(long_ids->size(), word.size() / 2);
  // The square would be 4e10 steps, minutes; the test's own time limit watches over that.
}

// LOAD-07: a vocabulary of 150,000 entries loads in less than a second. The bound here is wide, because tests run
// without optimisation and under sanitizers; text_bench measures.
TEST(TokenizerJson, LargeVocabulariesLoadQuickly) {
  std::string vocab, merges;
  // All strings of 1 to 3 letters of an alphabet of 53, and the merges that make them.
  const std::string alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0";
  int id = 0;
  const auto add = [&](const std::string& text) {
    vocab += fmt::format("{}\"{}\":{}", id == 0 ? "" : ",", text, id), ++id;
  };
  const auto merge = [&](const std::string& left, const std::string& right) {
    merges += fmt::format("{}\"{} {}\"", merges.empty() ? "" : ",", left, right);
  };
  for (const char a : alphabet) add({a});
  for (const char a : alphabet) {
    for (const char b : alphabet) add({a, b}), merge({a}, {b});
  }
  for (const char a : alphabet) {
    for (const char b : alphabet) {
      for (const char c : alphabet) add({a, b, c}), merge({a, b}, {c});
    }
  }
  ASSERT_GT(id, 150000);
  const std::string json = File(fmt::format(R"("vocab": {{{}}}, "merges": [{}])", vocab, merges), "");
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = LoadTokenizerJson(json, "large");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_LT(seconds.count(), 20.0);
  EXPECT_EQ((*tokenizer)->Encode("XYZ", {}).value().size(), 1u);
}

}  // namespace
}  // namespace quire::text
