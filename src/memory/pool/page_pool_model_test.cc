// SPDX-License-Identifier: Apache-2.0
//
// Seeded random operations on a PagePool and its SlabSlots beside a twin made of std::set, compared
// after each operation.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "memory/pool/slab_slots.h"

namespace tessera {
namespace {

constexpr uint32_t kPages = 150;
constexpr uint32_t kSlotsPerPage = 5;

// The obvious twin: who holds what, and what is promised.
struct Twin {
  std::set<uint32_t> attention, state;
  std::map<uint32_t, std::set<uint32_t>> slabs;  // page -> used slots
  uint32_t reserved_pages = 0, reserved_slots = 0;

  uint32_t used_slots() const {
    uint32_t used = 0;
    for (const auto& [page, slots] : slabs) used += static_cast<uint32_t>(slots.size());
    return used;
  }
  uint32_t spare_pages() const {
    const uint32_t free_slots = static_cast<uint32_t>(slabs.size()) * kSlotsPerPage - used_slots();
    return reserved_slots <= free_slots
               ? 0
               : static_cast<uint32_t>(DivideUp(reserved_slots - free_slots, kSlotsPerPage));
  }
  uint32_t held() const {
    return static_cast<uint32_t>(attention.size() + state.size() + slabs.size());
  }
  uint32_t free_pages() const { return kPages - held() - reserved_pages - spare_pages(); }
  bool IsHeld(uint32_t page) const {
    return attention.count(page) + state.count(page) + slabs.count(page) > 0;
  }
};

struct Holder {
  Reservation pages;
  SlotReservation slots;
  std::vector<PageId> attention;
  std::vector<std::vector<PageId>> images;
  std::vector<SlotId> used;
};

class World {
 public:
  explicit World(uint64_t seed, uint64_t shuffle_seed)
      : random_(seed),
        pool_({.page_count = kPages, .unit_bytes = 64 * kKiB, .shuffle_seed = shuffle_seed}),
        slabs_(&pool_, kSlotsPerPage),
        holders_(6) {
    for (Holder& holder : holders_) {
      holder.pages = *pool_.Reserve(0);
      holder.slots = *slabs_.Reserve(0);
    }
  }

  void Step() {
    Holder& holder = holders_[random_.Below(holders_.size())];
    switch (random_.Below(9)) {
      case 0:
        return Reserve(&holder);
      case 1:
        return ReserveSlots(&holder);
      case 2:
        return TakeAttention(&holder);
      case 3:
        return TakeImage(&holder);
      case 4:
        return TakeSlot(&holder);
      case 5:
        return FreeAttention(&holder);
      case 6:
        return FreeImage(&holder);
      case 7:
        return FreeSlot(&holder);
      default:
        return Sometimes(&holder);
    }
  }

  void Compare() const {
    ASSERT_EQ(pool_.free_pages(), twin_.free_pages());
    ASSERT_EQ(pool_.reserved_pages(), twin_.reserved_pages + twin_.spare_pages());
    ASSERT_EQ(pool_.held_attention_pages(), twin_.attention.size());
    ASSERT_EQ(pool_.held_state_pages(), twin_.state.size() + twin_.slabs.size());
    ASSERT_EQ(slabs_.used_slots(), twin_.used_slots());
    ASSERT_EQ(slabs_.slab_pages(), twin_.slabs.size());
    for (uint32_t page = 0; page < kPages; ++page) {
      ASSERT_EQ(pool_.IsHeld(PageId(page)), twin_.IsHeld(page)) << page;
      ASSERT_EQ(pool_.IsHeldByState(PageId(page)),
                twin_.state.count(page) + twin_.slabs.count(page) > 0);
    }
    for (int level = 1; level <= 2; ++level) {
      ASSERT_TRUE(pool_.Validate(level).ok()) << pool_.Validate(level).ToString();
      ASSERT_TRUE(slabs_.Validate(level).ok()) << slabs_.Validate(level).ToString();
    }
  }

 private:
  void Reserve(Holder* holder) {
    const uint32_t count = static_cast<uint32_t>(random_.Below(40));
    std::optional<Reservation> got = pool_.Reserve(count);
    ASSERT_EQ(got.has_value(), count <= twin_.free_pages());
    if (!got.has_value()) return;
    twin_.reserved_pages += count;
    holder->pages.Merge(*std::move(got));
  }

  // Replaces the holder's promise of slots, which gives the old one back.
  void ReserveSlots(Holder* holder) {
    const uint32_t count = static_cast<uint32_t>(random_.Below(12));
    Twin grown = twin_;
    grown.reserved_slots += count;
    const uint32_t pages = grown.spare_pages() - twin_.spare_pages();
    ASSERT_EQ(slabs_.PagesToReserve(count), pages);
    std::optional<SlotReservation> got = slabs_.Reserve(count);
    ASSERT_EQ(got.has_value(), pages <= twin_.free_pages());
    if (!got.has_value()) return;
    twin_.reserved_slots += count;
    twin_.reserved_slots -= holder->slots.slots();
    holder->slots = *std::move(got);
  }

  void TakeAttention(Holder* holder) {
    if (holder->pages.pages() == 0) return;
    const PageId page = pool_.TakeAttention(&holder->pages);
    ASSERT_FALSE(twin_.IsHeld(page.index()));
    twin_.attention.insert(page.index());
    --twin_.reserved_pages;
    holder->attention.push_back(page);
  }

  void TakeImage(Holder* holder) {
    std::vector<PageId> image(random_.Below(std::min(holder->pages.pages(), 20u) + 1));
    pool_.TakeImage(&holder->pages, image);
    for (PageId page : image) {
      ASSERT_FALSE(twin_.IsHeld(page.index()));
      twin_.state.insert(page.index());
      --twin_.reserved_pages;
    }
    holder->images.push_back(image);
  }

  void TakeSlot(Holder* holder) {
    if (holder->slots.slots() == 0) return;
    size_t fullest = 0;
    for (const auto& [page, slots] : twin_.slabs) {
      if (slots.size() < kSlotsPerPage) fullest = std::max(fullest, slots.size());
    }
    const SlotId slot = slabs_.Take(&holder->slots);
    const uint32_t page = slabs_.PageOf(slot).index();
    ASSERT_EQ(twin_.slabs[page].size(), fullest);
    ASSERT_TRUE(twin_.attention.count(page) + twin_.state.count(page) == 0);
    ASSERT_TRUE(twin_.slabs[page].insert(slabs_.IndexInPage(slot)).second);
    --twin_.reserved_slots;
    holder->used.push_back(slot);
  }

  void FreeAttention(Holder* holder) {
    if (holder->attention.empty()) return;
    const PageId page = holder->attention.back();
    holder->attention.pop_back();
    twin_.attention.erase(page.index());
    FreePage(holder, page);
  }

  void FreeImage(Holder* holder) {
    if (holder->images.empty()) return;
    for (PageId page : holder->images.back()) {
      twin_.state.erase(page.index());
      FreePage(holder, page);
    }
    holder->images.pop_back();
  }

  void FreePage(Holder* holder, PageId page) {
    if (random_.Below(2) == 0) return pool_.Free(page);
    pool_.FreeInto(&holder->pages, page);
    ++twin_.reserved_pages;
  }

  void FreeSlot(Holder* holder) {
    if (holder->used.empty()) return;
    const SlotId slot = holder->used.back();
    holder->used.pop_back();
    const uint32_t page = slabs_.PageOf(slot).index();
    twin_.slabs[page].erase(slabs_.IndexInPage(slot));
    if (twin_.slabs[page].empty()) twin_.slabs.erase(page);
    if (random_.Below(2) == 0) return slabs_.Free(slot);
    slabs_.FreeInto(&holder->slots, slot);
    ++twin_.reserved_slots;
  }

  // Rarely, so that the pool fills in between: everything of the holder goes.
  void Sometimes(Holder* holder) {
    if (random_.Below(4) != 0) return;
    while (!holder->attention.empty()) FreeAttention(holder);
    while (!holder->images.empty()) FreeImage(holder);
    while (!holder->used.empty()) FreeSlot(holder);
    twin_.reserved_pages -= holder->pages.pages();
    holder->pages.ShrinkTo(0);
    twin_.reserved_slots -= holder->slots.slots();
    holder->slots = *slabs_.Reserve(0);
  }

  Random random_;
  PagePool pool_;
  SlabSlots slabs_;
  std::vector<Holder> holders_;
  Twin twin_;
};

TEST(PagePoolModel, RandomOperationsAgreeWithATwinMadeOfSets) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    World world(seed, /*shuffle_seed=*/seed % 3 == 0 ? seed : 0);
    for (int op = 0; op < 3000; ++op) {
      world.Step();
      world.Compare();
      if (::testing::Test::HasFatalFailure()) {
        std::printf("seed %llu, operation %d\n", static_cast<unsigned long long>(seed), op);
        return;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
