// The lexer against Oniguruma, on the regular expressions of real tokenizers.
#include "text/pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/utf8.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace quire::text {
namespace {

struct NamedPattern {
  std::string_view name, regex;
};

constexpr NamedPattern kLexed[] = {
    {"gpt-2", kGpt2Pattern},
    {"cl100k and llama 3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"deepseek-v3",
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
    {"deepseek cjk", "[一-龥぀-ゟ゠-ヿ]+"},
    {"bailing",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {"falcon punctuation", R"([\p{P}\$\+<=>\^~\|`]+)"},
    {"bloom", R"( ?[^(\s|.,!?…。，、।۔،)]+)"},
    {"deepseek-coder", R"(\s?\p{L}+)"},
    {"backtracking", R"([a-z]*[b-d]{2,3}x?|\d+(?=[a-z])|\P{L}(?:ab|a)b)"},
    {"possessive", R"([a-f]*+[0-9]|[a-z]+)"},
};

constexpr NamedPattern kForOniguruma[] = {
    {"word", R"(\w+)"},
    {"script", R"(\p{Han}+)"},
    {"lookbehind", R"((?<=a)b)"},
    {"lazy", R"(a+?)"},
    {"anchor", R"(\s+$)"},
    {"empty", R"(a*)"},
    {"repeated group", R"((?:ab)+)"},
    {"class with intersection", R"([a-z&&[^b]]+)"},
    {"folding", R"((?i:ss))"},
    {"folding beyond ASCII", R"((?i:é))"},
    {"possessive braces mean something else", R"(\p{N}{1,3}+)"},
};

// A text that stirs up what patterns distinguish. Characters that Oniguruma's older tables do not know are left out.
std::string RandomText(std::mt19937& random, const Pattern& unassigned) {
  static constexpr std::string_view kAscii = "  \n\r\t''sStTrReEvVlLmMdDaAbBcxyz0123456789.,!?-_/(){}[]<>$+=^~|`\"\\";
  static constexpr std::uint32_t kOthers[] = {0x85,   0xA0,   0x17F,   0x212A, 0x3000, 0x2028, 0x200B, 0x180E,
                                              0x301,  0x1C5,  0x2B0,   0x660,  0x2167, 0xBD,   0x4E2D, 0x3042,
                                              0x30AB, 0xAC00, 0x1F680, 0xDF,   0xFB06, 0x130,  0x2019, 0x3002};
  std::string text;
  for (int length = static_cast<int>(random() % 40); length > 0; --length) {
    std::uint32_t c = static_cast<unsigned char>(kAscii[random() % kAscii.size()]);
    const std::uint32_t choice = random() % 8;
    if (choice == 0) c = kOthers[random() % std::size(kOthers)];
    if (choice == 1) c = random() % (random() % 2 == 0 ? 0x3000 : 0x20000);
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string character;
    AppendUtf8(c, &character);
    std::vector<Span> matches;
    if (!unassigned.FindAll(character, &matches).has_value() || !matches.empty()) continue;
    text.append(character);
  }
  return text;
}

TEST(Pattern, TheLexerMatchesAsOnigurumaDoes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Pattern unassigned = Pattern::Regex(R"(\p{Cn})", "test", PatternEngine::kOniguruma).value();
  for (const NamedPattern& named : kLexed) {
    SCOPED_TRACE(named.name);
    const Pattern lexer = Pattern::Regex(named.regex, "test").value();
    ASSERT_TRUE(lexer.uses_lexer());
    const Pattern oniguruma = Pattern::Regex(named.regex, "test", PatternEngine::kOniguruma).value();
    for (int i = 0; i < 1500; ++i) {
      const std::string text = RandomText(random, unassigned);
      std::vector<Span> actual, expected;
      ASSERT_TRUE(lexer.FindAll(text, &actual).has_value());
      ASSERT_TRUE(oniguruma.FindAll(text, &expected).has_value());
      ASSERT_EQ(actual, expected) << "on \"" << text << "\"";
    }
  }
}

TEST(Pattern, TheClassesAreOnigurumas) {
  // Every assigned character, one by one.
  const Pattern unassigned = Pattern::Regex(R"(\p{Cn})", "test", PatternEngine::kOniguruma).value();
  for (const std::string_view regex : {R"(\s)", R"(\S)", R"(\d)", R"(\p{L})", R"(\p{Lu})", R"(\p{Lm})", R"(\p{M})",
                                       R"(\p{N})", R"(\p{P})", R"(\p{S})", R"([^\s\p{L}\p{N}])", "(?i:s)", "(?i:k)"}) {
    const Pattern lexer = Pattern::Regex(regex, "test").value();
    ASSERT_TRUE(lexer.uses_lexer()) << regex;
    const Pattern oniguruma = Pattern::Regex(regex, "test", PatternEngine::kOniguruma).value();
    int differences = 0;
    for (std::uint32_t c = 0; c < 0x20000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      std::string text;
      AppendUtf8(c, &text);
      std::vector<Span> matches, expected;
      if (!unassigned.FindAll(text, &matches).has_value() || !matches.empty()) continue;
      ASSERT_TRUE(lexer.FindAll(text, &matches).has_value());
      ASSERT_TRUE(oniguruma.FindAll(text, &expected).has_value());
      if (matches != expected && ++differences < 10) ADD_FAILURE() << regex << " differs on U+" << std::hex << c;
    }
  }
}

TEST(Pattern, WhatTheLexerDoesNotKnowGoesToOniguruma) {
  for (const NamedPattern& named : kForOniguruma) {
    const Result<Pattern> pattern = Pattern::Regex(named.regex, "test");
    ASSERT_TRUE(pattern.has_value()) << named.name;
    EXPECT_FALSE(pattern->uses_lexer()) << named.name;
  }
}

TEST(Pattern, RunawayPatternsEndInAnError) {
  // The lexer: every start walks to the end of the run and back.
  std::vector<Span> matches;
  const Pattern quadratic = Pattern::Regex(R"([a-z]*[a-z]*[a-z]*1)", "test").value();
  ASSERT_TRUE(quadratic.uses_lexer());
  Result<> found = quadratic.FindAll(std::string(20000, 'a'), &matches);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::kOutOfRange);
  // Oniguruma: exponential.
  const Pattern exponential = Pattern::Regex(R"((?:a|aa)+[^a])", "test").value();
  ASSERT_FALSE(exponential.uses_lexer());
  found = exponential.FindAll(std::string(20000, 'a'), &matches);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::kOutOfRange);
  // Oniguruma again: a walk forward from every start, which costs no steps.
  const Pattern walks = Pattern::Regex(R"(\w(?=a*1))", "test").value();
  found = walks.FindAll(std::string(300000, 'a') + "1", &matches);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::kOutOfRange);
  EXPECT_FALSE(Pattern::Regex("(", "test").has_value());
  EXPECT_FALSE(Pattern::Regex(std::string(1 << 20, 'a'), "test").has_value());
}

TEST(Pattern, RealPatternsTakeLongRunsInTheirStride) {
  for (const NamedPattern& named : kLexed) {
    if (named.name == "backtracking") continue;
    const Pattern pattern = Pattern::Regex(named.regex, "test").value();
    for (const std::string_view unit : {" ", "\n", " \n", "a", "'", "A", "1", "!", "é", "你", "\u0301", "a'"}) {
      std::string text;
      while (text.size() < 100000) text.append(unit);
      std::vector<Span> matches;
      EXPECT_TRUE(pattern.FindAll(text, &matches).has_value()) << named.name << " on \"" << unit << "\"";
    }
  }
}

}  // namespace
}  // namespace quire::text
