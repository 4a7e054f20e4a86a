// SPDX-License-Identifier: Apache-2.0
#include "memory/pool/slab_slots.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tessera {
namespace {

struct Slabs {
  Slabs(uint32_t page_count, uint32_t slots_per_page)
      : pool({.page_count = page_count}), slabs(&pool, slots_per_page) {}
  PagePool pool;
  SlabSlots slabs;
};

TEST(SlabSlots, SlotsShareAPageAndTheRowIsNTimesPagePlusSlot) {
  Slabs s(10, 16);
  SlotReservation r = *s.slabs.Reserve(3);
  EXPECT_EQ(s.pool.reserved_pages(), 1u);
  const SlotId a = s.slabs.Take(&r), b = s.slabs.Take(&r);
  EXPECT_EQ(a.index(), 9u * 16);  // slabs come from above, as images do
  EXPECT_EQ(b.index(), 9u * 16 + 1);
  EXPECT_EQ(s.slabs.PageOf(b), PageId(9));
  EXPECT_EQ(s.slabs.IndexInPage(b), 1u);
  EXPECT_EQ(s.pool.held_state_pages(), 1u);
  EXPECT_EQ(s.slabs.total_slots(), 16u);
  s.slabs.Free(a);
  s.slabs.Free(b);
}

TEST(SlabSlots, TheInvalidSlotIsNotASlotOfPageZero) {
  Slabs s(1, 2);
  SlotReservation r = *s.slabs.Reserve(1);
  const SlotId first = s.slabs.Take(&r);
  EXPECT_EQ(first.index(), 0u);
  EXPECT_NE(SlotId(), first);
  EXPECT_FALSE(SlotId().valid());
  EXPECT_FALSE(s.slabs.IsUsed(SlotId()));
  s.slabs.Free(first);
}

TEST(SlabSlots, TheFullestSlabIsFilledFirstAndAnEmptyOneGoesBack) {
  Slabs s(10, 4);
  SlotReservation r = *s.slabs.Reserve(8);
  std::vector<SlotId> slots;
  for (int i = 0; i < 8; ++i) slots.push_back(s.slabs.Take(&r));
  EXPECT_EQ(s.slabs.slab_pages(), 2u);
  // Slab of slots 0-3: two used. Slab of 4-7: three used.
  s.slabs.Free(slots[0]);
  s.slabs.Free(slots[1]);
  s.slabs.Free(slots[5]);
  r = *s.slabs.Reserve(1);
  EXPECT_EQ(s.slabs.Take(&r), slots[5]);
  s.slabs.Free(slots[2]);
  s.slabs.Free(slots[3]);
  EXPECT_EQ(s.slabs.slab_pages(), 1u);
  EXPECT_EQ(s.pool.free_pages(), 9u);
  EXPECT_TRUE(s.slabs.Validate(2).ok());
}

TEST(SlabSlots, AReservationPromisesAPageOnlyForSlotsNoSlabHas) {
  Slabs s(2, 4);
  SlotReservation a = *s.slabs.Reserve(1);
  SlotId held = s.slabs.Take(&a);
  EXPECT_EQ(s.slabs.PagesToReserve(3), 0u);
  EXPECT_EQ(s.slabs.PagesToReserve(4), 1u);
  EXPECT_FALSE(s.slabs.Reserve(8).has_value());
  SlotReservation b = *s.slabs.Reserve(3);
  EXPECT_EQ(s.pool.reserved_pages(), 0u);
  // The slab's last slot goes while three are promised on it: its page stays promised.
  s.slabs.Free(held);
  EXPECT_EQ(s.slabs.slab_pages(), 0u);
  EXPECT_EQ(s.pool.reserved_pages(), 1u);
  EXPECT_TRUE(s.slabs.Validate(2).ok());
  Reservation rest = *s.pool.Reserve(1);
  held = s.slabs.Take(&b);
  EXPECT_TRUE(s.slabs.IsUsed(held));
  s.slabs.Free(held);
}

TEST(SlabSlots, ASlotFreedIntoAPromiseKeepsIt) {
  Slabs s(1, 2);
  SlotReservation r = *s.slabs.Reserve(2);
  const SlotId slot = s.slabs.Take(&r);
  s.slabs.FreeInto(&r, slot);
  EXPECT_EQ(r.slots(), 2u);
  EXPECT_EQ(s.pool.free_pages(), 0u);
  EXPECT_TRUE(s.slabs.Validate(2).ok());
}

TEST(SlabSlots, PagesWithMoreSlotsThanAWordFillExactly) {
  Slabs s(2, 100);
  SlotReservation r = *s.slabs.Reserve(200);
  std::vector<SlotId> slots;
  for (int i = 0; i < 200; ++i) slots.push_back(s.slabs.Take(&r));
  EXPECT_EQ(slots.back().index() % 100, 99u);
  EXPECT_FALSE(s.slabs.Reserve(1).has_value());
  EXPECT_TRUE(s.slabs.Validate(2).ok());
  for (SlotId slot : slots) s.slabs.Free(slot);
  EXPECT_EQ(s.pool.free_pages(), 2u);
}

TEST(SlabSlotsDeathTest, MisuseAborts) {
  Slabs s(2, 4);
  SlotReservation r = *s.slabs.Reserve(1);
  const SlotId slot = s.slabs.Take(&r);
  EXPECT_DEATH(s.slabs.Take(&r), "slots_ > 0");
  s.slabs.Free(slot);
  EXPECT_DEATH(s.slabs.Free(slot), "IsUsed");
  EXPECT_DEATH(s.slabs.Free(SlotId()), "IsUsed");
  EXPECT_DEATH(s.slabs.Free(SlotId(8)), "IsUsed");
}

}  // namespace
}  // namespace tessera
