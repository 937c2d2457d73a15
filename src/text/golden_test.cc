// Small tokenizers, each for one thing that a tokenizer.json can say, against what the reference made of them
// (tests/tokenizers/golden.json, written by make_golden.mjs).
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

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

// The whole tokenizer.json of an entry.
std::string TokenizerJson(const json::value& golden, const json::value& entry) {
  json::object model = entry.at("model").as_object();
  const json::value& vocabulary = golden.at("vocabularies").at(entry.at("vocabulary").as_string());
  model["vocab"] = vocabulary.at("vocab");
  model["merges"] = vocabulary.at("merges");
  json::object tokenizer = entry.at("tokenizer").as_object();
  tokenizer["model"] = std::move(model);
  return ToJson(tokenizer);
}

// TOK-01, TOK-02, TOK-08 ("llama legacy", "llama first"), TOK-04 ("flags"), TOK-05 ("falcon").
TEST(Golden, EveryComponentGivesTheReferencesIdsAndTexts) {
  const std::string text = ReadFile(QUIRE_SOURCE_DIR "/tests/tokenizers/golden.json", 1 << 24).value();
  const json::value golden = ParseJson(text, "golden.json").value();
  const json::array& texts = golden.at("texts").as_array();
  ASSERT_GT(golden.at("tokenizers").as_array().size(), 40u);
  for (const json::value& entry : golden.at("tokenizers").as_array()) {
    const std::string name(entry.at("name").as_string());
    SCOPED_TRACE(name);
    const auto loaded = LoadTokenizerJson(TokenizerJson(golden, entry), name);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    const Tokenizer& tokenizer = **loaded;
    const json::array& cases = entry.at("cases").as_array();
    ASSERT_EQ(cases.size(), texts.size());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::string input(texts[i].as_string());
      const json::array& expected = cases[i].as_array();
      SCOPED_TRACE("\"" + input + "\"");
      const auto ids = tokenizer.Encode(input, {});
      const auto plain_ids = tokenizer.Encode(input, {.add_special_tokens = false});
      ASSERT_TRUE(ids.has_value() && plain_ids.has_value());
      EXPECT_EQ(*ids, IdsOf(expected[0]));
      EXPECT_EQ(*plain_ids, IdsOf(expected[1].is_null() ? expected[0] : expected[1]));
      const std::string decoded(expected[2].is_null() ? texts[i].as_string() : expected[2].as_string());
      const std::string without_special(expected[3].is_null() ? json::string(decoded) : expected[3].as_string());
      const std::vector<TokenId> reference_ids = IdsOf(expected[0]);
      EXPECT_EQ(SanitizeUtf8(tokenizer.Decode(reference_ids, false)), decoded);
      EXPECT_EQ(SanitizeUtf8(tokenizer.Decode(reference_ids, true)), without_special);
      EXPECT_EQ(Streamed(tokenizer, reference_ids, false), decoded);
      EXPECT_EQ(Streamed(tokenizer, reference_ids, true), without_special);
    }
  }
}

}  // namespace
}  // namespace quire::text
