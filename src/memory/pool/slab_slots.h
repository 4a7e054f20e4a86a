// SPDX-License-Identifier: Apache-2.0
//
// SlabSlots cuts pages of a pool (slabs) into n slots each, for objects far smaller than a page:
// S2's convolution states, S3's images under half a page. Slots of different owners share a slab.
//
//   free --Reserve--> reserved --Take--> used --Free--> free
//
//   Take  from the fullest slab that has a free slot, so that the others can empty; a new slab only
//         when all are full
//   Free  when a slab's last slot goes, its page goes back to the pool at once
//
// A SlotId is the row n·page + slot; its invalid value is all ones, so "no slot" can alias neither
// page 0 nor slot 0.
//
// L1  free slots in slabs + n · pages held in reserve >= reserved slots, with the fewest pages that
//     make it so: a Take after a Reserve never fails, and no page is promised for a slot that a
//     slab already has.
// L2  used slots = the bits set; no slab is empty.
//
// No allocation after construction. Freeing a slot that is not used aborts.
// Failure: Reserve says no. Threads: one at a time. The pool outlives it, and it its reservations.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memory/pool/page_pool.h"

namespace tessera {

class SlabSlots;

// A promise of slots. Move-only; what is left goes back at destruction.
class SlotReservation {
 public:
  SlotReservation() = default;
  SlotReservation(SlotReservation&& other) noexcept;
  SlotReservation& operator=(SlotReservation&& other) noexcept;
  ~SlotReservation();

  uint32_t slots() const { return slots_; }
  // Gives back all but `slots`, which must not be more than it has.
  void ShrinkTo(uint32_t slots);
  // Takes over what `other` of the same slabs has.
  void Merge(SlotReservation other);

 private:
  friend class SlabSlots;
  SlotReservation(SlabSlots* slabs, uint32_t slots) : slabs_(slabs), slots_(slots) {}

  SlabSlots* slabs_ = nullptr;
  uint32_t slots_ = 0;
};

class SlabSlots {
 public:
  SlabSlots(PagePool* pool, uint32_t slots_per_page);
  ~SlabSlots();
  SlabSlots(const SlabSlots&) = delete;
  SlabSlots& operator=(const SlabSlots&) = delete;

  uint32_t slots_per_page() const { return slots_per_page_; }
  uint32_t slab_pages() const { return slab_pages_; }
  uint32_t used_slots() const { return used_; }
  uint32_t total_slots() const { return slab_pages_ * slots_per_page_; }
  uint32_t reserved_slots() const { return reserved_; }
  uint32_t used_in(PageId page) const { return count_[page.index()]; }
  uint32_t spare_pages() const { return spare_.pages(); }  // promised for slots no slab has

  // Free pages of the pool that a Reserve of so many more slots would take.
  uint32_t PagesToReserve(uint32_t slots) const;
  std::optional<SlotReservation> Reserve(uint32_t slots);

  SlotId Take(SlotReservation* from);
  void Free(SlotId slot);
  void FreeInto(SlotReservation* to, SlotId slot);

  PageId PageOf(SlotId slot) const { return PageId(slot.index() / slots_per_page_); }
  uint32_t IndexInPage(SlotId slot) const { return slot.index() % slots_per_page_; }
  bool IsUsed(SlotId slot) const;

  // Level 1: L1 from the counters. Level 2 and up: L2, and every slab is held in the pool.
  Status Validate(int level) const;

 private:
  friend class SlotReservation;

  static constexpr uint32_t kNoPage = ~uint32_t{0};

  uint32_t SparePagesFor(uint32_t reserved) const;
  void ReturnSparePages();
  void Link(uint32_t page);
  void Unlink(uint32_t page);
  // Moves the page from the list of its old use count to that of the new one.
  void SetUseCount(uint32_t page, uint32_t count);
  uint32_t TakeFreeBit(uint32_t page);

  PagePool* pool_;
  uint32_t slots_per_page_;
  uint32_t words_per_page_;
  Reservation spare_;            // pages promised for slots that no slab has
  std::vector<uint64_t> bits_;   // used slots, words_per_page_ a page
  std::vector<uint32_t> count_;  // used slots of a page; 0: not a slab
  // Slabs by use count, doubly linked through the page index.
  std::vector<uint32_t> head_;  // by count, 0..n
  std::vector<uint32_t> next_, previous_;
  IndexSet counts_;  // counts that have a slab
  uint32_t slab_pages_ = 0;
  uint32_t used_ = 0;
  uint32_t reserved_ = 0;
};

}  // namespace tessera
