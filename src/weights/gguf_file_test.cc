#include "weights/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "weights/test_files.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint32_t kF32 = 0, kQ8_0 = 8;

Result<GgufFile> Parse(const std::string& file) {
  return GgufFile::Parse(std::as_bytes(std::span(file)), "m.gguf");
}

std::string ErrorOf(const std::string& file) {
  const auto result = Parse(file);
  return result.has_value() ? "no error" : result.error().message;
}

TEST(GgufFile, ReadsBothVersions) {
  GgufBytes bytes;
  bytes.String("general.architecture", "llama").Uint32("u", 7).Float("f", 0.5f).Pair("b", 7, "\x01");
  bytes.Strings("s", {"one", "", "three"}).Array("i", 5, 2, GgufBytes::Raw(-1) + GgufBytes::Raw(2));
  bytes.Tensor("w", {64, 2}, kQ8_0, 32).Tensor("v", {3}, kF32, 0);
  for (const std::uint32_t version : {2u, 3u}) {
    const std::string text = bytes.File(32 + 136, version);
    const auto file = Parse(text);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(**file->OptionalString("general.architecture"), "llama");
    EXPECT_EQ(**file->OptionalInt("u", 0, 10), 7);
    EXPECT_EQ(**file->OptionalReal("f", 0, 1), 0.5);
    EXPECT_EQ(**file->OptionalBool("b"), true);
    EXPECT_THAT(*file->Strings("s"), ElementsAre("one", "", "three"));
    EXPECT_THAT(*file->Int32s("i"), ElementsAre(-1, 2));
    EXPECT_FALSE(file->OptionalInt("absent", 0, 1)->has_value());
    ASSERT_EQ(file->tensors().size(), 2u);
    EXPECT_EQ(file->tensors()[0].name, "v");
    const TensorSource* matrix = file->FindTensor("w");
    EXPECT_THAT(matrix->shape, ElementsAre(2, 64));
    EXPECT_EQ(matrix->data.size(), 136u);
    EXPECT_EQ(file->FindTensor("x"), nullptr);
  }
}

TEST(GgufFile, MagicVersionAndByteOrder) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("the magic number needs 4 bytes"));
  EXPECT_THAT(ErrorOf("GGML1234"), HasSubstr("not a GGUF file"));
  EXPECT_THAT(ErrorOf(GgufBytes().File(0, 1)), HasSubstr("version 1 of GGUF"));
  EXPECT_THAT(ErrorOf(GgufBytes().File(0, 4)), HasSubstr("version 4 of GGUF"));
  EXPECT_THAT(ErrorOf(GgufBytes().File(0, 3u << 24)), HasSubstr("big-endian"));
}

TEST(GgufFile, CountsAndLengthsAreCheckedBeforeTheyAreBelieved) {
  const auto header = [](std::uint64_t tensors, std::uint64_t pairs) {
    return "GGUF" + GgufBytes::Raw(3u) + GgufBytes::Raw(tensors) + GgufBytes::Raw(pairs) + std::string(64, '\0');
  };
  EXPECT_THAT(ErrorOf(header(~0ull, 0)), HasSubstr("18446744073709551615 tensors cannot be in the 64 bytes"));
  EXPECT_THAT(ErrorOf(header(0, 1ull << 60)), HasSubstr("1152921504606846976 metadata pairs"));
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return GgufBytes().Array("k", type, count, "").File(64);
  };
  EXPECT_THAT(ErrorOf(array(10, ~0ull)), HasSubstr("the size of k"));
  EXPECT_THAT(ErrorOf(array(10, 1ull << 32)), HasSubstr("k needs 34359738368 bytes"));
  EXPECT_THAT(ErrorOf(array(8, 1ull << 61)), HasSubstr("holds 2305843009213693952 strings"));
  EXPECT_THAT(ErrorOf(array(9, 1)), HasSubstr("an array of arrays"));
  EXPECT_THAT(ErrorOf(array(13, 1)), HasSubstr("unknown type 13"));
  EXPECT_THAT(ErrorOf(GgufBytes().Pair("k", 99, "").File(64)), HasSubstr("unknown type 99"));
  EXPECT_THAT(ErrorOf(GgufBytes().Pair("k", 8, GgufBytes::Raw(~0ull)).File(64)), HasSubstr("bytes long; at most"));
  EXPECT_THAT(ErrorOf(GgufBytes().Pair(std::string(70000, 'k'), 0, "x").File(0)), HasSubstr("at most 65535"));
  EXPECT_THAT(ErrorOf(GgufBytes().Uint32("k", 1).Uint32("k", 1).File(64)), HasSubstr("the key k stands there twice"));
}

TEST(GgufFile, EveryTruncationIsAnError) {
  GgufBytes bytes;
  bytes.String("general.architecture", "llama").Strings("s", {"one", "two"}).Tensor("v", {3}, kF32, 0);
  const std::string whole = bytes.File(12);
  ASSERT_TRUE(Parse(whole).has_value());
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(Parse(whole.substr(0, size)).has_value()) << size;
}

TEST(GgufFile, TensorsMustFitTheFileAndEachOther) {  // GGUF-02
  const auto one = [](const std::vector<std::uint64_t>& shape, std::uint32_t type, std::uint64_t offset) {
    return ErrorOf(GgufBytes().Tensor("w", shape, type, offset).File(1024));
  };
  EXPECT_EQ(one({256}, kF32, 0), "no error");
  EXPECT_THAT(one({257}, kF32, 0), HasSubstr("1028 bytes at offset 0 end behind the 1024 bytes"));
  EXPECT_THAT(one({256}, kF32, 32), HasSubstr("end behind"));
  EXPECT_THAT(one({8}, kF32, 4), HasSubstr("offset 4 is not a multiple of the alignment 32"));
  EXPECT_THAT(one({8}, kF32, ~std::uint64_t{31}), HasSubstr("end behind"));
  EXPECT_THAT(one({}, kF32, 0), HasSubstr("0 dimensions; 1 to 4"));
  EXPECT_THAT(one({1, 1, 1, 1, 1}, kF32, 0), HasSubstr("5 dimensions; 1 to 4"));
  EXPECT_THAT(one({0}, kF32, 0), HasSubstr("a dimension of 0"));
  EXPECT_THAT(one({1ull << 63}, kF32, 0), HasSubstr("out of range"));
  EXPECT_THAT(one({1ull << 62, 1ull << 62}, kF32, 0), HasSubstr("overflows"));
  EXPECT_THAT(one({1ull << 32, 1ull << 31}, kF32, 0), HasSubstr("overflows"));
  EXPECT_THAT(one({33}, kQ8_0, 0), HasSubstr("tensor w: rows of 33 elements cannot be stored as Q8_0"));
  EXPECT_THAT(one({256}, 16, 0), HasSubstr("tensor w has the type IQ2_XXS (16); F32, F16"));
  EXPECT_THAT(one({256}, 4, 0), HasSubstr("tensor w has the type unknown (4)"));
  EXPECT_THAT(ErrorOf(GgufBytes().Tensor("a", {16}, kF32, 0).Tensor("b", {16}, kF32, 32).File(1024)),
              HasSubstr("the tensors a and b overlap"));
  EXPECT_THAT(ErrorOf(GgufBytes().Tensor("a", {8}, kF32, 0).Tensor("a", {8}, kF32, 32).File(1024)),
              HasSubstr("the tensor a stands there twice"));
  EXPECT_THAT(ErrorOf(GgufBytes().Tensor(std::string(300, 'n'), {8}, kF32, 0).File(1024)), HasSubstr("at most 256"));
}

TEST(GgufFile, RowsOfEveryTypeMustBeWholeAndThere) {
  for (const TypeTraits& type : AllTypes()) {
    const auto id = static_cast<std::uint32_t>(type.gguf_id);
    const auto elements = static_cast<std::uint64_t>(type.block_elements);
    const auto bytes = static_cast<std::size_t>(3 * type.block_bytes);
    const auto error = [&](std::uint64_t columns, std::uint64_t rows, std::size_t size) {
      return ErrorOf(GgufBytes().Tensor("w", {columns, rows}, id, 0).File(size));
    };
    EXPECT_EQ(error(elements, 3, bytes), "no error") << type.name;
    EXPECT_THAT(error(elements, 3, bytes - 1), HasSubstr("tensor w: ")) << type.name;
    EXPECT_THAT(error(elements, 3, bytes - 1), HasSubstr("(truncated?)")) << type.name;
    if (elements > 1) {
      EXPECT_THAT(error(elements, 1ull << 61, bytes), HasSubstr("tensor w: the size of its shape overflows"))
          << type.name;
      EXPECT_THAT(error(elements + 1, 3, 2 * bytes),
                  HasSubstr(fmt::format("tensor w: rows of {} elements", elements + 1)));
      EXPECT_THAT(error(elements / 2, 3, bytes), HasSubstr(fmt::format("cannot be stored as {}", type.name)));
    }
  }
}

TEST(GgufFile, AlignmentIsAPowerOfTwo) {  // GGUF-06
  const auto with = [](std::uint32_t alignment) {
    return ErrorOf(GgufBytes().Uint32("general.alignment", alignment).Tensor("w", {8}, kF32, 0).File(4096));
  };
  EXPECT_EQ(with(1), "no error");
  EXPECT_EQ(with(64), "no error");
  EXPECT_THAT(with(0), HasSubstr("general.alignment is 0; a power of two"));
  EXPECT_THAT(with(3), HasSubstr("general.alignment is 3"));
  EXPECT_THAT(with(1u << 31), HasSubstr("end behind"));
  EXPECT_THAT(ErrorOf(GgufBytes().Pair("general.alignment", 5, GgufBytes::Raw(32)).File(64)),
              HasSubstr("has the type INT32; UINT32 is wanted"));
  EXPECT_THAT(ErrorOf(GgufBytes().Pair("general.alignment", 10, GgufBytes::Raw(~0ull)).File(64)),
              HasSubstr("has the type UINT64"));
}

TEST(GgufFile, TypesOfValuesAreVerified) {  // GGUF-03
  GgufBytes bytes;
  bytes.String("s", "x").Uint32("u", 7).Pair("b", 7, "\x02").Array("scores", 0, 3, "abc").Array("bools", 7, 1, "\x05");
  bytes.Pair("big", 10, GgufBytes::Raw(~0ull)).Float("nan", std::numeric_limits<float>::quiet_NaN());
  bytes.Array("layers", 4, 2, GgufBytes::Raw(5u) + GgufBytes::Raw(5u));
  bytes.Array("mixed", 4, 2, GgufBytes::Raw(5u) + GgufBytes::Raw(6u));
  const std::string text = bytes.File(0);
  const auto file = Parse(text);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_THAT(file->OptionalInt("s", 0, 1).error().message, HasSubstr("s has the type STRING; an integer is wanted"));
  EXPECT_THAT(file->OptionalString("u").error().message, HasSubstr("u has the type UINT32; STRING is wanted"));
  EXPECT_THAT(file->OptionalInt("u", 8, 9).error().message, HasSubstr("u is 7; it must lie between 8 and 9"));
  EXPECT_THAT(file->OptionalReal("u", 8, 9).error().message, HasSubstr("a float is wanted"));
  EXPECT_THAT(file->OptionalReal("nan", 0, 9).error().message, HasSubstr("nan is nan"));
  EXPECT_THAT(file->OptionalBool("b").error().message, HasSubstr("b is 2"));
  EXPECT_THAT(file->Bools("bools").error().message, HasSubstr("an element of bools is 5"));
  EXPECT_THAT(file->Floats("scores").error().message,
              HasSubstr("scores has the type ARRAY of UINT8; ARRAY of FLOAT32 is wanted"));
  EXPECT_THAT(file->Strings("u").error().message, HasSubstr("ARRAY of STRING is wanted"));
  EXPECT_THAT(file->OptionalInt("big", 0, 100).error().message, HasSubstr("must lie between 0 and 100"));
  EXPECT_THAT(file->Int("absent", 0, 1).error().message, HasSubstr("the key absent is missing"));
  EXPECT_EQ(**file->OptionalIntForEach("layers", 2, 1, 9), 5);
  EXPECT_EQ(**file->OptionalIntForEach("u", 2, 1, 9), 7);
  EXPECT_THAT(file->OptionalIntForEach("layers", 3, 1, 9).error().message, HasSubstr("has 2 elements; 3 are wanted"));
  EXPECT_THAT(file->OptionalIntForEach("layers", 2, 6, 9).error().message, HasSubstr("layers[0] is 5"));
  EXPECT_THAT(file->OptionalIntForEach("mixed", 2, 1, 9).error().message,
              HasSubstr("differs between layers (5 and 6)"));
}

TEST(GgufFile, LargeVocabulariesOpenQuickly) {  // LOAD-07
  constexpr std::size_t kTokens = 150'000;
  std::vector<std::string> tokens(kTokens, "a token of some length");
  GgufBytes bytes;
  bytes.Strings("tokenizer.ggml.tokens", tokens).Strings("tokenizer.ggml.merges", tokens);
  bytes.Array("tokenizer.ggml.scores", 6, kTokens, std::string(kTokens * 4, '\0'));
  bytes.Array("tokenizer.ggml.token_type", 5, kTokens, std::string(kTokens * 4, '\0'));
  const std::string text = bytes.File(0);
  const auto begin = std::chrono::steady_clock::now();
  const auto file = Parse(text);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->Strings("tokenizer.ggml.tokens")->size(), kTokens);
  EXPECT_EQ(file->Floats("tokenizer.ggml.scores")->size(), kTokens);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace quire::weights
