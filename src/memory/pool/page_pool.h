// SPDX-License-Identifier: Apache-2.0
//
// PagePool hands out the page indices 0..n-1 of one pool. An index names the same page in every
// plane, so the pool knows no bytes, only whether a unit is large enough to make a run.
//
//   free --Reserve--> reserved --Take--> held --Free--> free
//                         ^                 |
//                         +----FreeInto-----+
//
//   Reserve   promises a number of pages, not which; the Reservation gives back what it still has
//   Take      picks one: attention from low addresses up, images from high addresses down, so that
//             the two meet late and images find long runs
//   Free      back to everybody; FreeInto back to the promise it came from
//
// An image is taken in runs of at least 512 KiB per plane (or whole, when smaller), else from one
// 2 MiB block, else anywhere: an address break costs up to 1.8x on a cold read, one inside the same
// 2 MiB a third of that, and runs of 512 KiB lose at most 4 %. Members of a run ascend.
//
// P1  free + reserved + held = total, after every call.
// P2  A page is held at most once: a Take never returns a held page, and freeing a page that is not
//     held aborts.
// P3  Take never fails: it needs a Reservation that has a page left.
//
// No allocation after construction. Cost: a few word reads per page; an image scans the fragments
// of free memory once per run, ~1 us a page at 10^6 pages in the worst order.
//
// Failure: Reserve says no. Threads: one at a time. The pool outlives its reservations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/random.h"
#include "base/status.h"
#include "base/strong_id.h"
#include "memory/pool/index_set.h"

namespace tessera {

class PagePool;

// A promise of pages. Move-only; what is left goes back to the pool at destruction.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  uint32_t pages() const { return pages_; }
  // Gives back all but `pages`, which must not be more than it has.
  void ShrinkTo(uint32_t pages);
  // Takes over what `other` of the same pool has.
  void Merge(Reservation other);

 private:
  friend class PagePool;
  Reservation(PagePool* pool, uint32_t pages) : pool_(pool), pages_(pages) {}

  PagePool* pool_ = nullptr;
  uint32_t pages_ = 0;
};

class PagePool {
 public:
  struct Options {
    uint32_t page_count = 0;
    uint64_t unit_bytes = 1;    // one page in one plane: what a run is measured in
    uint64_t shuffle_seed = 0;  // tests: non-zero takes pages in a random order
  };

  explicit PagePool(const Options& options);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  uint32_t total_pages() const { return free_.size(); }
  uint32_t free_pages() const { return free_.count() - reserved_; }  // neither held nor promised
  uint32_t reserved_pages() const { return reserved_; }
  uint32_t held_attention_pages() const { return held_attention_; }
  uint32_t held_state_pages() const { return held_state_; }

  std::optional<Reservation> Reserve(uint32_t pages);

  PageId TakeAttention(Reservation* from);
  // out.size() pages of one image, in member order.
  void TakeImage(Reservation* from, std::span<PageId> out);

  void Free(PageId page);
  void FreeInto(Reservation* to, PageId page);

  bool IsHeld(PageId page) const;
  bool IsHeldByState(PageId page) const;

  // Level 1: P1 from the counters. Level 2 and up: the bits behind them.
  Status Validate(int level) const;

 private:
  friend class Reservation;

  void Claim(uint32_t index, bool state, Reservation* from);
  uint32_t PickShuffled();
  uint32_t TakeRuns(Reservation* from, std::span<PageId> out);
  uint32_t TakeFromBlocks(Reservation* from, std::span<PageId> out);
  // The out.size() highest free pages below `end`, which there must be, ascending.
  void TakeHighest(Reservation* from, uint32_t end, std::span<PageId> out);

  IndexSet free_;         // not held; the reserved ones are any of them
  IndexSet state_;        // held as part of an image or as a slab
  uint32_t run_pages_;    // pages that make a run of 512 KiB
  uint32_t block_pages_;  // pages in a 2 MiB block
  uint32_t reserved_ = 0;
  uint32_t held_attention_ = 0;
  uint32_t held_state_ = 0;
  bool shuffle_;
  Random random_;
};

}  // namespace tessera
