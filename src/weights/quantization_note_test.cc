// What is written about quantised matrices comes back, and nothing else does.
#include "weights/quantization_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

namespace quire::weights {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kColumns = 256;  // of which three may be kept
const QuantizationNote kNote{.outlier_columns = {0, 100, 255}, .errors = {{0.5, 2, 0.75}, {0, 0, 0}}};

std::string ErrorOf(std::span<const std::byte> bytes, std::size_t num_matrices = 2) {
  const auto note = ReadQuantizationNote(bytes, kColumns, num_matrices);
  return note ? "" : note.error().message;
}

template <typename T>
std::vector<std::byte> With(std::size_t at, T value) {
  std::vector<std::byte> bytes = WriteQuantizationNote(kNote);
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

TEST(QuantizationNoteTest, ComesBack) {
  const auto note = ReadQuantizationNote(WriteQuantizationNote(kNote), kColumns, 2);
  ASSERT_TRUE(note) << note.error().message;
  EXPECT_EQ(note->outlier_columns, kNote.outlier_columns);
  ASSERT_EQ(note->errors.size(), 2u);
  EXPECT_EQ(note->errors[0].squared_error, 0.5);
  EXPECT_EQ(note->errors[0].squared_norm, 2);
  EXPECT_EQ(note->errors[0].all_quantised_error, 0.75);
}

TEST(QuantizationNoteTest, EveryTruncationIsRefused) {
  std::vector<std::byte> bytes = WriteQuantizationNote(kNote);
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(ErrorOf(std::span(bytes).first(size)), "") << size;
  bytes.push_back(std::byte{0});
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("1 bytes too many"));
}

TEST(QuantizationNoteTest, ErrorsSayWhatIsWrong) {
  constexpr std::size_t kFirstColumn = 8, kFirstError = kFirstColumn + 3 * 4;
  EXPECT_EQ(ErrorOf(With(kFirstColumn, std::int32_t{7})), "");
  EXPECT_THAT(ErrorOf(With(0, std::uint32_t{4})), HasSubstr("4 outlier columns; at most 3 of 256"));
  EXPECT_THAT(ErrorOf(With(0, 0xFFFFFFFFu)), HasSubstr("4294967295 outlier columns"));
  EXPECT_THAT(ErrorOf(With(4, std::uint32_t{3})), HasSubstr("errors of 3 matrices, where there are 2"));
  EXPECT_THAT(ErrorOf(With(kFirstColumn, std::int32_t{-1})), HasSubstr("outlier column 0 is -1"));
  EXPECT_THAT(ErrorOf(With(kFirstColumn + 4, std::int32_t{0})),
              HasSubstr("outlier column 1 is 0; it must lie above 0"));
  EXPECT_THAT(ErrorOf(With(kFirstColumn + 8, std::int32_t{256})),
              HasSubstr("is 256; it must lie above 100 and below 256"));
  EXPECT_THAT(ErrorOf(With(kFirstError, -1.0)), HasSubstr("-1 is no sum of squares"));
  EXPECT_THAT(ErrorOf(With(kFirstError + 8, std::numeric_limits<double>::infinity())), HasSubstr("inf is no sum"));
  EXPECT_THAT(ErrorOf(With(kFirstError + 16, std::numeric_limits<double>::quiet_NaN())), HasSubstr("nan is no sum"));
}

}  // namespace
}  // namespace quire::weights
