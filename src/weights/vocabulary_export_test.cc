#include "weights/vocabulary_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
constexpr std::string_view kModel = R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";
constexpr std::string_view kAdded =
    R"("added_tokens":[{"id":3,"content":"<|end|>","special":true},{"id":4,"content":"<tool>","special":false}])";

std::string Split(std::string_view pattern) {
  return fmt::format(
      R"("pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":{{"Regex":"{}"}},
                        "behavior":"Isolated"}},{{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}}]}})",
      pattern);
}

Result<GgufVocabulary> Export(std::string_view members, std::string bos = "", std::string eos = "<|end|>",
                              int vocab_size = 6) {
  ModelConfig config;
  config.vocab_size = vocab_size;
  config.eos_token_ids = {TokenId(2)};
  const TextAssets assets{.tokenizer_json = fmt::format("{{{}}}", members), .bos_token = bos, .eos_token = eos};
  return VocabularyFromTokenizerJson(assets, "tokenizer.json", config);
}

std::string ErrorOf(std::string_view members, int vocab_size = 6) {
  const auto vocabulary = Export(members, "", "", vocab_size);
  return vocabulary.has_value() ? "no error" : vocabulary.error().message;
}

TEST(VocabularyExport, ByteLevel) {
  const auto vocabulary = Export(fmt::format("{},{},{}", kModel, kAdded, Split(kQwenPattern)));
  ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->model, "gpt2");
  EXPECT_EQ(vocabulary->pre, "qwen2");
  EXPECT_THAT(vocabulary->tokens, ElementsAre("a", "b", "ab", "<|end|>", "<tool>", "[PAD5]"));
  EXPECT_THAT(vocabulary->token_types, ElementsAre(1, 1, 1, 3, 4, 5));
  EXPECT_THAT(vocabulary->merges, ElementsAre("a b"));
  EXPECT_EQ(vocabulary->eos_id, 3);
  EXPECT_FALSE(vocabulary->bos_id.has_value());
  EXPECT_EQ(vocabulary->add_bos, false);
}

TEST(VocabularyExport, OtherSpellings) {
  // Merges as pairs, GPT-2's own pattern inside ByteLevel, a BOS that a template adds.
  const auto vocabulary = Export(
      R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]},
         "added_tokens":[{"id":3,"content":"<s>","special":true}],
         "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},
         "post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
           "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]}]})",
      "", "");
  ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->pre, "gpt-2");
  EXPECT_THAT(vocabulary->merges, ElementsAre("a b"));
  EXPECT_EQ(vocabulary->bos_id, 3);
  EXPECT_EQ(vocabulary->add_bos, true);
  EXPECT_EQ(vocabulary->eos_id, 2);  // of the config
}

TEST(VocabularyExport, SentencePiece) {
  const auto vocabulary = Export(
      R"("model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>",
           "vocab":{"<unk>":0,"<0x0A>":1,"▁a":2,"▁":3,"a":4,"▁aa":5},"merges":["▁ a","▁a a"]},
         "added_tokens":[{"id":0,"content":"<unk>","special":true}],
         "normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
           {"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":null)",
      "", "");
  ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->model, "llama");
  EXPECT_THAT(vocabulary->token_types, ElementsAre(2, 6, 1, 1, 1, 1));
  EXPECT_EQ(vocabulary->unk_id, 0);
  EXPECT_EQ(vocabulary->add_space_prefix, true);
  EXPECT_TRUE(vocabulary->merges.empty());
  EXPECT_EQ(vocabulary->scores[2], 0.0f);
  EXPECT_EQ(vocabulary->scores[5], -1.0f);
  EXPECT_LT(vocabulary->scores[4], -1.0f);
}

TEST(VocabularyExport, WhatGgufCannotSayIsAnError) {
  EXPECT_THAT(ErrorOf(fmt::format("{},{}", kModel, Split(R"(\\d+)"))),
              HasSubstr("GGUF has no name for this pre-tokenizer"));
  EXPECT_THAT(ErrorOf(std::string(kModel)), HasSubstr("(none)"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"Unigram"})"), HasSubstr("\"Unigram\" cannot be written"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","merges":[]})"), HasSubstr("model.vocab is missing"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","vocab":{}})"), HasSubstr("model.merges is missing"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","vocab":{"a":9},"merges":[]})"),
              HasSubstr("outside the vocabulary of 6"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), HasSubstr("have the same id 0"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","vocab":{"a":0},"merges":[7]})"),
              HasSubstr("neither a string nor a pair"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","vocab":{"a":0},"merges":[["a b","c"]]})"),
              HasSubstr("a space in a token"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0},"merges":["a b"]})"),
              HasSubstr("makes a token that is not in the vocabulary"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0},"merges":[]},
                         "normalizer":{"type":"Lowercase"})"),
              HasSubstr("Lowercase"));
  EXPECT_THAT(ErrorOf(R"("model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0},"merges":[]})"),
              HasSubstr("spaces are not replaced"));
}

}  // namespace
}  // namespace quire::weights
