// One block by hand of every storage type with blocks of 32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/test_blocks.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(GroupBlocks, Q8_0ByHand) {
  Bytes row;
  Append16(0x3800, &row);  // d = 0.5
  for (int i = 0; i < 32; ++i) row.push_back(static_cast<std::byte>(i == 0 ? -128 : i == 1 ? 127 : i));
  const auto values = Dequantize("Q8_0", row, 32);
  EXPECT_EQ(values[0], -64.0f);
  EXPECT_EQ(values[1], 63.5f);
  EXPECT_EQ(values[31], 15.5f);
  RowBuffer buffer;
  FindTypeByName("Q8_0")->decode_row(row.data(), 32, &buffer);
  EXPECT_EQ(buffer.codes[0], 0);
  EXPECT_EQ(buffer.codes[1], 255);
  EXPECT_EQ(buffer.codes[2], 130);
  EXPECT_EQ(buffer.scales, std::vector<float>{0.5f});
  EXPECT_TRUE(buffer.mins.empty());
}

TEST(GroupBlocks, Q4_0ByHand) {
  Bytes row;
  Append16(0xC000, &row);  // d = −2
  for (int i = 0; i < 16; ++i) row.push_back(static_cast<std::byte>(i | (15 - i) << 4));
  const auto values = Dequantize("Q4_0", row, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], -2.0f * static_cast<float>(i - 8));
    EXPECT_EQ(values[16 + i], -2.0f * static_cast<float>(7 - i));
  }
}

TEST(GroupBlocks, Q4_1ByHand) {
  Bytes row;
  Append16(0x3800, &row);                                                                 // d = 0.5
  Append16(0xC400, &row);                                                                 // m = −4
  for (int i = 0; i < 16; ++i) row.push_back(static_cast<std::byte>(i | (15 - i) << 4));  // 0 … 15, then 15 … 0
  const auto values = Dequantize("Q4_1", row, 32);
  EXPECT_EQ(values[0], -4.0f);   // 0.5 · 0 − 4
  EXPECT_EQ(values[1], -3.5f);   // 0.5 · 1 − 4
  EXPECT_EQ(values[15], 3.5f);   // 0.5 · 15 − 4
  EXPECT_EQ(values[16], 3.5f);   // 0.5 · 15 − 4
  EXPECT_EQ(values[31], -4.0f);  // 0.5 · 0 − 4
  const RowBuffer buffer = Decode("Q4_1", row, 32);
  EXPECT_EQ(buffer.codes[15], 15);
  EXPECT_THAT(buffer.scales, ElementsAre(0.5f));
  EXPECT_THAT(buffer.mins, ElementsAre(4.0f));  // which is subtracted
}

TEST(GroupBlocks, Q5_0ByHand) {
  Bytes row;
  Append16(0x4000, &row);  // d = 2
  // Fifth bits of the elements 0, 9, 16 and 31: bit 0 of byte 0, bit 1 of byte 1, bit 0 of byte 2, bit 7 of byte 3.
  for (const int bits : {0x01, 0x02, 0x01, 0x80}) Append(bits, 1, &row);
  Append(0x73, 16, &row);  // 3 in 0 … 15, 7 in 16 … 31
  const auto values = Dequantize("Q5_0", row, 32);
  EXPECT_EQ(values[0], 6.0f);     // 2 · (3 + 16 − 16)
  EXPECT_EQ(values[1], -26.0f);   // 2 · (3 − 16)
  EXPECT_EQ(values[9], 6.0f);     // as element 0
  EXPECT_EQ(values[16], 14.0f);   // 2 · (7 + 16 − 16)
  EXPECT_EQ(values[17], -18.0f);  // 2 · (7 − 16)
  EXPECT_EQ(values[31], 14.0f);   // as element 16
  const RowBuffer buffer = Decode("Q5_0", row, 32);
  EXPECT_EQ(buffer.codes[0], 19);
  EXPECT_EQ(buffer.codes[1], 3);
  EXPECT_THAT(buffer.mins, IsEmpty());
}

TEST(GroupBlocks, Q5_1ByHand) {
  Bytes row;
  Append16(0x3400, &row);  // d = 0.25
  Append16(0x3C00, &row);  // m = 1
  // Fifth bits of the elements 7 and 24.
  for (const int bits : {0x80, 0x00, 0x00, 0x01}) Append(bits, 1, &row);
  Append(0xF2, 16, &row);  // 2 in 0 … 15, 15 in 16 … 31
  const auto values = Dequantize("Q5_1", row, 32);
  EXPECT_EQ(values[0], 1.5f);    // 0.25 · 2 + 1
  EXPECT_EQ(values[7], 5.5f);    // 0.25 · (2 + 16) + 1
  EXPECT_EQ(values[16], 4.75f);  // 0.25 · 15 + 1
  EXPECT_EQ(values[24], 8.75f);  // 0.25 · (15 + 16) + 1
  EXPECT_THAT(Decode("Q5_1", row, 32).mins, ElementsAre(-1.0f));
}

TEST(GroupBlocks, Iq4NlByHand) {
  Bytes row;
  Append16(0x3000, &row);                                                          // d = 1/8
  for (int i = 0; i < 16; ++i) row.push_back(static_cast<std::byte>(i | 8 << 4));  // 0 … 15, then eights
  const auto values = Dequantize("IQ4_NL", row, 32);
  EXPECT_EQ(values[0], -15.875f);  // −127 / 8
  EXPECT_EQ(values[7], -1.25f);    // −10 / 8
  EXPECT_EQ(values[8], 0.125f);    // 1 / 8
  EXPECT_EQ(values[15], 14.125f);  // 113 / 8
  EXPECT_EQ(values[16], 0.125f);
  EXPECT_EQ(values[31], 0.125f);
}

TEST(GroupBlocks, Mxfp4ByHand) {
  Bytes row;
  Append(126, 1, &row);                                                                   // 2^(126 − 127) = 0.5
  for (int i = 0; i < 16; ++i) row.push_back(static_cast<std::byte>(i | (15 - i) << 4));  // 0 … 15, then 15 … 0
  const auto values = Dequantize("MXFP4", row, 32);
  // FP4 E2M1: 0 0.5 1 1.5 2 3 4 6, then the same below zero. Half of each:
  EXPECT_EQ(values[0], 0.0f);
  EXPECT_EQ(values[1], 0.25f);
  EXPECT_EQ(values[3], 0.75f);
  EXPECT_EQ(values[7], 3.0f);
  EXPECT_EQ(values[9], -0.25f);
  EXPECT_EQ(values[16], -3.0f);
  EXPECT_EQ(values[24], 3.0f);
  EXPECT_THAT(Decode("MXFP4", row, 32).scales, ElementsAre(0.25f));  // the table holds doubles
}

TEST(GroupBlocks, Mxfp4AtTheEndsOfItsExponent) {
  Bytes row;
  Append(0, 1, &row);
  Append(0x71, 16, &row);  // 0.5, then 6
  const auto smallest = Dequantize("MXFP4", row, 32);
  EXPECT_EQ(smallest[0], 0x1p-128f);     // 2^−127 · 0.5
  EXPECT_EQ(smallest[16], 0x1.8p-125f);  // 2^−127 · 6
  EXPECT_TRUE(Decode("MXFP4", row, 32).IsFinite());
  row[0] = std::byte{1};
  EXPECT_EQ(Dequantize("MXFP4", row, 32)[0], 0x1p-127f);
  row[0] = std::byte{248};
  EXPECT_TRUE(Decode("MXFP4", row, 32).IsFinite());
  row[0] = std::byte{254};  // 6 · 2^127 is no float
  EXPECT_FALSE(Decode("MXFP4", row, 32).IsFinite());
  row[0] = std::byte{255};  // NaN
  EXPECT_FALSE(Decode("MXFP4", row, 32).IsFinite());
}

}  // namespace
}  // namespace quire::weights
