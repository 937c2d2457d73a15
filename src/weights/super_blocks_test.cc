// One block by hand of every storage type with blocks of 256.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "weights/test_blocks.h"

namespace quire::weights {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(SuperBlocks, Q2KByHand) {
  Bytes row;
  for (int g = 0; g < 16; ++g) row.push_back(static_cast<std::byte>(g | (15 - g) << 4));  // scale g, min 15 − g
  Append(0b11'10'01'00, 32, &row);  // elements 0 … 31: 0, 32 … 63: 1, 64 … 95: 2, 96 … 127: 3
  Append(0b00'00'00'11, 32, &row);  // elements 128 … 159: 3, then 0
  Append16(0x3C00, &row);           // d = 1
  Append16(0x3800, &row);           // dmin = 0.5
  const auto values = Dequantize("Q2_K", row, 256);
  EXPECT_EQ(values[0], -7.5f);    // 1 · 0 · 0 − 0.5 · 15
  EXPECT_EQ(values[16], -7.0f);   // 1 · 1 · 0 − 0.5 · 14
  EXPECT_EQ(values[32], -4.5f);   // 1 · 2 · 1 − 0.5 · 13
  EXPECT_EQ(values[64], 2.5f);    // 1 · 4 · 2 − 0.5 · 11
  EXPECT_EQ(values[112], 17.0f);  // 1 · 7 · 3 − 0.5 · 8
  EXPECT_EQ(values[128], 20.5f);  // 1 · 8 · 3 − 0.5 · 7
  EXPECT_EQ(values[160], -2.5f);  // 1 · 10 · 0 − 0.5 · 5
  EXPECT_EQ(values[255], 0.0f);   // 1 · 15 · 0 − 0.5 · 0
  const RowBuffer buffer = Decode("Q2_K", row, 256);
  EXPECT_THAT(buffer.scales, ElementsAre(1.0f));
  EXPECT_THAT(buffer.mins, ElementsAre(0.5f));
  EXPECT_EQ(buffer.scale_codes[7], 7);
  EXPECT_EQ(buffer.min_codes[7], 8);
}

TEST(SuperBlocks, Q3KByHand) {
  Bytes row;
  Append(0b1000'0001, 32, &row);    // third bits of the elements 0 … 31 and 224 … 255
  Append(0b11'10'01'00, 32, &row);  // elements 0 … 31: 0, 32 … 63: 1, 64 … 95: 2, 96 … 127: 3
  Append(0b11'00'00'00, 32, &row);  // elements 224 … 255: 3, else 0
  // Scales less 32. Group 0: 0b10'0011 − 32 = 3; group 8: 0b01'1111 − 32 = −1; group 14: 0b11'0010 − 32 = 18; all others
  // have zeros: −32. Nibbles of byte g % 8, upper pairs of byte 8 + g % 4.
  std::array<int, 12> packed{};
  packed[0] = 0b0011 | 0b1111 << 4;  // groups 0 and 8
  packed[6] = 0b0010 << 4;           // group 14
  packed[8] = 0b10 | 0b01 << 4;      // group 0 in bits 0 and 1, group 8 in bits 4 and 5
  packed[10] = 0b11 << 6;            // group 14 in bits 6 and 7
  for (const int byte : packed) Append(byte, 1, &row);
  Append16(0x3400, &row);  // d = 0.25
  const auto values = Dequantize("Q3_K", row, 256);
  EXPECT_EQ(values[0], 0.0f);      // 0.25 · 3 · (0 + 4 − 4)
  EXPECT_EQ(values[16], 0.0f);     // 0.25 · −32 · (0 + 4 − 4)
  EXPECT_EQ(values[32], 24.0f);    // 0.25 · −32 · (1 − 4)
  EXPECT_EQ(values[64], 16.0f);    // 0.25 · −32 · (2 − 4)
  EXPECT_EQ(values[96], 8.0f);     // 0.25 · −32 · (3 − 4)
  EXPECT_EQ(values[128], 1.0f);    // 0.25 · −1 · (0 − 4)
  EXPECT_EQ(values[224], 13.5f);   // 0.25 · 18 · (3 + 4 − 4)
  EXPECT_EQ(values[255], -24.0f);  // 0.25 · −32 · (3 + 4 − 4)
  const RowBuffer buffer = Decode("Q3_K", row, 256);
  EXPECT_EQ(buffer.codes[128], 28);  // −4 of a format whose zero is 32
  EXPECT_EQ(buffer.codes[224], 35);
  EXPECT_EQ(buffer.scale_codes[8], -1);
  EXPECT_THAT(buffer.min_codes, IsEmpty());
}

TEST(SuperBlocks, Q4KByHand) {
  Bytes row;
  Append16(0x3C00, &row);  // d = 1
  Append16(0x3800, &row);  // dmin = 0.5
  // Groups 0..3: scale 1 + g, min 8 + g. Group 4: scale 0b110101 = 53, min 0b101010 = 42; groups 5..7: zero.
  std::array<int, 12> packed = {1, 2, 3, 4, 8, 9, 10, 11, 0, 0, 0, 0};
  packed[0] |= 0b11 << 6;
  packed[4] |= 0b10 << 6;
  packed[8] = 0b0101 | 0b1010 << 4;
  for (const int byte : packed) row.push_back(static_cast<std::byte>(byte));
  for (int i = 0; i < 128; ++i) row.push_back(static_cast<std::byte>(3 | 12 << 4));  // even groups 3, odd ones 12
  const auto values = Dequantize("Q4_K", row, 256);
  EXPECT_EQ(values[0], 1.0f * 3 - 0.5f * 8);
  EXPECT_EQ(values[63], 2.0f * 12 - 0.5f * 9);
  EXPECT_EQ(values[64], 3.0f * 3 - 0.5f * 10);
  EXPECT_EQ(values[127], 4.0f * 12 - 0.5f * 11);
  EXPECT_EQ(values[128], 53.0f * 3 - 0.5f * 42);
  EXPECT_EQ(values[255], 0.0f);
}

TEST(SuperBlocks, Q5KByHand) {
  Bytes row;
  Append16(0x4000, &row);  // d = 2
  Append16(0x3C00, &row);  // dmin = 1
  // Group 0: scale 5, min 6. Group 7: scale 0b01'0011 = 19, min 0b10'0100 = 36. All others: zero.
  std::array<int, 12> packed{};
  packed[0] = 5;
  packed[4] = 6;
  packed[11] = 0b0011 | 0b0100 << 4;
  packed[3] = 0b01 << 6;
  packed[7] = 0b10 << 6;
  for (const int byte : packed) Append(byte, 1, &row);
  for (int i = 0; i < 32; ++i) row.push_back(static_cast<std::byte>(i == 0 ? 0b1000'0001 : 0));  // elements 0 and 224
  Append(0x0A, 32, &row);  // elements 0 … 31: 10, 32 … 63: 0
  Append(0x00, 64, &row);
  Append(0x90, 32, &row);  // elements 192 … 223: 0, 224 … 255: 9
  const auto values = Dequantize("Q5_K", row, 256);
  EXPECT_EQ(values[0], 254.0f);  // 2 · 5 · (10 + 16) − 1 · 6
  EXPECT_EQ(values[1], 94.0f);   // 2 · 5 · 10 − 1 · 6
  EXPECT_EQ(values[32], 0.0f);
  EXPECT_EQ(values[224], 914.0f);  // 2 · 19 · (9 + 16) − 1 · 36
  EXPECT_EQ(values[255], 306.0f);  // 2 · 19 · 9 − 1 · 36
  const RowBuffer buffer = Decode("Q5_K", row, 256);
  EXPECT_THAT(buffer.scale_codes, ElementsAre(5, 0, 0, 0, 0, 0, 0, 19));
  EXPECT_THAT(buffer.min_codes, ElementsAre(6, 0, 0, 0, 0, 0, 0, 36));
}

TEST(SuperBlocks, Q6KByHand) {
  Bytes row(210, std::byte{0});
  row[0] = std::byte{0x21};             // low nibble: element 0 has 1; high nibble: element 64 has 2
  row[32] = std::byte{0x43};            // element 32 has 3, element 96 has 4
  row[128] = std::byte{0b11'10'01'00};  // upper bits of elements 0, 32, 64, 96: 0, 1, 2, 3
  for (int g = 0; g < 16; ++g) row[static_cast<std::size_t>(192 + g)] = static_cast<std::byte>(g - 8);
  row[208] = std::byte{0x00};
  row[209] = std::byte{0x34};  // d = 0.25
  const auto values = Dequantize("Q6_K", row, 256);
  EXPECT_EQ(values[0], 0.25f * -8 * (1 - 32));
  EXPECT_EQ(values[32], 0.25f * -6 * (3 + 16 - 32));
  EXPECT_EQ(values[64], 0.25f * -4 * (2 + 32 - 32));
  EXPECT_EQ(values[96], 0.25f * -2 * (4 + 48 - 32));
  EXPECT_EQ(values[255], 0.25f * 7 * -32);
}

TEST(SuperBlocks, Q8KByHand) {
  Bytes row;
  for (const int byte : {0x00, 0x00, 0xC0, 0x3E}) Append(byte, 1, &row);  // d = 0.375 as F32
  for (int i = 0; i < 256; ++i) row.push_back(static_cast<std::byte>(i - 128));
  Append(0x55, 32, &row);  // sums that nothing reads
  const auto values = Dequantize("Q8_K", row, 256);
  EXPECT_EQ(values[0], -48.0f);     // 0.375 · −128
  EXPECT_EQ(values[127], -0.375f);  // 0.375 · −1
  EXPECT_EQ(values[255], 47.625f);  // 0.375 · 127
  const RowBuffer buffer = Decode("Q8_K", row, 256);
  EXPECT_EQ(buffer.codes[0], 0);
  EXPECT_EQ(buffer.codes[255], 255);
  EXPECT_THAT(buffer.scales, SizeIs(8));
  EXPECT_THAT(buffer.scales, Each(0.375f));
}

TEST(SuperBlocks, Iq4XsByHand) {
  Bytes row;
  Append16(0x3800, &row);  // d = 0.5
  // Scales less 32. Group 0: 0b10'0001 − 32 = 1; group 3: 0b11'1111 − 32 = 31; group 7: 0b01'0000 − 32 = −16; all others
  // −32.
  Append16(0b01'00'00'00'11'00'00'10, &row);
  for (const int byte : {0x01, 0xF0, 0x00, 0x00}) Append(byte, 1, &row);  // two nibbles a byte, the even group low
  for (int i = 0; i < 128; ++i) Append(0x8F, 1, &row);                    // in each group 16 times 15, then 8
  const auto values = Dequantize("IQ4_XS", row, 256);
  EXPECT_EQ(values[0], 56.5f);      // 0.5 · 1 · 113
  EXPECT_EQ(values[16], 0.5f);      // 0.5 · 1 · 1
  EXPECT_EQ(values[32], -1808.0f);  // 0.5 · −32 · 113
  EXPECT_EQ(values[112], 15.5f);    // 0.5 · 31 · 1
  EXPECT_EQ(values[224], -904.0f);  // 0.5 · −16 · 113
  EXPECT_EQ(values[255], -8.0f);    // 0.5 · −16 · 1
  EXPECT_EQ(Decode("IQ4_XS", row, 256).scales[3], 15.5f);
}

}  // namespace
}  // namespace quire::weights
