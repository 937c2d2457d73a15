#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/test_files.h"

namespace quire::weights {
namespace {

using testing::HasSubstr;

Result<std::vector<TensorSource>> Parse(const std::string& file) {
  return ParseSafetensors(std::as_bytes(std::span(file)), "m.safetensors");
}

std::string ErrorOf(const std::string& file) {
  const auto result = Parse(file);
  return result.has_value() ? "no error" : result.error().message;
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = SafetensorsFile(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("e":{"dtype":"F16","shape":[0,7],"data_offsets":[4,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  )",
      16);
  const auto tensors = Parse(file);
  ASSERT_TRUE(tensors.has_value()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].rows() * (*tensors)[0].columns(), 1);
  EXPECT_EQ((*tensors)[1].name, "e");
  EXPECT_EQ((*tensors)[2].type->name, "BF16");
  EXPECT_EQ((*tensors)[2].rows(), 2);
  EXPECT_EQ((*tensors)[2].columns(), 3);
  EXPECT_EQ((*tensors)[2].data.size(), 12u);
}

TEST(Safetensors, HeaderLengthIsCheckedBeforeAnythingElse) {  // SAFE-01
  EXPECT_THAT(ErrorOf(""), HasSubstr("0 bytes are too few"));
  EXPECT_THAT(ErrorOf(std::string(8, '\0')), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(ErrorOf(std::string(8, '\xFF')), HasSubstr("18446744073709551615 bytes long; at most 100000000"));
  EXPECT_THAT(ErrorOf(std::string("\x09\0\0\0\0\0\0\0{}", 10)), HasSubstr("9 bytes long; the file has 2"));
  EXPECT_THAT(ErrorOf(SafetensorsFile("[]", 0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(ErrorOf(SafetensorsFile("{\"\xFF\":1}", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(SafetensorsFile("{", 0)), HasSubstr("not valid JSON"));
}

TEST(Safetensors, DuplicateKeysAreRefused) {  // SAFE-01
  const std::string entry = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(ErrorOf(SafetensorsFile("{" + entry + "," + entry + "}", 4)), HasSubstr("stands twice"));
}

TEST(Safetensors, SizesMustAgreeWithShapes) {  // SAFE-02
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"a":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", 4)),
              HasSubstr("needs 4000000 bytes, its offsets span 4"));
  EXPECT_THAT(
      ErrorOf(SafetensorsFile(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0)),
      HasSubstr("overflows"));
  EXPECT_THAT(
      ErrorOf(SafetensorsFile(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0)),
      HasSubstr("overflows"));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4)),
              HasSubstr("a dimension is -1"));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4)),
              HasSubstr("a dimension is 1.5"));
  EXPECT_THAT(
      ErrorOf(SafetensorsFile(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4)),
      HasSubstr("out of range"));
}

TEST(Safetensors, RangesMustCoverTheDataExactlyOnce) {  // SAFE-04
  const auto two = [](int begin, int end, std::size_t bytes) {
    return SafetensorsFile(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"F32","shape":[1],"data_offsets":[)" +
                               std::to_string(begin) + "," + std::to_string(end) + "]}}",
                           bytes);
  };
  EXPECT_TRUE(Parse(two(8, 12, 12)).has_value());
  EXPECT_THAT(ErrorOf(two(4, 8, 8)), HasSubstr("tensors overlap"));
  EXPECT_THAT(ErrorOf(two(12, 16, 16)), HasSubstr("there is a gap"));
  EXPECT_THAT(ErrorOf(two(8, 12, 13)), HasSubstr("1 bytes follow the last tensor"));
  EXPECT_THAT(ErrorOf(two(8, 12, 11)), HasSubstr("truncated?"));
  EXPECT_THAT(ErrorOf(two(12, 8, 12)), HasSubstr("before it begins"));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                      4)),
              HasSubstr("tensors overlap"));
}

TEST(Safetensors, UnknownTypesAndMalformedEntriesNameTheTensor) {
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"w":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[0,1]}})", 1)),
              HasSubstr("tensor w has the type F8_E8M0; F32, F16, BF16, F8_E4M3, F8_E5M2, I8"));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"w":7})", 0)), HasSubstr("entry w is not an object"));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1)), HasSubstr("no \"dtype\""));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"w":{"dtype":"F32","data_offsets":[0,1]}})", 1)), HasSubstr("no \"shape\""));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 1)),
              HasSubstr("no \"data_offsets\" pair"));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4)),
              HasSubstr("9 dimensions; at most 8"));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"__metadata__":{"a":1}})", 0)), HasSubstr("is not a string"));
  EXPECT_THAT(ErrorOf(SafetensorsFile(R"({"__metadata__":[]})", 0)), HasSubstr("is not an object"));
}

}  // namespace
}  // namespace quire::weights
