// SPDX-License-Identifier: Apache-2.0
#include "memory/pool/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace tessera {
namespace {

std::vector<uint32_t> TakeImage(PagePool* pool, Reservation* from, size_t count) {
  std::vector<PageId> pages(count);
  pool->TakeImage(from, pages);
  std::vector<uint32_t> indices;
  for (PageId page : pages) indices.push_back(page.index());
  return indices;
}

// A pool with exactly the given pages free.
struct Scenario {
  Scenario(uint32_t page_count, uint64_t unit_bytes, const std::vector<uint32_t>& free)
      : pool({.page_count = page_count, .unit_bytes = unit_bytes}) {
    Reservation all = *pool.Reserve(page_count);
    for (uint32_t i = 0; i < page_count; ++i) pool.TakeAttention(&all);
    for (uint32_t page : free) pool.Free(PageId(page));
    reservation = *pool.Reserve(static_cast<uint32_t>(free.size()));
  }
  PagePool pool;
  Reservation reservation;
};

std::vector<uint32_t> Range(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> out;
  for (uint32_t i = begin; i < end; ++i) out.push_back(i);
  return out;
}

TEST(PagePool, AttentionComesFromBelowAndImagesFromAboveInAscendingRuns) {
  PagePool pool({.page_count = 100, .unit_bytes = 16 * kKiB});
  Reservation r = *pool.Reserve(100);
  EXPECT_EQ(pool.TakeAttention(&r).index(), 0u);
  EXPECT_EQ(pool.TakeAttention(&r).index(), 1u);
  EXPECT_EQ(TakeImage(&pool, &r, 40), Range(60, 100));
  EXPECT_EQ(TakeImage(&pool, &r, 3), Range(57, 60));
  pool.Free(PageId(0));
  EXPECT_EQ(pool.TakeAttention(&r).index(), 0u);
  EXPECT_TRUE(pool.Validate(2).ok());
}

TEST(PagePool, AnImageSkipsHolesSmallerThanARunOf512KiB) {
  // 32 pages of 16 KiB are a run. High hole of 31, then one of 40.
  std::vector<uint32_t> free = Range(200, 231);
  for (uint32_t i : Range(100, 140)) free.push_back(i);
  Scenario s(256, 16 * kKiB, free);
  EXPECT_EQ(TakeImage(&s.pool, &s.reservation, 40), Range(100, 140));
}

TEST(PagePool, TheRestOfAnImageUsesAHoleAboveItsRuns) {
  std::vector<uint32_t> free = Range(200, 210);
  for (uint32_t i : Range(100, 132)) free.push_back(i);
  for (uint32_t i : {244, 246, 248, 250}) free.push_back(i);  // higher, but broken
  Scenario s(256, 16 * kKiB, free);
  std::vector<uint32_t> expected = Range(100, 132);
  for (uint32_t i : Range(206, 210)) expected.push_back(i);
  EXPECT_EQ(TakeImage(&s.pool, &s.reservation, 36), expected);
}

TEST(PagePool, ASmallImageIsWhollyInOneRunWhenThereIsOne) {
  Scenario s(256, 16 * kKiB, {250, 249, 240, 100, 101, 102, 103});
  EXPECT_EQ(TakeImage(&s.pool, &s.reservation, 4), Range(100, 104));
}

TEST(PagePool, WithoutARunAnImageStaysInOne2MiBBlock) {
  // 128 pages of 16 KiB are a block. Block 1 has 32 scattered free pages, block 3 has 20.
  std::vector<uint32_t> free, block1;
  for (uint32_t i = 0; i < 32; ++i) block1.push_back(128 + 4 * i);
  for (uint32_t i = 0; i < 20; ++i) free.push_back(384 + 4 * i);
  free.insert(free.end(), block1.begin(), block1.end());
  Scenario s(512, 16 * kKiB, free);
  EXPECT_EQ(TakeImage(&s.pool, &s.reservation, 32), block1);
}

TEST(PagePool, WithNeitherAnImageTakesWhatThereIsFromAbove) {
  std::vector<uint32_t> free;
  for (uint32_t i = 0; i < 64; ++i) free.push_back(16 * i);
  Scenario s(1024, 16 * kKiB, free);
  std::vector<uint32_t> expected;
  for (uint32_t i = 32; i < 64; ++i) expected.push_back(16 * i);
  EXPECT_EQ(TakeImage(&s.pool, &s.reservation, 32), expected);
  EXPECT_EQ(s.reservation.pages(), 32u);
}

TEST(PagePool, UnitsAboveTheRunAreTakenFromTheTop) {
  PagePool pool({.page_count = 10, .unit_bytes = 3 * kMiB});
  Reservation r = *pool.Reserve(10);
  EXPECT_EQ(TakeImage(&pool, &r, 1), Range(9, 10));
  EXPECT_EQ(TakeImage(&pool, &r, 3), Range(6, 9));
}

TEST(PagePool, AReservationIsHeldBackFromOthersUntilItGoes) {
  PagePool pool({.page_count = 10});
  {
    Reservation a = *pool.Reserve(7);
    EXPECT_EQ(pool.free_pages(), 3u);
    EXPECT_FALSE(pool.Reserve(4).has_value());
    EXPECT_EQ(pool.reserved_pages(), 7u);  // the refusal changed nothing
    pool.TakeAttention(&a);
    Reservation moved = std::move(a);
    EXPECT_EQ(moved.pages(), 6u);
    moved.ShrinkTo(2);
    EXPECT_EQ(pool.free_pages(), 7u);
    Reservation more = *pool.Reserve(1);
    moved.Merge(std::move(more));
    EXPECT_EQ(moved.pages(), 3u);
    EXPECT_TRUE(pool.Validate(2).ok());
  }
  EXPECT_EQ(pool.free_pages(), 9u);
  EXPECT_EQ(pool.reserved_pages(), 0u);
  EXPECT_EQ(pool.held_attention_pages(), 1u);
  EXPECT_TRUE(pool.Validate(2).ok());
}

TEST(PagePool, AssigningAReservationGivesBackWhatTheOldOneHad) {
  PagePool pool({.page_count = 10});
  Reservation a = *pool.Reserve(4);
  a = *pool.Reserve(3);
  EXPECT_EQ(pool.reserved_pages(), 3u);
}

TEST(PagePool, APageFreedIntoAReservationStaysPromised) {
  PagePool pool({.page_count = 2});
  Reservation r = *pool.Reserve(2);
  const PageId page = pool.TakeAttention(&r);
  pool.FreeInto(&r, page);
  EXPECT_EQ(r.pages(), 2u);
  EXPECT_FALSE(pool.Reserve(1).has_value());
  EXPECT_TRUE(pool.Validate(2).ok());
}

TEST(PagePoolDeathTest, MisuseAborts) {
  PagePool pool({.page_count = 4});
  Reservation r = *pool.Reserve(1);
  const PageId page = pool.TakeAttention(&r);
  EXPECT_DEATH(pool.TakeAttention(&r), "pages_ > 0");
  EXPECT_DEATH(r.ShrinkTo(1), "pages <= pages_");
  pool.Free(page);
  EXPECT_DEATH(pool.Free(page), "IsHeld");
  EXPECT_DEATH(pool.Free(PageId()), "IsHeld");
  EXPECT_DEATH(pool.Free(PageId(4)), "IsHeld");
  PagePool other({.page_count = 4});
  Reservation foreign = *other.Reserve(1);
  EXPECT_DEATH(pool.TakeAttention(&foreign), "pool_ == this");
}

TEST(PagePool, ShuffledPagesComeInAnotherOrderAndAreAllFound) {
  PagePool pool({.page_count = 300, .unit_bytes = 16 * kKiB, .shuffle_seed = 5});
  Reservation r = *pool.Reserve(300);
  std::vector<uint32_t> taken = TakeImage(&pool, &r, 150);
  for (int i = 0; i < 150; ++i) taken.push_back(pool.TakeAttention(&r).index());
  EXPECT_FALSE(std::is_sorted(taken.begin(), taken.end()));
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(taken, Range(0, 300));
}

TEST(PagePool, AnEmptyPoolRefusesAllButNothing) {
  PagePool pool({.page_count = 0});
  EXPECT_TRUE(pool.Reserve(0).has_value());
  EXPECT_FALSE(pool.Reserve(1).has_value());
}

// Not a speed test: the time is printed, and the bound is 20 times what a slow machine needs, to
// catch an algorithm that turned quadratic.
TEST(PagePool, AMillionPagesInTheWorstOrderTakeAboutAMicrosecondEach) {
  constexpr uint32_t kPages = 1'000'000, kImage = 198;
  PagePool pool({.page_count = kPages, .unit_bytes = 16 * kKiB});
  Reservation r = *pool.Reserve(kPages);
  for (uint32_t i = 0; i < kPages; ++i) pool.TakeAttention(&r);
  // Every other page free: no run, every block half full.
  for (uint32_t i = 0; i < kPages; i += 2) pool.Free(PageId(i));
  r = *pool.Reserve(kPages / 2);
  std::vector<PageId> image(kImage);
  const auto start = std::chrono::steady_clock::now();
  constexpr uint32_t kImages = 200;
  for (uint32_t i = 0; i < kImages; ++i) pool.TakeImage(&r, image);
  const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
  const double per_page = us.count() / (kImages * kImage);
  std::printf("fragmented: %.3f us per page\n", per_page);
  EXPECT_LT(per_page, 20.0);
}

}  // namespace
}  // namespace tessera
