// SPDX-License-Identifier: Apache-2.0
//
// The ledgers that this module's tests build, one for each way state is cut into members:
//
//   S3       one page for everything: blocks of 1, checkpoints of 5
//   S2       checkpoints of 3 pages and a slot, 16 slots a slab, blocks from the same pool
//   D0       blocks and checkpoints in a pool each
//   Slots    checkpoints of a slot alone, 4 a slab
//   Toy      S2 and a fourth kind with a pool of its own: 2 pages in a checkpoint, 1 in a block
//
// All have kept rows in a pool of their own. The pools are small, so that random operations fill
// them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory/ledger/ledger.h"

namespace tessera::testing {

struct LedgerCase {
  std::string name;
  std::vector<uint32_t> pool_pages;
  std::vector<StateKind> kinds;
  int slab_pool = -1;
  uint32_t slots_per_page = 0;

  Ledger::Options Options(uint64_t shuffle_seed = 0) const {
    Ledger::Options options{.pools = {},
                            .slab_pool = slab_pool,
                            .slots_per_page = slots_per_page,
                            .kinds = StateKinds(kinds)};
    for (uint32_t pages : pool_pages) {
      options.pools.push_back(
          {.page_count = pages, .unit_bytes = 256 * 1024, .shuffle_seed = shuffle_seed});
    }
    return options;
  }
};

inline std::vector<LedgerCase> LedgerCases() {
  const StateKind block{"attention", EntryType::kBlock, 0, 1, false};
  const StateKind row{"kept row", EntryType::kRow, 1, 1, false};
  const StateKind packed{"ssm and conv", EntryType::kCheckpoint, 0, 3, true};
  return {
      {"S3", {40, 3}, {block, {"ssm and conv", EntryType::kCheckpoint, 0, 5, false}, row}},
      {"S2", {40, 3}, {block, packed, row}, 0, 16},
      {"D0",
       {20, 6, 3},
       {block,
        {"ssm and conv", EntryType::kCheckpoint, 1, 1, false},
        {"kept row", EntryType::kRow, 2, 1, false}}},
      {"Slots", {12, 3}, {block, {"conv", EntryType::kCheckpoint, 0, 0, true}, row}, 0, 4},
      {"Toy",
       {40, 3, 16},
       {block,
        packed,
        row,
        {"toy", EntryType::kCheckpoint, 2, 2, false},
        {"toy of a block", EntryType::kBlock, 2, 1, false}},
       0,
       16},
  };
}

// The members of one entry, before or after it is one.
struct Members {
  std::vector<PageId> pages;
  SlotId slot;
};

// Takes what an entry of this type is made of, or nothing when some pool has too little.
inline std::optional<Members> TakeMembers(LedgerLock& lock, Ledger& ledger, EntryType type) {
  std::vector<Reservation> pages;
  for (int pool = 0; pool < ledger.pool_count(); ++pool) {
    std::optional<Reservation> got = ledger.pool(pool).Reserve(ledger.kinds().pages_in(type, pool));
    if (!got.has_value()) return std::nullopt;
    pages.push_back(*std::move(got));
  }
  std::optional<SlotReservation> slot;
  if (ledger.kinds().has_slot(type)) {
    slot = ledger.slabs()->Reserve(1);
    if (!slot.has_value()) return std::nullopt;
  }
  Members members;
  for (const StateKind& kind : ledger.kinds().kinds()) {
    if (kind.entry != type) continue;
    std::vector<PageId> image(kind.pages);
    Reservation* from = &pages[static_cast<size_t>(kind.pool)];
    if (type == EntryType::kCheckpoint) {
      ledger.TakeImage(lock, kind.pool, from, image);
    } else {
      for (PageId& page : image) page = ledger.TakeAttention(lock, kind.pool, from);
    }
    members.pages.insert(members.pages.end(), image.begin(), image.end());
  }
  if (slot.has_value()) members.slot = ledger.TakeSlot(lock, &*slot);
  return members;
}

inline void UnrefAll(LedgerLock& lock, Ledger& ledger, EntryType type, const Members& members) {
  for (size_t i = 0; i < members.pages.size(); ++i) {
    ledger.Unref(lock, ledger.kinds().page_pools(type)[i], members.pages[i]);
  }
  if (members.slot.valid()) ledger.UnrefSlot(lock, members.slot);
}

}  // namespace tessera::testing
