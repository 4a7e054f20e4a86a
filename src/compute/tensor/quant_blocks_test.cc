// SPDX-License-Identifier: Apache-2.0
//
// Blocks of known bytes: byte j is (37j + 11) mod 256, the halves are powers of two, so that every
// value is exact and the sums are comparable as they are. The numbers were computed from the
// format's description by another implementation.
#include "compute/tensor/quant_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

namespace tessera {
namespace {

struct HalfAt {
  size_t byte;
  uint16_t bits;
};

std::vector<float> Values(ReadBlock read, size_t elements, size_t bytes,
                          const std::vector<HalfAt>& halves) {
  std::vector<std::byte> block(bytes);
  for (size_t j = 0; j < bytes; ++j) block[j] = static_cast<std::byte>(37 * j + 11);
  for (const HalfAt& half : halves) std::memcpy(&block[half.byte], &half.bits, 2);
  std::vector<float> values(elements);
  read(block.data(), values.data());
  return values;
}

void ExpectValues(const std::vector<float>& y, const std::vector<std::pair<size_t, float>>& some,
                  double sum, double squares) {
  for (const auto& [i, value] : some) EXPECT_EQ(y[i], value) << "y" << i;
  double found_sum = 0;
  double found_squares = 0;
  for (float v : y) {
    found_sum += static_cast<double>(v);
    found_squares += static_cast<double>(v) * static_cast<double>(v);
  }
  EXPECT_EQ(found_sum, sum);
  EXPECT_NEAR(found_squares, squares, 1e-6);
}

TEST(QuantBlocks, Q8_0IsTheVector) {
  ExpectValues(Values(ReadQ8_0, 32, 34, {{0, 0x2C00}}),
               {{0, 5.3125f}, {1, 7.625f}, {15, -8.0f}, {16, -5.6875f}, {31, -3.0f}}, -11,
               743.1875);
}

TEST(QuantBlocks, Q4_0IsTheVector) {
  ExpectValues(Values(ReadQ4_0, 32, 18, {{0, 0x2C00}}),
               {{0, -0.1875f}, {1, 0.125f}, {15, -0.5f}, {16, -0.1875f}, {31, 0.0f}}, -1.3125,
               2.51953125);
}

TEST(QuantBlocks, Q4KIsTheVector) {
  ExpectValues(Values(ReadQ4K, 256, 144, {{0, 0x2400}, {2, 0x2000}}),
               {{0, 4.9296875f},
                {1, -0.3984375f},
                {31, 2.5078125f},
                {32, 0.125f},
                {63, 0.625f},
                {64, 6.5703125f},
                {127, 1.265625f},
                {128, 6.609375f},
                {200, 2.1640625f},
                {255, 0.7578125f}},
               850.625, 5899.71191406);
}

TEST(QuantBlocks, Q6KIsTheVector) {
  ExpectValues(Values(ReadQ6K, 256, 210, {{208, 0x2000}}),
               {{0, -11.1796875f},
                {1, 13.25f},
                {31, -0.75f},
                {32, 1.8046875f},
                {63, -4.53125f},
                {64, -23.75f},
                {127, 11.71875f},
                {128, -2.7421875f},
                {200, 8.5078125f},
                {255, -0.46875f}},
               36.03125, 28924.576416);
}

// What the formulas say of one element, written out.
TEST(QuantBlocks, TypesDequantisedAtLoadAreTheirFormulas) {
  // Byte j: 11, 48, 85, 122, 159, 196, 233, 14, 51, 88, …; d 2^-4, m or dmin 2^-5.
  const auto byte = [](size_t j) { return static_cast<int>((37 * j + 11) & 255); };
  const std::vector<float> q4_1 = Values(ReadQ4_1, 32, 20, {{0, 0x2C00}, {2, 0x2800}});
  const std::vector<float> q5_0 = Values(ReadQ5_0, 32, 22, {{0, 0x2C00}});
  const std::vector<float> q5_1 = Values(ReadQ5_1, 32, 24, {{0, 0x2C00}, {2, 0x2800}});
  for (size_t i = 0; i < 32; ++i) {
    const auto nibble = [&](size_t at) {
      return i < 16 ? byte(at + i) % 16 : byte(at + i - 16) / 16;
    };
    const auto fifth = [&](size_t at) { return byte(at + i / 8) >> (i % 8) & 1; };
    EXPECT_EQ(q4_1[i], static_cast<float>(nibble(4)) / 16 + 1.0f / 32);
    EXPECT_EQ(q5_0[i], static_cast<float>(nibble(6) + 16 * fifth(2) - 16) / 16);
    EXPECT_EQ(q5_1[i], static_cast<float>(nibble(8) + 16 * fifth(4)) / 16 + 1.0f / 32);
  }
  const std::vector<float> q5_k = Values(ReadQ5K, 256, 176, {{0, 0x2C00}, {2, 0x2800}});
  const std::vector<float> q2_k = Values(ReadQ2K, 256, 84, {{80, 0x2C00}, {82, 0x2800}});
  const std::vector<float> q3_k = Values(ReadQ3K, 256, 110, {{108, 0x2C00}});
  // The scales of Q3_K by the order in which its format is usually given: four words of bytes.
  int q3_scales[16];
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? byte(96 + g) % 16 : byte(96 + g - 8) / 16;
    const int high = byte(104 + g % 4) >> (2 * (g / 4)) & 3;
    q3_scales[g] = low + 16 * high - 32;
  }
  size_t i = 0;
  for (size_t half = 0; half < 2; ++half) {
    for (size_t j = 0; j < 4; ++j) {
      for (size_t l = 0; l < 32; ++l, ++i) {
        const size_t group = half * 8 + j * 2 + l / 16;
        const int scale = byte(group);
        const int q2 = byte(16 + half * 32 + l) >> (2 * j) & 3;
        EXPECT_EQ(q2_k[i],
                  static_cast<float>(scale % 16 * q2) / 16 - static_cast<float>(scale / 16) / 32);
        const int q3 = (byte(32 + half * 32 + l) >> (2 * j) & 3) -
                       ((byte(l) >> (half * 4 + j) & 1) != 0 ? 0 : 4);
        EXPECT_EQ(q3_k[i], static_cast<float>(q3_scales[group] * q3) / 16);
        const size_t s = i / 32;
        const int sc = s < 4 ? byte(4 + s) & 63 : (byte(8 + s) & 15) | byte(s) / 64 * 16;
        const int mn = s < 4 ? byte(8 + s) & 63 : byte(8 + s) / 16 | byte(4 + s) / 64 * 16;
        const int low = byte(48 + i / 64 * 32 + l);
        const int q5 = (s % 2 == 0 ? low % 16 : low / 16) + 16 * (byte(16 + l) >> s & 1);
        EXPECT_EQ(q5_k[i], static_cast<float>(sc * q5) / 16 - static_cast<float>(mn) / 32);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
