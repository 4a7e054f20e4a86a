// SPDX-License-Identifier: Apache-2.0
#include "engine/receipt.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <vector>

namespace tessera {
namespace {

TEST(Receipt, IsTheChainOfXxh3OverRowsSeededByTheOneBefore) {
  const std::vector<float> one = {1.f, -2.f, 0.f};
  const std::vector<float> two = {3.f};
  const unsigned char one_bytes[] = {0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0, 0, 0, 0, 0};
  const unsigned char two_bytes[] = {0, 0, 0x40, 0x40};
  Receipt receipt;
  EXPECT_EQ(ReceiptHex(receipt.value()), "0000000000000000");
  receipt.Fold(one);
  const uint64_t first = XXH3_64bits_withSeed(one_bytes, sizeof one_bytes, 0);
  EXPECT_EQ(receipt.value(), first);
  receipt.Fold(two);
  EXPECT_EQ(receipt.value(), XXH3_64bits_withSeed(two_bytes, sizeof two_bytes, first));
}

TEST(Receipt, TellsApartZerosOfDifferentSign) {
  Receipt plus;
  Receipt minus;
  plus.Fold(std::vector<float>{0.f});
  minus.Fold(std::vector<float>{-0.f});
  EXPECT_NE(plus.value(), minus.value());
}

TEST(Receipt, PrintsAllSixteenDigits) { EXPECT_EQ(ReceiptHex(0xAB), "00000000000000ab"); }

}  // namespace
}  // namespace tessera
