// SentencePiece models, written here field by field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "text/tokenizer.h"

namespace quire::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void AppendVarint(std::uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
std::string Bytes(std::uint32_t number, std::string_view value) {
  std::string field;
  AppendVarint(number << 3 | 2, &field);
  AppendVarint(value.size(), &field);
  return field.append(value);
}
std::string Number(std::uint32_t number, std::int64_t value) {
  std::string field;
  AppendVarint(number << 3, &field);
  AppendVarint(static_cast<std::uint64_t>(value), &field);
  return field;
}
std::string Piece(std::string_view text, float score, int type = 1) {
  std::string piece = Bytes(1, text);
  AppendVarint(2 << 3 | 5, &piece);
  char bytes[sizeof score];
  std::memcpy(bytes, &score, sizeof score);
  piece.append(bytes, sizeof bytes);
  if (type != 1) piece.append(Number(3, type));
  return Bytes(1, piece);
}

constexpr int kBpe = 2;
std::string Trainer(int model_type, bool byte_fallback) {
  return Bytes(2, Number(3, model_type) + Number(35, byte_fallback) + Number(40, 0) + Number(41, 1) + Number(42, 2));
}
std::string Normalizer(bool dummy_prefix, bool remove_extra) {
  return Bytes(3, Bytes(1, "identity") + Number(3, dummy_prefix) + Number(4, remove_extra) + Number(5, 1));
}

// 0 <unk> 1 <s> 2 </s> 3 ▁ 4 a 5 b 6 ab 7 ▁a 8 ▁ab 9 ▁▁ 10 <user>
std::string Model() {
  std::string model = Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3);
  model += Piece("\u2581", -10) + Piece("a", -11) + Piece("b", -12);
  model += Piece("ab", -2) + Piece("\u2581a", -1) + Piece("\u2581ab", -3) + Piece("\u2581\u2581", 0);
  return model + Piece("<user>", 0, 4);
}
std::string WithBytes(std::string model) {
  for (int byte = 0; byte < 256; ++byte) model += Piece(fmt::format("<0x{:02X}>", byte), 0, 6);
  return model;
}

std::vector<std::int32_t> Ids(const Result<std::unique_ptr<Tokenizer>>& tokenizer, std::string_view text) {
  std::vector<std::int32_t> values;
  const auto ids = (*tokenizer)->Encode(text, {});
  for (const TokenId id : ids.value()) values.push_back(id.value());
  return values;
}

TEST(SentencePiece, MergesByScore) {
  const auto tokenizer = LoadSentencePiece(Model() + Trainer(kBpe, false) + Normalizer(true, false), "m.model", {});
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_THAT(Ids(tokenizer, ""), ElementsAre(1));
  EXPECT_THAT(Ids(tokenizer, "ab"), ElementsAre(1, 8));  // ▁a first, then ▁ab
  EXPECT_THAT(Ids(tokenizer, "abab"), ElementsAre(1, 8, 6));
  EXPECT_THAT(Ids(tokenizer, " ab"), ElementsAre(1, 9, 6));  // ▁▁ has the best score
  EXPECT_THAT(Ids(tokenizer, "a<user>b"), ElementsAre(1, 7, 10, 3, 5));
  EXPECT_THAT(Ids(tokenizer, "a</s>a"), ElementsAre(1, 7, 2, 7));
  EXPECT_THAT(Ids(tokenizer, "axyb"), ElementsAre(1, 7, 0, 5));  // neighbouring unknown characters are one
  const std::vector<TokenId> ids = (*tokenizer)->Encode("ab  a", {}).value();
  EXPECT_EQ((*tokenizer)->Decode(ids, true), "ab  a");
  EXPECT_TRUE((*tokenizer)->StripsLeadingSpace());
  EXPECT_TRUE((*tokenizer)->IsSpecial(TokenId(1)));
  EXPECT_FALSE((*tokenizer)->IsSpecial(TokenId(10)));
}

TEST(SentencePiece, FallsBackOnBytes) {  // TOK-08
  const auto tokenizer =
      LoadSentencePiece(WithBytes(Model()) + Trainer(kBpe, true) + Normalizer(true, false), "m.model", {});
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_THAT(Ids(tokenizer, "a\n"), ElementsAre(1, 7, 11 + 10));
  const std::string llama = "a \xF0\x9F\xA6\x99.b";
  EXPECT_THAT(Ids(tokenizer, llama), ElementsAre(1, 7, 3, 11 + 0xF0, 11 + 0x9F, 11 + 0xA6, 11 + 0x99, 11 + '.', 5));
  EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(llama, {}).value(), true), llama);
  // A text that spells a byte token is text.
  EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode("<0x41>", {}).value(), true), "<0x41>");
}

TEST(SentencePiece, HonoursItsOptions) {
  auto tokenizer = LoadSentencePiece(Model() + Trainer(kBpe, false) + Normalizer(false, false), "m.model",
                                     {.add_bos = false, .add_eos = true});
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_THAT(Ids(tokenizer, "ab"), ElementsAre(6, 2));
  EXPECT_FALSE((*tokenizer)->StripsLeadingSpace());
  tokenizer = LoadSentencePiece(Model() + Trainer(kBpe, false) + Normalizer(true, true), "m.model", {});
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_THAT(Ids(tokenizer, "  a   a "), ElementsAre(1, 7, 7));
}

TEST(SentencePiece, RefusesWhatItCannotDo) {
  const auto error = [](std::string_view bytes) {
    const auto tokenizer = LoadSentencePiece(bytes, "m.model", {});
    return tokenizer.has_value() ? "no error" : tokenizer.error().message;
  };
  EXPECT_THAT(error(Model() + Trainer(1, false)), HasSubstr("unigram"));
  EXPECT_THAT(error(Model() + Trainer(3, false)), HasSubstr("word"));
  EXPECT_THAT(error(Model() + Trainer(kBpe, false) + Bytes(3, Bytes(1, "nmt_nfkc") + Bytes(2, "xyz"))),
              HasSubstr("nmt_nfkc"));
  EXPECT_THAT(error(""), HasSubstr("m.model"));
  EXPECT_THAT(error(Trainer(kBpe, false)), HasSubstr("0 pieces"));
  EXPECT_THAT(error(Piece("a", 0, 9) + Trainer(kBpe, false)), HasSubstr("type 9"));
  EXPECT_THAT(error(Piece("a", 0) + Piece("a", 0) + Trainer(kBpe, false)), HasSubstr("same text"));
  EXPECT_THAT(error(Piece("a", 0) + Bytes(2, Number(3, kBpe) + Number(41, 7))), HasSubstr("BOS id is 7"));
  EXPECT_THAT(error(Piece("\xFF", 0) + Trainer(kBpe, false)), HasSubstr("UTF-8"));
  EXPECT_THAT(error(Piece("a", std::numeric_limits<float>::quiet_NaN()) + Trainer(kBpe, false)), HasSubstr("score"));
  std::string long_pieces;
  for (int i = 0; i < 3; ++i) long_pieces += Piece(std::string(30000, 'a') + std::to_string(i), 0);
  EXPECT_THAT(error(long_pieces + Trainer(kBpe, false)), HasSubstr("too long"));
}

TEST(SentencePiece, EveryTruncationIsAnErrorOrAModel) {
  const std::string model = Model() + Trainer(kBpe, false) + Normalizer(true, false);
  for (std::size_t size = 0; size < model.size(); ++size) {
    const auto tokenizer = LoadSentencePiece(std::string_view(model).substr(0, size), "m.model", {});
    EXPECT_TRUE(tokenizer.has_value() || !tokenizer.error().message.empty());
  }
  for (const std::string_view broken : {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", "\x0B", "\x00", "\xFF"}) {
    EXPECT_FALSE(LoadSentencePiece(broken, "m.model", {}).has_value());
  }
}

}  // namespace
}  // namespace quire::text
