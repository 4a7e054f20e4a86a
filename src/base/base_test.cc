// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/function_ref.h"
#include "base/random.h"
#include "base/status.h"
#include "base/strong_id.h"

namespace tessera {
namespace {

TEST(Status, ExitCodesAreTheContract) {
  EXPECT_EQ(static_cast<int>(StatusCode::kFailed), 1);
  EXPECT_EQ(static_cast<int>(StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(static_cast<int>(StatusCode::kBadFile), 3);
  EXPECT_EQ(static_cast<int>(StatusCode::kNoMemory), 4);
  EXPECT_EQ(static_cast<int>(StatusCode::kIo), 5);
}

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}
Result<int> Quarter(int x) {
  TESSERA_ASSIGN_OR_RETURN(int half, Half(x));
  return Half(half);
}

TEST(Result, CarriesValueOrError) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).error().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Quarter(3).has_value());
}

TEST(Bytes, ParseTakesUnitsAndRefusesTheRest) {
  EXPECT_EQ(ParseBytes("4096").value(), 4096u);
  EXPECT_EQ(ParseBytes("512KiB").value(), 512 * kKiB);
  EXPECT_EQ(ParseBytes("1.5GiB").value(), 3 * kGiB / 2);
  EXPECT_EQ(ParseBytes("2 MB").value(), 2 * kMiB);
  for (const char* bad : {"", "x", "12Q", "-1", "1e30GiB", "nan", "inf", "5 KiBs"}) {
    EXPECT_FALSE(ParseBytes(bad).has_value()) << bad;
  }
}

TEST(Bytes, FormatKeepsTwoDecimals) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1594368), "1.52 MiB");
}

TEST(StrongId, InvalidIsNotTheFirstPage) {
  EXPECT_FALSE(PageId().valid());
  EXPECT_TRUE(PageId(0).valid());
  EXPECT_NE(PageId(), PageId(0));
}

TEST(Random, DependsOnKeyAndCounterOnly) {
  EXPECT_EQ(CounterRandom(7, 3), CounterRandom(7, 3));
  EXPECT_NE(CounterRandom(7, 3), CounterRandom(8, 3));
  EXPECT_NE(CounterRandom(7, 3), CounterRandom(7, 4));
  double u = CounterUniform(1, 2);
  EXPECT_GE(u, 0.0);
  EXPECT_LT(u, 1.0);
}

TEST(FunctionRef, CallsWithoutOwning) {
  int sum = 0;
  auto add = [&](int x) { sum += x; };
  FunctionRef<void(int)> ref = add;
  ref(2);
  ref(3);
  EXPECT_EQ(sum, 5);
}

}  // namespace
}  // namespace tessera
