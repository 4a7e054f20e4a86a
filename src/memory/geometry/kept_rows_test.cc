// SPDX-License-Identifier: Apache-2.0
#include "memory/geometry/kept_rows.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/bytes.h"
#include "base/random.h"

namespace tessera {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(KeptRows, AreRowsOfTheWidthRoundedUpTo64Bytes) {
  EXPECT_EQ(KeptRows(3072).unit_bytes(), 12 * kKiB);
  EXPECT_EQ(KeptRows(1).unit_bytes(), 64u);
  EXPECT_EQ(KeptRows(16).unit_bytes(), 64u);
  EXPECT_EQ(KeptRows(17).unit_bytes(), 128u);
  EXPECT_EQ(KeptRows(0xFFFFFFFFu).unit_bytes(), uint64_t{1} << 34);
}

TEST(KeptRows, TakeAHundredthOfTheBudgetInWholeUnits) {
  const KeptRows rows(3072);
  EXPECT_EQ(rows.Units(kGiB), 873u);  // 10,737,418 B / 12,288
  EXPECT_EQ(rows.PoolBytes(kGiB), kGiB - 873 * 12 * kKiB);
  EXPECT_EQ(rows.Units(100 * 12 * kKiB - 1), 0u);
  EXPECT_EQ(rows.Units(100 * 12 * kKiB), 1u);
}

TEST(KeptRows, AreNoneWhenReuseIsOff) {
  for (const KeptRows& rows : {KeptRows(), KeptRows(0)}) {
    EXPECT_EQ(rows.unit_bytes(), 0u);
    for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, kGiB, kMax}) {
      EXPECT_EQ(rows.Units(bytes), 0u);
      EXPECT_EQ(rows.PoolBytes(bytes), bytes);
      EXPECT_EQ(rows.BudgetFor(bytes), bytes);
    }
  }
}

// Every budget of the first periods, against a search from 0 up.
TEST(KeptRows, BudgetForIsTheLeastThatLeavesThatMuch) {
  for (uint32_t width : {1u, 17u, 33u}) {
    const KeptRows rows(width);
    const uint64_t last = 350 * rows.unit_bytes();
    uint64_t least = 0;  // the first budget whose rest reaches `bytes`
    for (uint64_t bytes = 0; bytes < last; ++bytes) {
      while (rows.PoolBytes(least) < bytes) ++least;
      ASSERT_EQ(rows.BudgetFor(bytes), least) << "width " << width << ", bytes " << bytes;
    }
  }
}

TEST(KeptRows, RestAndRowsAreTheBudget) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const KeptRows rows(static_cast<uint32_t>(random.Below(1 << 16)));
    const uint64_t budget = random.Next() >> random.Below(60);
    ASSERT_EQ(rows.PoolBytes(budget) + rows.Units(budget) * rows.unit_bytes(), budget);
    ASSERT_LE(rows.Units(budget) * rows.unit_bytes(), budget / 100);
  }
}

// Near a multiple of 100 units a larger budget leaves less: whoever compares budgets is wrong.
TEST(KeptRows, OneMoreByteOfBudgetMayLeaveLess) {
  const KeptRows rows(16);
  EXPECT_EQ(rows.PoolBytes(6399), 6399u);
  EXPECT_EQ(rows.PoolBytes(6400), 6336u);
  EXPECT_EQ(rows.BudgetFor(6399), 6399u);
  EXPECT_EQ(rows.BudgetFor(6400), 6464u);
}

TEST(KeptRows, BudgetsBeyond64BitsSaturate) {
  for (uint32_t width : {1u, 3072u, 0xFFFFFFFFu}) {
    const KeptRows rows(width);
    EXPECT_EQ(rows.BudgetFor(kMax), kMax);
    const uint64_t most = rows.PoolBytes(kMax);
    EXPECT_LE(rows.BudgetFor(most), kMax);
    EXPECT_GE(rows.PoolBytes(rows.BudgetFor(most)), most);
    EXPECT_EQ(rows.BudgetFor(most + 2 * rows.unit_bytes()), kMax);
  }
}

}  // namespace
}  // namespace tessera
