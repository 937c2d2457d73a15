// Streams of ids against the text of the whole sequence.
#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "base/mapped_file.h"
#include "base/utf8.h"

namespace quire::text {
namespace {

// A vocabulary of single bytes (ids 0 to 255), some words with SentencePiece's spaces and a special token.
class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(bool strips) : strips_(strips) {}

  static constexpr std::int32_t kSpecial = 256, kSpace = 257, kHello = 258, kHalf = 259, kCount = 260;

  Result<std::vector<TokenId>> Encode(std::string_view, const EncodeOptions&) const override {
    return Fail(ErrorCode::kUnsupported, "not needed");
  }
  std::string Decode(std::span<const TokenId> ids, bool skip) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (!skip || !IsSpecial(id)) text.append(TokenBytes(id));
    }
    if (strips_ && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }
  std::string TokenBytes(TokenId id) const override {
    if (id.value() < 256) return std::string(1, static_cast<char>(id.value()));
    if (id.value() == kSpecial) return "<s>";
    if (id.value() == kSpace) return " ";
    if (id.value() == kHello) return " Hello";
    return id.value() == kHalf ? " \xE4\xBD" : "";
  }
  bool StripsLeadingSpace() const override { return strips_; }
  std::string_view TokenText(TokenId) const override { return ""; }
  std::optional<TokenId> FindToken(std::string_view) const override { return std::nullopt; }
  bool IsSpecial(TokenId id) const override { return id.value() == kSpecial; }
  int vocab_size() const override { return kCount; }

 private:
  bool strips_;
};

std::vector<TokenId> BytesAsIds(std::string_view bytes) {
  std::vector<TokenId> ids;
  for (const char c : bytes) ids.emplace_back(static_cast<unsigned char>(c));
  return ids;
}

std::string Stream(const Tokenizer& tokenizer, std::span<const TokenId> prompt, std::span<const TokenId> output,
                   bool skip) {
  StreamDecoder decoder(&tokenizer, prompt, skip);
  std::string text;
  for (const TokenId id : output) {
    const std::string piece = decoder.Push(id);
    EXPECT_TRUE(IsValidUtf8(piece));
    text.append(piece);
  }
  const std::string last = decoder.Finish();
  EXPECT_TRUE(IsValidUtf8(last));
  return text.append(last);
}

// The text of the whole, less the text of the prompt: the bytes behind the prompt, without those that complete or
// break off the prompt's last character.
std::string Expected(const Tokenizer& tokenizer, std::span<const TokenId> prompt, std::span<const TokenId> output,
                     bool skip) {
  std::vector<TokenId> all(prompt.begin(), prompt.end());
  all.insert(all.end(), output.begin(), output.end());
  const std::string before = tokenizer.Decode(prompt, skip);
  const std::string whole = tokenizer.Decode(all, skip);
  std::size_t begin = before.size();
  const std::size_t dangling = IncompleteUtf8Tail(before);
  if (dangling > 0) begin += DecodeUtf8(std::string_view(whole).substr(begin - dangling)).size - dangling;
  return SanitizeUtf8(std::string_view(whole).substr(begin));
}

TEST(StreamDecoder, PromptsThatEndInsideACharacter) {  // UTF8-01
  const FakeTokenizer tokenizer(false);
  const auto stream = [&](std::string_view prompt, std::string_view output) {
    return Stream(tokenizer, BytesAsIds(prompt), BytesAsIds(output), true);
  };
  EXPECT_EQ(stream("say \xF0\x9F\x8C", "\xB6 hot"), " hot");  // completed
  EXPECT_EQ(stream("say \xF0\x9F", "plain"), "plain");        // broken off
  EXPECT_EQ(stream("say \xF0\x9F", ""), "");
  EXPECT_EQ(stream("say \xF0\x9F", "\x8C"), "");  // still not complete
  EXPECT_EQ(stream("say \xF0\x9F", "\xF0\x9F\x8C\xB6"), "\xF0\x9F\x8C\xB6");
  EXPECT_EQ(stream("done", "\x80x"), "\xEF\xBF\xBDx");
}

TEST(StreamDecoder, AnEndInsideACharacterIsOneReplacement) {  // UTF8-02
  const FakeTokenizer tokenizer(false);
  EXPECT_EQ(Stream(tokenizer, {}, BytesAsIds("ok \xF0\x9F\x8C"), true), "ok \xEF\xBF\xBD");
  EXPECT_EQ(Stream(tokenizer, {}, BytesAsIds("\xFF\xFE"), true), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(StreamDecoder, AnEmojiOfSingleBytesComesWhole) {  // UTF8-08
  const FakeTokenizer tokenizer(false);
  StreamDecoder decoder(&tokenizer, {}, true);
  EXPECT_EQ(decoder.Push(TokenId(0xF0)), "");
  EXPECT_EQ(decoder.Push(TokenId(0x9F)), "");
  EXPECT_EQ(decoder.Push(TokenId(0x98)), "");
  EXPECT_EQ(decoder.Push(TokenId(0x80)), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoder, OneSpaceIsStrippedAtTheStartOfATextOnly) {  // UTF8-11
  const FakeTokenizer tokenizer(true);
  const TokenId hello(FakeTokenizer::kHello);
  const TokenId special(FakeTokenizer::kSpecial);
  EXPECT_EQ(Stream(tokenizer, {}, std::vector{hello, hello}, true), "Hello Hello");
  EXPECT_EQ(Stream(tokenizer, std::vector{special}, std::vector{hello}, true), "Hello");
  EXPECT_EQ(Stream(tokenizer, std::vector{special}, std::vector{hello}, false), " Hello");
  EXPECT_EQ(Stream(tokenizer, BytesAsIds("."), std::vector{hello}, true), " Hello");
  EXPECT_EQ(Stream(tokenizer, {}, std::vector{special, hello}, true), "Hello");
}

TEST(StreamDecoder, AnyStreamEqualsTheTextOfTheWhole) {  // UTF8-08, UTF8-11
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  // Bytes that make characters often enough.
  static constexpr std::uint8_t kBytes[] = {'a', ' ', 0xC3, 0xA9, 0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x8C, 0xB6, 0x80, 0xFF};
  for (int round = 0; round < 20000; ++round) {
    const FakeTokenizer tokenizer(random() % 2 == 0);
    std::vector<TokenId> ids(random() % 16);
    for (TokenId& id : ids) {
      id = random() % 4 == 0 ? TokenId(static_cast<std::int32_t>(256 + random() % 4))
                             : TokenId(kBytes[random() % std::size(kBytes)]);
    }
    const std::size_t cut = ids.empty() ? 0 : random() % (ids.size() + 1);
    const std::span<const TokenId> all = ids;
    const bool skip = random() % 2 == 0;
    ASSERT_EQ(Stream(tokenizer, all.first(cut), all.subspan(cut), skip),
              Expected(tokenizer, all.first(cut), all.subspan(cut), skip));
  }
}

TEST(StreamDecoder, AnyStreamOfARealVocabularyEqualsItsText) {
  const std::string json = ReadFile(QUIRE_SOURCE_DIR "/models/demo/tokenizer.json", 1 << 24).value();
  const auto tokenizer = LoadTokenizerJson(json, "tokenizer.json");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids(random() % 24);
    // The first 256 entries are bytes.
    for (TokenId& id : ids) id = TokenId(static_cast<std::int32_t>(random() % (random() % 2 == 0 ? 256 : 4100)));
    const std::size_t cut = ids.empty() ? 0 : random() % (ids.size() + 1);
    const std::span<const TokenId> all = ids;
    const bool skip = random() % 2 == 0;
    ASSERT_EQ(Stream(**tokenizer, all.first(cut), all.subspan(cut), skip),
              Expected(**tokenizer, all.first(cut), all.subspan(cut), skip));
  }
}

}  // namespace
}  // namespace quire::text
