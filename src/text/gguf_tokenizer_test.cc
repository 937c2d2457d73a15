// GGUF vocabularies against the ids that their own tests expect.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <variant>

#include "base/mapped_file.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

// Just enough of a GGUF reader for files that a test trusts.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::span<const std::byte> bytes) : bytes_(bytes) {
    Number<std::uint32_t>();  // magic
    Number<std::uint32_t>();  // version
    Number<std::uint64_t>();  // tensors
    const auto count = Number<std::uint64_t>();
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string key = String();
      ReadValue(key, Number<std::uint32_t>());
    }
  }

  std::optional<std::int64_t> Integer(const std::string& key) const {
    const auto found = numbers.find(key);
    return found == numbers.end() ? std::nullopt : std::optional(static_cast<std::int64_t>(found->second));
  }
  std::optional<bool> Bool(const std::string& key) const {
    const auto found = Integer(key);
    return found.has_value() ? std::optional(*found != 0) : std::nullopt;
  }

  std::map<std::string, double> numbers;
  std::map<std::string, std::string> strings;
  std::map<std::string, std::vector<double>> number_arrays;
  std::map<std::string, std::vector<std::string>> string_arrays;

 private:
  template <typename T>
  T Number() {
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string String() {
    const auto size = Number<std::uint64_t>();
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }
  double ReadNumber(std::uint32_t type) {
    switch (type) {
      case 0:
      case 7:
        return Number<std::uint8_t>();
      case 4:
        return Number<std::uint32_t>();
      case 5:
        return Number<std::int32_t>();
      case 6:
        return static_cast<double>(Number<float>());
      case 10:
        return static_cast<double>(Number<std::uint64_t>());
      default:
        ADD_FAILURE() << "a type of metadata that the test does not know: " << type;
        return 0;
    }
  }
  void ReadValue(const std::string& key, std::uint32_t type) {
    if (type == 8) {
      strings[key] = String();
    } else if (type == 9) {
      const auto element_type = Number<std::uint32_t>();
      const auto count = Number<std::uint64_t>();
      for (std::uint64_t i = 0; i < count; ++i) {
        if (element_type == 8) {
          string_arrays[key].push_back(String());
        } else {
          number_arrays[key].push_back(ReadNumber(element_type));
        }
      }
    } else {
      numbers[key] = ReadNumber(type);
    }
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

GgufVocabulary VocabularyOf(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  vocabulary.model = metadata.strings.at("tokenizer.ggml.model");
  vocabulary.pre = metadata.strings.at("tokenizer.ggml.pre");
  vocabulary.tokens = metadata.string_arrays.at("tokenizer.ggml.tokens");
  if (metadata.string_arrays.contains("tokenizer.ggml.merges")) {
    vocabulary.merges = metadata.string_arrays.at("tokenizer.ggml.merges");
  }
  if (metadata.number_arrays.contains("tokenizer.ggml.scores")) {
    for (const double score : metadata.number_arrays.at("tokenizer.ggml.scores")) {
      vocabulary.scores.push_back(static_cast<float>(score));
    }
  }
  for (const double type : metadata.number_arrays.at("tokenizer.ggml.token_type")) {
    vocabulary.token_types.push_back(static_cast<std::int32_t>(type));
  }
  vocabulary.bos_id = metadata.Integer("tokenizer.ggml.bos_token_id");
  vocabulary.eos_id = metadata.Integer("tokenizer.ggml.eos_token_id");
  vocabulary.unk_id = metadata.Integer("tokenizer.ggml.unknown_token_id");
  vocabulary.add_bos = metadata.Bool("tokenizer.ggml.add_bos_token");
  vocabulary.add_eos = metadata.Bool("tokenizer.ggml.add_eos_token");
  vocabulary.add_space_prefix = metadata.Bool("tokenizer.ggml.add_space_prefix");
  return vocabulary;
}

class GgufVocabularyFile : public testing::TestWithParam<const char*> {};

TEST_P(GgufVocabularyFile, GivesTheIdsOfItsOutFile) {
  const std::string path = std::string(QUIRE_SOURCE_DIR "/../shared/tokenizers/ggml-vocab-") + GetParam() + ".gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the shared test data is not here: " << path;
  const Result<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto tokenizer = LoadGgufTokenizer(VocabularyOf(GgufMetadata(file->bytes())), GetParam());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;

  std::string inputs = ReadFile(path + ".inp", 1 << 20).value();
  std::istringstream outputs(ReadFile(path + ".out", 1 << 20).value());
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  int count = 0;
  for (std::string line; std::getline(outputs, line); ++count) {
    const std::size_t end = inputs.find(kSeparator);
    const std::string input = inputs.substr(0, end);
    inputs.erase(0, end == std::string::npos ? inputs.size() : end + kSeparator.size());
    std::vector<TokenId> expected;
    std::istringstream ids(line);
    for (std::int32_t id = 0; ids >> id;) expected.emplace_back(id);
    const auto actual = (*tokenizer)->Encode(input, {.add_special_tokens = false, .parse_special_tokens = false});
    ASSERT_TRUE(actual.has_value()) << actual.error().message;
    EXPECT_EQ(*actual, expected) << "input \"" << input << "\"";
    EXPECT_EQ((*tokenizer)->Decode(*actual, true), input);
  }
  EXPECT_EQ(count, 46);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GgufVocabularyFile, testing::Values("gpt-2", "falcon", "llama-spm", "phi-3"),
                         [](const auto& vocabulary) {
                           std::string name = vocabulary.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(GgufTokenizer, EntriesThatAreNotUtf8AreBytes) {
  const auto tokenizer = LoadGgufTokenizer(
      {.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "\xF6\xFE", "a\xBD"}, .merges = {}}, "x.gguf");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->Encode("a", {}).value(), std::vector{TokenId(0)});
  EXPECT_EQ((*tokenizer)->Decode(std::vector{TokenId(0), TokenId(1)}, true), "a\xF6\xFE");
}

TEST(GgufTokenizer, RefusesBrokenVocabularies) {
  const auto refused = [](const GgufVocabulary& vocabulary) {
    const auto tokenizer = LoadGgufTokenizer(vocabulary, "x.gguf");
    return !tokenizer.has_value() && tokenizer.error().message.starts_with("x.gguf: ");
  };
  EXPECT_FALSE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b", "ab"}, .merges = {"a b"}}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2"}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "a"}}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .merges = {"a b"}}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .merges = {"a"}}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .merges = {""}}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .token_types = {1}}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a"}, .bos_id = 1}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a"}, .eos_id = -1}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a"}, .add_bos = true}));
  EXPECT_TRUE(refused({.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "\xBF"}, .bos_id = 1}));
  EXPECT_TRUE(refused({.model = "llama", .pre = "default", .tokens = {"a", "b", "c"}}));       // no scores
  EXPECT_TRUE(refused({.model = "llama", .pre = "default", .tokens = {"a"}, .scores = {0}}));  // BOS is 1
}

TEST(GgufTokenizer, EveryPreTokenizerLoads) {
  for (const char* pre :
       {"",          "default",   "llama3", "llama-bpe",        "dbrx",        "tekken", "gpt-2",  "mpt",
        "olmo",      "qwen2",     "qwen35", "deepseek-r1-qwen", "stablelm2",   "gpt-4o", "llama4", "falcon",
        "starcoder", "command-r", "smollm", "deepseek-coder",   "deepseek-v3", "bloom",  "viking", "seed-coder",
        "bailingmoe"}) {
    const auto tokenizer = LoadGgufTokenizer(
        {.model = "gpt2", .pre = pre, .tokens = {"a", "<s>"}, .bos_id = 1, .add_bos = false}, "x.gguf");
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_EQ((*tokenizer)->Encode("a", {}).value(), std::vector{TokenId(0)}) << pre;
  }
}

TEST(GgufTokenizer, RefusesWhatItDoesNotKnow) {
  GgufVocabulary vocabulary{.model = "gpt2", .pre = "no-such-pre", .tokens = {"a"}};
  auto tokenizer = LoadGgufTokenizer(vocabulary, "x.gguf");
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_NE(tokenizer.error().message.find("no-such-pre"), std::string::npos) << tokenizer.error().message;
  vocabulary.model = "wordpiece";
  tokenizer = LoadGgufTokenizer(vocabulary, "x.gguf");
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_NE(tokenizer.error().message.find("wordpiece"), std::string::npos) << tokenizer.error().message;
}

}  // namespace
}  // namespace quire::text
